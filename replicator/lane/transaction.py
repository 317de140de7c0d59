"""One transaction of a lane, from its first record to the end of EndTxn. Called by `lane.session`.

    5 copy       records into a transaction until the source is drained or a limit is reached
    6 flush      all acks, with their offsets; meanwhile the source is asked for the ids of its topics, afterwards the
                 target for those of which the acks don't tell, and for what stands before the first acknowledged record
    7 positions  into the same transaction
    8 end        EndTxn(commit)

All that a lane commits goes through `LaneTransactions.commit`, and `CommitKind` says what is asked before it.

Invariants
- Invariant 8: nothing of a partition is committed unless its source topic had the same id after the last fetch as when
  the position was written. Ids never come back and a broker's metadata is never older than the data it serves, so an
  unchanged id covers everything that was read before.
- The same holds for its target topic, which need not be asked for where the acks tell it (`acks_tell`): a question
  costs as much CPU as copying a hundred records.
- No record is committed that comes from where it would go, see `origin_check`.
- No record is committed with another timestamp than its source's (exactly_once): each run's first and last
  acknowledgement say whether the target has replaced them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial

from replicator.lane.commit_checks import (
    OriginMismatch,
    TimestampsReplaced,
    acks_tell,
    check_covered,
    check_ids,
    moves,
    with_position,
)
from replicator.lane.map_writer import MapWriter
from replicator.lane.memory import Memory, SessionContext
from replicator.lane.origin_check import OriginCheck
from replicator.lane.pace import Pace, Rate
from replicator.lane.partition import LanePartition
from replicator.lane.plan import LanePlan
from replicator.lane.policy import Policy
from replicator.lane.ports import Connections
from replicator.lane.positions import LanePositions
from replicator.lane.readiness import TargetReadiness
from replicator.lane.target_check import check_between
from replicator.model.checkpoint import NOBODY, Position
from replicator.model.delivery import Delivery
from replicator.model.errors import Abortable, ReplicatorError
from replicator.model.partition import Committed, Partition, Seek
from replicator.model.timestamps import TIMESTAMP_TYPE, target_rewrites_timestamps
from replicator.offset_map.block import RUNS_MAX
from replicator.offset_map.section import MapSection
from replicator.planes.contract import Copied, ReadPlan
from replicator.state.claims import Claim
from replicator.state.occurrences import Occurrence

IDLE_POLL_S = 0.1
PAUSE_S_MAX = 0.5  # at a stretch, before the lane looks after all else
LINGER_S_MIN, LINGER_S_MAX = 0.0005, 0.01  # at once; then it is looked what has come: the reader's queue has an end


@dataclass(slots=True)
class Collected:
    """What is in the open transaction, since when (monotonic), what has failed meanwhile, and of which source topics it
    may hold anything; else as `PollResult`."""

    since_s: float = 0.0
    records: int = 0
    bytes: int = 0
    runs: int = 0
    drained: bool = False
    pending: bool = False
    ends: Mapping[Partition, Seek] = field(default_factory=dict)
    failed: dict[Partition, ReplicatorError] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)


NOTHING = Collected()


class CommitKind(Enum):
    """What a transaction is committed for, and with it what is asked before (docs/guarantees.md)."""

    RECORDS = auto()
    """Records and the positions behind them. Asked: all that the module's invariants say."""
    ENDS = auto()
    """Positions past markers and aborted records: otherwise retention there would look like loss. Asked: the ids of
    both topics of each position that moves."""
    ADMITTED = auto()
    """Positions and claims of the partitions that were admitted last, and reports of incidents. Asks for no ids: those
    by which the partitions were admitted have been read after their positions."""
    START = auto()
    """The same, and all other positions of the lane with it as owner. Asks for no ids, for the same reason."""
    OVERWRITTEN = auto()
    """The same, over what something else has committed in their place. Asks for no ids: no position moves."""
    KEEP_ALIVE = auto()
    """As `START`, before a position could expire (invariant 7). Asked: the ids of both topics of each partition that
    is copied; that of any other one was another before, or is asked for before it is copied."""
    RELEASE = auto()
    """All positions without an owner, at a clean stop. Asked: as `KEEP_ALIVE`."""


