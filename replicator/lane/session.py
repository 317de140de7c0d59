"""One producer session of a lane: the life of one producer, until its outcome is in doubt. Runs in the lane's thread.

    1 fence      InitProducerId under flow.generation.lane
    2 start      check the generation, read the positions stable, judge each partition   (admission, start, judge)
    3 claim      commit all positions again with oneself as owner, and claims for new ones
    4 seek       the source to the committed positions
    5-8          transactions, one after the other                                                        (transaction)

What concerns one partition is decided here and leaves the others alone: it waits and is judged again from time to time,
or an incident stops it. What concerns the producer, the generation or a whole cluster goes to `lane.driver`.

Invariants
- What is learned of a partition is noted before the transaction is aborted: an abort whose outcome is unknown ends the
  session.
- The source is read anew whenever other partitions are copied than before: nothing is read of a partition whose
  position doesn't move with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from replicator.lane.admission import Admission
from replicator.lane.ledger import Ledger
from replicator.lane.memory import Memory, SessionContext
from replicator.lane.partition import Commits, HoldUp, Reason, Stop, Stopped, Wait, reason_of
from replicator.lane.plan import LanePlan
from replicator.lane.policy import Policy
from replicator.lane.ports import Connections
from replicator.lane.readiness import TargetNotReady, TargetReadiness
from replicator.lane.silence import Silence
from replicator.lane.size import TOLD_AFTER, slowness
from replicator.lane.start import owner_of
from replicator.lane.transaction import Collected, IdsInDoubt, TimestampsReplaced, Transactions
from replicator.model.checkpoint import NOBODY, Position
from replicator.model.errors import (
    Abortable,
    Fenced,
    Incident,
    NotAllowed,
    ReplicatorError,
    Retriable,
    UnknownOutcome,
    Unreachable,
)
from replicator.model.partition import Partition
from replicator.planes.contract import Copied, RecordsRefused

STANDING_STILL_S = 0.25  # between two judgements of waiting partitions when none is copied
ABORT_PAUSE_S, ABORT_PAUSE_S_MAX = 0.01, 5.0
AT_ONCE = ("source_corrupt", "flows_in_conflict")
"""Incidents that are reported with all facts; any other is judged by what both clusters say."""
TRUNCATED = "source_truncated"
"""By a leader epoch, which the lower one of a topic that was created again shows, too: so it is judged first."""


class Session:
    """Steps 1 to 8. Every error that it raises ends the producer session; `lane.driver` says what follows."""

    def __init__(
        self, plan: LanePlan, policy: Policy, to: Connections, memory: Memory, context: SessionContext
    ) -> None:
        self._plan, self._policy, self._to, self._plane = plan, policy, to, to.plane
        self._memory, self._partitions, self._refusals = memory, memory.partitions, memory.refusals
        self._stop, self._clock, self._log = context.stop, context.clock, context.log
        self._failpoint, self._on_commit = context.failpoint, context.on_commit
        self._readiness = TargetReadiness(memory.partitions, to.target, context.clock)
        self._plane.on_stall(lambda: self._readiness.stalled(self._plane.written()))
        self._admission = Admission(plan, policy, to, memory, self._readiness, context.clock)
        origins = self._admission.origins
        self._transactions = Transactions(
            plan, policy, to, origins, memory.size, context.clock, context.stop, context.failpoint
        )
        self._aborts = 0  # in a row
        self._silence = Silence(context.clock.now_s())
        self._touched: set[Partition] = set()  # heard since the last commit or seek
        self._read: set[Partition] = set()  # what the plane was asked to read
        self._last_commit_s = self._last_recommit_s = self._owned_s = context.clock.now_s()
        self.well_s = context.clock.now_s()  # when it last committed, or found nothing to copy
        self.ledger = Ledger(memory.partitions, plan.owner, plan.generation, plan.flow.delivery.value)

    def open(self) -> None:
        """Steps 1 to 4."""
        self._memory.size.session_began()
        with self._readiness.fencing(self._plan.routes):
            self._plane.fence()
        self._failpoint("fenced")
        self.ledger = ledger = self._admission.begin()
        self._commit_admitted(everything=True)
        self._failpoint("claimed")
        self._memory.owners.update(
            {
                entry.route.target: self._plan.owner
                for entry in ledger.entries.values()
                if entry.position is not None and entry.commits is Commits.YES  # others still name the predecessor
            }
        )
        for target, committed in ledger.kept.items():
            self._memory.owners.setdefault(target, owner_of(committed) or NOBODY)
        self._policy.opened(self._to, ledger)
        self._rewind()
        counts = self._partitions.publish()
        self._log.info(
            "lane_started",
            partitions=len(ledger.copying),
            waiting=counts.waiting,
            stopped=counts.stopped,
            kept=len(ledger.kept),
        )

    def run(self) -> bool:
        """Steps 5 to 8 until asked to stop. Whether a lane with an end has reached it."""
        while not self._stop.is_set():
            if self._policy.done(self.ledger, {}):
                self._clock.wait(self._stop, self._transactions.pause_s())  # the next range begins without this debt
                return True
            try:
                self._step()
                self.well_s = self._clock.now_s()
            except IdsInDoubt as doubt:
                self._abort_and_wait(doubt)
                self._doubt(doubt.answers, doubt.at_target)
            except RecordsRefused as refused:
                compressed, routes = self._plan.compressed_as_it_can_be, self._plan.routes
                self._refusals.note(refused.refusals, compressed=compressed, routes=routes)
                self._abort(refused)
                self._rewind()
            except NotAllowed as denied:
                self._denied(denied)
            except Incident as incident:
                self._stopped_by(incident, [incident], lasting=True)
            except TimestampsReplaced as found:
                self._stopped_by(found, found.incidents)
            except TargetNotReady as missing:
                self._abort(missing)
                self._rewind()
            except Abortable as error:
                self._abort_and_wait(error)
                self._rewind()
            if self._memory.reports.pending:  # before anybody stops the lane because nothing of it can go on
                self._commit_admitted()
            self._partitions.publish()
        return self._policy.done(self.ledger, {})

    def release(self) -> None:
        """After a clean stop: commit the positions once more without an owner, so that others see nobody runs them."""
        positions = self.ledger.recommits(self._clock.now_ms(), NOBODY)
        if positions:
            self._plane.send_positions(positions, ())
            self._plane.end()

    def _step(self) -> None:
        if self._clock.now_s() >= self._last_recommit_s + self._plan.flow.limits.recommit_interval_ms / 1000:
            self._recommit()
        self._look_at_owners()
        self._judge_waiting()
        self._readiness.look(self.ledger.copying)
        if self.ledger.entries and not self.ledger.copying:
            self._plane.serve()
            self._clock.wait(self._stop, STANDING_STILL_S)
            return
        if self._clock.wait(self._stop, self._transactions.pause_s()):
            return
        if self._read != self.ledger.copying.keys():
            self._rewind()
        try:
            self._copy()
        except (IdsInDoubt, RecordsRefused, TimestampsReplaced, TargetNotReady):
            raise  # they have a cause
        except (Abortable, UnknownOutcome, Fenced):
            self._note_timeout()
            raise
        self._check_silent()

    def _copy(self) -> None:
        collected = self._transactions.collect(self.ledger)
        self._hear(collected.heard)
        if collected.failed:
            self._abort(next(iter(collected.failed.values())))
            self._doubt(collected.failed)
        elif self._plane.pending():
            self._commit(collected)
        else:
            self._idle()

    def _note_timeout(self) -> None:
        """After a transaction has failed, before it is aborted: if that was for its time, the next one is smaller."""
        size, written = self._memory.size, self._plane.written()
        self._readiness.ended(written.partitions)
        if written.timed_out and not self._readiness.held_up:
            size.timed_out(written)
            if size.timeouts >= TOLD_AFTER:
                self._partitions.hold_up(HoldUp(Reason.TARGET_SLOW, slowness(size.timeouts, written)))

    def _commit(self, collected: Collected) -> None:
        done = self._transactions.commit(self.ledger, collected, self._touched & self.ledger.copying.keys())
        self._touched = set()
        self._readiness.committed(done.copied.keys())
        self._memory.digests.update(self.ledger.digests())
        self._report_commit(collected.since_s, done.copied, done.progress.positions)
        blocked = {at: part.blocked for at, part in done.copied.items() if part.blocked is not None}
        for at, incident in blocked.items():
            self._stop_partition(at, incident)
        anew = self._policy.committed(done.copied, self._plane.ends())
        anew = self._refusals.passed(done.progress.positions) or anew  # before bounds go that were reached now
        if self._reach_bounds() or anew or blocked:
            self._rewind()

    def _idle(self) -> None:
        now_s, ends = self._clock.now_s(), self._plane.ends()
        due = now_s - self._last_commit_s >= self._plan.flow.commit.interval_ms / 1000
        if due or self._policy.done(self.ledger, ends) or any(self._refusals.until(at) is not None for at in ends):
            progress = self._transactions.commit_without_records(self.ledger, ())
            if progress.positions:
                self._report_commit(0.0, {}, progress.positions)
            self._last_commit_s = now_s
            anew = self._policy.committed({}, ends)
            if self._reach_bounds() or anew:
                self._rewind()

    def _reach_bounds(self) -> bool:
        """Partitions that stand before a refused record are stopped there; whether the source must be read anew."""
        reached = self._refusals.reached(self._policy.reached(self.ledger))
        for at, incident in reached.items():
            if incident is not None:
                self._stop_partition(at, incident, lasting=True)
        return bool(reached)

    def _report_commit(
        self, since_s: float, copied: Mapping[Partition, Copied], positions: Mapping[Partition, Position]
    ) -> None:
        self._last_commit_s = self._clock.now_s()
        self._aborts = 0
        records = sum(done.records for done in copied.values())
        self._on_commit(records, sum(done.bytes for done in copied.values()))
        self._log.info(
            "committed",
            records=records,
            positions={str(at): position.offset for at, position in positions.items()},
            ms=round((self._last_commit_s - since_s) * 1000) if since_s else 0,
        )
        if records:
            self._partitions.records_committed()

    def _hear(self, heard: set[Partition]) -> None:
        self._silence.hear(heard, self._clock.now_s())
        self._touched |= heard

    def _check_silent(self) -> None:
        silent = self._silence.found(self.ledger.copying, self._clock.now_s())
        if silent:
            self._transactions.ask_ids(self.ledger, silent)()
            self._silence.hear(silent, self._clock.now_s())

    def _look_at_owners(self) -> None:
        """Once in a discovery interval the lane reads its positions: one that commits nothing isn't told that it was
        fenced, and nobody is told that something else commits offsets of the flow's group."""
        now_s = self._clock.now_s()
        if not self._policy.copies_live or now_s < self._owned_s + self._plan.flow.limits.discovery_interval_ms / 1000:
            return
        self._owned_s = now_s
        try:
            again = self._admission.check_owners(self.ledger)
        except (Retriable, Unreachable) as error:
            self._log.warning("owner_unknown", reason=str(error))
            return
        if again:
            self._commit_admitted()

    def _rewind(self) -> None:
        self._touched, self._read = set(), set(self.ledger.copying)
        self._memory.digests.clear()
        self._memory.digests.update(self.ledger.digests())
        self._plane.seek(self._policy.read_plans(self.ledger, self._refusals))

    def _recommit(self) -> None:
        """Invariant 7: every position again, waiting, stopped and idle ones too, before it could expire."""
        self._transactions.ask_ids(self.ledger, self.ledger.copying)()
        self._last_recommit_s = self._clock.now_s()
        self._admission.before_all(self.ledger)
        self._commit_admitted(everything=True)
        self._last_commit_s = self._clock.now_s()
        self._log.info("recommitted", partitions=len(self.ledger.entries))

    def _commit_admitted(self, *, everything: bool = False) -> None:
        """Step 3: positions and claims of the partitions that were admitted last, or all positions of the lane.

        A right that is missing for one topic keeps out that topic's partitions and no others. Where the transaction is
        aborted for any other reason the session ends: going on, the next one would commit positions without claims.
        """
        while True:
            offsets, entries = self._admission.to_commit(self.ledger, everything=everything)
            if not offsets and not entries:  # librdkafka would end a transaction without either and ask nobody
                self._admission.committed()
                return
            try:
                self._plane.send_positions(offsets, entries)
                self._plane.end()
            except NotAllowed as denied:
                kept_out = self._keep_out(denied)
                self._plane.abort()
                if not kept_out:
                    raise
                continue
            except Abortable as error:
                raise UnknownOutcome(str(error)) from error
            self._readiness.committed()
            self._admission.committed()
            return

    def _judge_waiting(self) -> None:
        """Waiting partitions whose time has come are judged again; those that can go on do."""
        due = self._partitions.due()
        if due and self._admission.judge_again(due):
            self._commit_admitted()
            self._rewind()

    def _doubt(self, answers: Mapping[Partition, str | ReplicatorError], at_target: Collection[Partition] = ()) -> None:
        """Partitions that failed or whose ids are others: each is judged anew, by itself.

        `at_target`: those whose answers are of the target.
        """
        again: list[Partition] = []
        truncated: dict[Partition, Incident] = {}
        for at, answer in answers.items():
            if isinstance(answer, Incident) and answer.name in AT_ONCE:
                self._stop_partition(at, answer)
            elif isinstance(answer, Incident) and answer.name == TRUNCATED:
                truncated[at] = answer
            elif isinstance(answer, Incident) and answer.name == "record_too_large":
                self._refusals.stop_before(at, answer)
            elif isinstance(answer, Incident | str):
                again.append(at)
            else:
                self._wait(at, answer, Reason.TARGET_MISSING if at in at_target else Reason.SOURCE_MISSING)
        if again or truncated:
            self._admission.judge_again([*again, *truncated])
            for at, incident in truncated.items():
                if not isinstance(self._partitions[at].state, Stopped):  # it can't be found out a second time
                    self._stop_partition(at, incident)
            self._commit_admitted()
        self._rewind()

    def _wait(self, at: Partition, error: ReplicatorError, missing: Reason = Reason.SOURCE_MISSING) -> None:
        """`missing`: whose topic a TopicMissing means."""
        if isinstance(error, NotAllowed) and not self._policy.waits:
            raise error
        self._partitions.apply(at, Wait(reason_of(error, missing), str(error)))

    def _denied(self, denied: NotAllowed) -> None:
        if not self._keep_out(denied):
            for at in self.ledger.copying:  # a right of the whole lane: its transactional id, its group, its claims
                self._wait(at, denied)
        self._abort(denied)
        self._rewind()

    def _keep_out(self, denied: NotAllowed) -> bool:
        """Make the partitions wait that a missing right stops; whether any was found that didn't wait before."""
        if not self._policy.waits:
            raise denied
        return self._admission.keep_out(denied)

    def _stopped_by(self, error: ReplicatorError, incidents: Iterable[Incident], *, lasting: bool = False) -> None:
        """Incidents of single partitions that acknowledgements or records showed. Others go to the driver."""
        for incident in incidents:
            at = Partition(incident.topic, incident.partition)
            if at not in self.ledger.copying:
                raise incident
            self._stop_partition(at, incident, lasting=lasting)
        self._abort(error)
        self._rewind()

    def _stop_partition(self, at: Partition, incident: Incident, *, lasting: bool = False) -> None:
        position = self._partitions[at].position
        stands = position.offset if position is not None else -1
        placed = incident.at(at.partition, incident.offset if incident.offset >= 0 else stands)
        self._partitions.apply(at, Stop(placed, lasting))
        self._admission.report(at, placed)

    def _abort_and_wait(self, error: ReplicatorError) -> None:
        """What may come again at once: the more aborts there were in a row, the longer the wait."""
        self._aborts += 1
        self._abort(error)
        if self._aborts > 1:
            pause_s = min(ABORT_PAUSE_S_MAX, ABORT_PAUSE_S * 2 ** min(self._aborts, 16))
            self._clock.wait(self._stop, pause_s)

    def _abort(self, error: ReplicatorError) -> None:
        """Invariant 5: abort; whoever calls this rewinds. Then the target is compared with the positions, before the
        same producer's next commit could make records visible whose marker was lost."""
        wrote = self._plane.pending()
        self._readiness.ended(self._plane.written().partitions)
        self._plane.abort()
        # What the client says first may not be the cause: the advice comes with the incident that is judged.
        reason = f"{error.name}: {error.detail}" if isinstance(error, Incident) else str(error)
        self._log.warning("aborted", reason=reason, kind=type(error).__name__)
        if wrote:
            self._admission.check_target(self.ledger.copying)