@dataclass(frozen=True, slots=True)
class Done:
    """A committed transaction: what became of the records in it, and the positions that moved."""

    copied: Mapping[Partition, Copied] = field(default_factory=dict)
    positions: Mapping[Partition, Position] = field(default_factory=dict)


@dataclass(slots=True)
class _Contents:
    """What goes into a transaction besides records."""

    offsets: Mapping[Partition, Committed]
    entries: Sequence[tuple[bytes, bytes]] = ()
    claims: Collection[Claim] = ()
    done: Done = field(default_factory=Done)
    sections: Sequence[MapSection] = ()


class LaneTransactions:
    """Makes the transactions of one producer session, one after the other."""

    def __init__(
        self,
        plan: LanePlan,
        policy: Policy,
        to: Connections,
        origins: OriginCheck,
        readiness: TargetReadiness,
        map_writer: MapWriter,
        memory: Memory,
        context: SessionContext,
    ) -> None:
        self._plan, self._policy, self._to, self._plane = plan, policy, to, to.plane
        self._partitions, self._reports, self._size = memory.partitions, memory.reports, memory.size
        self._origins, self._readiness, self._failpoint = origins, readiness, context.failpoint
        self._map = map_writer
        self._clock, self._stop = context.clock, context.stop
        self._interval_s, self._linger_s = plan.flow.commit.interval_ms / 1000, plan.flow.commit.linger_ms / 1000
        self._rate = Rate(policy.rate_max)
        self._throttle = memory.throttle
        self._pace = Pace()

    def paused(self) -> bool:
        """Wait until the next record should be written, but no longer than the lane's other work may wait; whether it
        is not time yet, or the lane is asked to stop."""
        wait_s = self.pause_s()
        return self._clock.wait(self._stop, min(wait_s, PAUSE_S_MAX)) or wait_s > PAUSE_S_MAX

    def pause_s(self) -> float:
        """Return the seconds until the next record should be written."""
        now_s = self._clock.now_s()
        return max(self._pace.left_s(now_s), self._rate.left_s(now_s), self._throttle.left_s(now_s))

    def seek(self, read_plans: Mapping[Partition, ReadPlan]) -> None:
        """Have the source read by these plans from now on, and forget what was read."""
        _checked(self._partitions.values())
        self._plane.seek(read_plans)

    def collect(self, positions: LanePositions) -> Collected:
        """Copy (step 5). Returns when the source is drained, a limit is reached, or nothing came in one idle poll."""
        plane, open_ = self._plane, Collected()
        while True:
            wait_s = 0.0 if open_.records else IDLE_POLL_S
            polled = plane.poll(self._left(open_), wait_s)
            if polled.records:
                self._failpoint("mid_batch" if open_.records else "before_send")
                open_.since_s = open_.since_s or self._clock.now_s()
            open_.records += polled.records
            open_.bytes += polled.bytes
            open_.topics.update(at.topic for at in polled.heard)
            open_.runs += polled.runs
            open_.failed |= polled.failed
            open_.pending, open_.ends = polled.pending, polled.ends
            self._hear(polled.heard)
            if open_.failed or self._stop.is_set() or not open_.pending:
                return open_
            if self._left(open_) <= 0 or open_.runs >= RUNS_MAX:
                return open_
            if self._policy.done(positions, open_.ends):
                return open_
            open_s = self._clock.now_s() - open_.since_s
            open_.drained = polled.drained and open_s >= self._linger_s
            if open_.drained or open_s >= self._interval_s:
                return open_
            if polled.drained:  # what comes until then is taken at once: each poll has its price
                self._clock.wait(self._stop, max(LINGER_S_MIN, min(LINGER_S_MAX, self._linger_s - open_s)))

    def _left(self, open_: Collected) -> int:
        """Return how many records more the transaction may have."""
        left = self._size.left(open_.records, open_.bytes)
        allowed = self._throttle.records_left(
            self._clock.now_s(), self._interval_s, open_.records, open_.bytes, open_.topics
        )
        return left if allowed is None else min(left, allowed)

    def _hear(self, heard: Collection[Partition]) -> None:
        now_s = self._clock.now_s()
        for at in heard:
            known = self._partitions[at].session
            known.heard_s, known.came_s, known.unchecked = now_s, now_s, True

    def commit(self, kind: CommitKind, positions: LanePositions, collected: Collected = NOTHING) -> Done:
        """Commit what was `collected`, or what else `kind` says (steps 6 to 8). On return it is certainly committed.

        Raises IdMismatch, TimestampsReplaced, Incident of one partition, RecordsRefused, NotAllowed, Abortable: the
        transaction has to be aborted then. UnknownOutcome, Fenced.
        """
        if kind is CommitKind.RECORDS:
            return self._commit_records(positions, collected)
        if kind is CommitKind.ENDS:
            held = self._progress(positions, {}, collected.ends)
            self.check_ids(positions, held.done.positions)
        else:
            if kind in (CommitKind.KEEP_ALIVE, CommitKind.RELEASE):
                self.check_ids(positions, positions.copying)
            held = self._every(positions, kind)
        if held.offsets or held.entries:  # librdkafka would end a transaction without either and ask nobody
            at_start = kind is CommitKind.START
            self._end(held, lambda: self._failpoint("before_end_claims") if at_start else None)
            self._readiness.on_committed()
        if kind is not CommitKind.ENDS and kind is not CommitKind.RELEASE:
            self._partitions.on_committed()
        return self._committed(positions, held)

    def _end(self, held: _Contents, before_end: Callable[[], None]) -> None:
        self._readiness.map_at = self._map.place_of(held.sections)
        with self._map.blocks_of(held.sections) as blocks:
            self._plane.commit(held.offsets, held.entries, before_end, blocks)

    def _committed(self, positions: LanePositions, held: _Contents) -> Done:
        positions.on_committed(held.done.positions)
        self._reports.on_committed()
        self._origins.claimed(held.claims)
        return held.done

    def commit_decision(self, positions: LanePositions, at: Partition, moved: Position, closed: Occurrence) -> None:
        """Commit the position of one partition as a decision moves it, with the end of the incident's occurrence.

        The ids of both topics are asked for before. Raises as `commit`.
        """
        self.check_ids(positions, [at])
        self._failpoint("before_decision")
        mapped, entries = self._map.mapped(positions, {at: moved}, {}, gap=True), self._reports.of_decision(at, closed)
        held = _Contents(positions.offsets(mapped.positions), entries, (), Done({}, mapped.positions), mapped.sections)
        self._end(held, partial(self._failpoint, "before_end_decision"))
        self._failpoint("after_decision")
        self._readiness.on_committed()
        self._committed(positions, held)

    def _commit_records(self, positions: LanePositions, collected: Collected) -> Done:
        self._failpoint("before_flush")
        exact = self._plan.flow.delivery is Delivery.EXACTLY_ONCE
        entries = with_position(positions, [at for at, it in positions.copying.items() if it.session.unchecked])
        source = self._to.source.topic_ids({at.topic for at in entries})
        copied, written = self._plane.flush()
        writing_s = self._clock.now_s() - collected.since_s
        self._check_timestamps(positions, {at for at, done in copied.items() if done.restamped}, undone=exact)
        check_ids(entries, source.wait(), self._target_ids(entries, copied, collected.ends))
        if exact:
            check_between(entries, copied, self._to.target)
        held = self._progress(positions, copied, collected.ends)
        self._failpoint("before_offsets")
        self._end(held, partial(self._failpoint, "before_end_txn"))
        self._failpoint("after_end_txn")
        _checked(entries.values())
        self._readiness.on_committed(copied)
        self._size.on_committed(written)
        self._pace.on_committed(self._clock.now_s(), writing_s, collected.drained)
        self._committed(positions, held)
        if self._plan.flow.delivery is Delivery.AT_MOST_ONCE:  # may fail; the positions are committed all the same
            self._check_timestamps(positions, self._plane.deliver(), undone=False)
        self._rate.spent(collected.since_s, sum(done.records for done in copied.values()))
        self._throttle.spent(self._clock.now_s(), by_topic(copied))
        return held.done

    def _progress(
        self, positions: LanePositions, copied: Mapping[Partition, Copied], ends: Mapping[Partition, Seek]
    ) -> _Contents:
        """Make the positions behind what was copied, or past markers, and claims that say more than those before."""
        wrong, claims = self._origins.before_commit([at for at, done in copied.items() if done.records])
        if wrong:
            raise OriginMismatch(wrong)
        progress = self._policy.progress(positions, copied, ends, self._clock.now_ms())
        check_covered(copied, progress)
        mapped = self._map.mapped(positions, progress.positions, copied)
        offsets = positions.offsets(mapped.positions)
        passed = self._reports.passed(self._plan, mapped.positions, self._clock.now_ms())
        entries = [*progress.entries, *(claim.encode() for claim in claims), *passed]
        return _Contents(offsets, entries, claims, Done(copied, mapped.positions), mapped.sections)

    def _every(self, positions: LanePositions, kind: CommitKind) -> _Contents:
        """Take all positions of the lane, or those of admitted partitions, with claims and reports of incidents."""
        now_ms = self._clock.now_ms()
        if kind is CommitKind.RELEASE:
            self._reports.none()
            return _Contents(positions.recommits(now_ms, NOBODY))
        admitted, offsets = self._partitions.admitted, positions.recommits(now_ms)
        if kind is CommitKind.ADMITTED:
            wanted = {partition.route.target for partition in admitted.values()}
            offsets = {target: committed for target, committed in offsets.items() if target in wanted}
        claims = [claim for it in admitted.values() if (claim := it.claim or self._origins.renewed(it)) is not None]
        reports = self._reports.entries(self._plan, admitted, now_ms)
        return _Contents(offsets, [*(claim.encode() for claim in claims), *reports], claims)

    def _check_timestamps(self, positions: LanePositions, restamped: Collection[Partition], *, undone: bool) -> None:
        """Raise TimestampsReplaced where the target's topic stamps records itself, unless the flow wants that.

        An acknowledgement alone doesn't prove it: that of a batch which was sent again, and had been appended before,
        has the batch's own time where the time of the append would stand (UnifiedLog.append in Kafka). So the topic is
        asked, and where it denies it, or gives no answer, raises Abortable if the records can be `undone`.
        """
        flow = self._plan.flow
        if not restamped or TIMESTAMP_TYPE in flow.topic_configs.extra:
            return
        targets = {at: positions.entries[at].route.target.topic for at in sorted(restamped)}
        found = self._to.target.rewrites_timestamps(set(targets.values()))
        incidents = [
            target_rewrites_timestamps(flow.target.name, target, at.topic).at(at.partition, -1)
            for at, target in targets.items()
            if found[target] is True
        ]
        if incidents:
            raise TimestampsReplaced(incidents)
        if undone:
            raise Abortable(f"batches of {', '.join(map(str, targets))} were acknowledged with other timestamps")

    def check_ids(self, positions: LanePositions, concerned: Collection[Partition]) -> None:
        """Ask both clusters for the ids of the topics of these source partitions. Raises IdMismatch."""
        entries = with_position(positions, concerned)
        if entries:
            source = self._to.source.topic_ids({at.topic for at in entries})
            target = self._to.target.topic_ids({entry.route.target.topic for entry in entries.values()})
            check_ids(entries, source.wait(), target.wait())

    def _target_ids(
        self,
        entries: Mapping[Partition, LanePartition],
        copied: Mapping[Partition, Copied],
        ends: Mapping[Partition, Seek],
    ) -> Mapping[str, str | ReplicatorError]:
        """Ask for the ids of target topics of which something is to be committed and acks don't tell enough."""
        exactly_once = self._plan.flow.delivery is Delivery.EXACTLY_ONCE
        topics = {
            entry.route.target.topic
            for at, entry in entries.items()
            if (at in copied or moves(entry, ends.get(at)))
            and not (exactly_once and at in copied and acks_tell(entry, copied[at]))
        }
        return self._to.target.topic_ids(topics).wait() if topics else {}


def by_topic(copied: Mapping[Partition, Copied]) -> dict[str, tuple[int, int]]:
    """Count records and bytes of each source topic. Pure."""
    found: dict[str, tuple[int, int]] = {}
    for at, done in copied.items():
        records, size = found.get(at.topic, (0, 0))
        found[at.topic] = (records + done.records, size + done.bytes)
    return found


def _checked(partitions: Iterable[LanePartition]) -> None:
    for partition in partitions:
        partition.session.unchecked = False
