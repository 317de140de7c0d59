"""One producer session of a lane: the life of one producer, until an outcome is unknown. Runs in the lane's thread.

    1 fence      InitProducerId under flow.generation.lane
    2 start      check the generation, read claims and stable positions, decide over each partition         (start)
    3 claim      commit all positions again with oneself as owner, and claims for new ones          (transaction)
    4 seek       the source to the committed positions
    5-8          transactions, one after the other                                                  (transaction)

What concerns one partition is decided here and leaves the others alone: it waits and is checked again now and then, or
an incident stops it. What concerns the producer, the generation or a whole cluster goes to `lane.driver`.

Invariants
- What is learned of a partition is noted before the abort: one whose outcome is unknown ends the session.
- Invariant 5. The source is sought to the committed positions before the next record is read, after any abort and
  whenever other partitions are copied than before: nothing is read of a partition whose position doesn't move with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial

from replicator.backoff import Backoff
from replicator.lane.commit_checks import IdMismatch, TimestampsReplaced
from replicator.lane.decisions import LaneDecisions
from replicator.lane.map_writer import MapWriter
from replicator.lane.memory import Memory, SessionContext
from replicator.lane.own_transactions import OPEN
from replicator.lane.owner_watch import OwnerWatch
from replicator.lane.owners import owner_of
from replicator.lane.partition import Commits, Reason, Stopped
from replicator.lane.plan import LanePlan
from replicator.lane.policy import Policy
from replicator.lane.ports import Connections
from replicator.lane.positions import LanePositions
from replicator.lane.readiness import TargetNotReady, TargetReadiness
from replicator.lane.silence import SilenceWatch
from replicator.lane.start import LaneStart
from replicator.lane.throttling import LaneThrottling
from replicator.lane.timestamp_refusals import TimestampRefusals
from replicator.lane.transaction import Collected, CommitKind, Done, LaneTransactions
from replicator.lane.unserved import UnservedSources
from replicator.model.checkpoint import NOBODY
from replicator.model.errors import (
    Abortable,
    Fenced,
    Incident,
    NotAllowed,
    ReplicatorError,
    UnknownOutcome,
)
from replicator.model.partition import Partition, Seek
from replicator.planes.contract import RecordsRefused, Written

ABORT_PAUSE_S, ABORT_PAUSE_S_MAX = 0.01, 5.0
RELEASES_MAX = 3  # in which topics turn out to be others, or their clusters don't say
AT_ONCE = ("source_corrupt", "flows_in_conflict")
"""Incidents that are reported with all facts; of any other both clusters are asked."""
TRUNCATED = "source_truncated"
"""By a leader epoch, which the lower one of a topic that was created again shows, too: so that is asked about first."""


class ProducerSession:
    """Steps 1 to 8. Every error that it raises ends the producer session; `lane.driver` says what follows."""

    def __init__(
        self, plan: LanePlan, policy: Policy, to: Connections, memory: Memory, context: SessionContext
    ) -> None:
        self._plan, self._policy, self._to, self._plane = plan, policy, to, to.plane
        self._memory, self._partitions, self._refusals = memory, memory.partitions, memory.refusals
        self._stop, self._clock, self._log = context.stop, context.clock, context.log
        self._failpoint, self._observer, self._initialised = context.failpoint, context.observer, context.initialised
        self._readiness = TargetReadiness(memory.partitions, to.target, context.clock)
        self._map = MapWriter(plan, to, memory, context)
        self._plane.on_stall(self._stalled)
        self._start = LaneStart(plan, policy, to, memory, self._readiness, context.clock, context.log)
        origins = self._start.origins
        self._transactions = LaneTransactions(plan, policy, to, origins, self._readiness, self._map, memory, context)
        self._decisions = LaneDecisions(plan, policy, to, memory, self._start, self._transactions, context)
        self._silence = SilenceWatch(self._transactions, context.clock)
        self._unserved = UnservedSources(memory, to.source, plan.flow.source.name, context.clock)
        self._owners = OwnerWatch(plan, policy, self._start, context)
        self._throttling = LaneThrottling(plan, policy, memory, self._start, context.clock)
        interval_s = plan.flow.limits.discovery_interval_ms / 1000
        self._timestamps = TimestampRefusals(memory.partitions, to.target, context.clock, interval_s)
        self._aborts = Backoff(ABORT_PAUSE_S, ABORT_PAUSE_S_MAX, context.jitter)  # since the last commit
        self._last_commit_s = self._last_recommit_s = context.clock.now_s()
        self.has_committed = False  # records, or positions that moved
        self.given_up: ReplicatorError | None = None  # why records were aborted after a stop was asked for
        self.well_s = context.clock.now_s()  # when it last committed, or found nothing to copy
        self.positions = LanePositions(memory.partitions, plan.owner, plan.generation, plan.flow.delivery.value)

    def open(self) -> None:
        """Go through steps 1 to 4."""
        self._memory.size.session_began()
        with self._readiness.fencing(self._plan.routes):
            self._plane.fence()
        self._initialised()
        self._failpoint("fenced")
        self.positions = positions = self._start.begin()
        self._commit_positions(CommitKind.START)
        self._failpoint("claimed")
        self._memory.owners.update(
            {
                entry.route.target: self._plan.owner
                for entry in positions.entries.values()
                if entry.position is not None and entry.commits is Commits.YES  # others still name the predecessor
            }
        )
        for target, committed in positions.kept.items():
            self._memory.owners.setdefault(target, owner_of(committed) or NOBODY)
        self._policy.opened(self._to, positions)
        self._map.begin(positions)
        self._decisions.begin(self._start.decided, self._start.occurrences)
        self._decide()
        self._rewind()
        entries = positions.entries.items()
        self._observer.session_began({at: it.position.offset for at, it in entries if it.position is not None})
        counts = self._partitions.publish()
        self._log.info(
            "lane_started",
            partitions=len(positions.copying),
            waiting=counts.waiting,
            stopped=counts.stopped,
            kept=len(positions.kept),
        )

    def run(self) -> bool:
        """Repeat steps 5 to 8 until asked to stop. Return whether a lane with an end has reached it."""
        while not self._stop.is_set():
            if self._policy.done(self.positions, {}):
                self._clock.wait(self._stop, self._transactions.pause_s())  # the next range begins without this debt
                return True
            try:
                self._step()
                self.well_s = self._clock.now_s()
            except IdMismatch as mismatch:
                self._abort_and_wait(mismatch)
                self._decide_failed(mismatch.answers, mismatch.at_target)
            except RecordsRefused as refused:
                self._refusals.note(refused.refusals, compressed=self._plan.compressed_as_it_can_be)
                self._abort(refused)
            except NotAllowed as denied:
                self._denied(denied)
            except Incident as incident:
                if incident.name == OPEN:  # the abort may end it; if not, the look at the target says whose it is
                    self._abort_and_wait(incident)
                else:
                    self._stopped_by(incident, [incident], lasting=True)
            except TimestampsReplaced as found:
                self._stopped_by(found, found.incidents)
            except TargetNotReady as missing:
                self._abort(missing)
            except Abortable as error:
                self._abort_and_wait(error)
            if self._memory.reports.due(self._clock.now_ms()):  # before anybody stops a lane of which nothing goes on
                self._commit_positions(CommitKind.ADMITTED)
            self._decide()
            self._partitions.publish()
        return self._policy.done(self.positions, {})

    def release(self) -> None:
        """Commit the positions once more without an owner, after a clean stop, so that others see nobody runs them.

        A partition whose topic is another one now is stopped first, one whose cluster doesn't say waits: their
        positions are released as they stand, with the ids that the next start compares.
        """
        for _ in range(RELEASES_MAX):
            try:
                self._transactions.commit(CommitKind.RELEASE, self.positions)
            except IdMismatch as mismatch:
                self._decide_failed(mismatch.answers, mismatch.at_target)
            else:
                return
        self._transactions.commit(CommitKind.RELEASE, self.positions)

    def _step(self) -> None:
        if self._clock.now_s() >= self._last_recommit_s + self._plan.flow.limits.recommit_interval_ms / 1000:
            self._recommit()
        self._owners.look(self.positions, self._commit_positions)
        self._decide_waiting()
        self._throttling.look()
        self._readiness.look(self.positions.copying)
        self._start.leaders.look(self.positions.copying)
        self._unserved.look(self.positions.copying)
        self._map.look(self.positions)
        if self._partitions.read_anew:
            self._rewind()
        if self._transactions.paused():
            return
        try:
            self._copy()
        except (IdMismatch, RecordsRefused, TimestampsReplaced, TargetNotReady):
            raise  # they have a cause
        except (Abortable, UnknownOutcome, Fenced):
            self._readiness.failed(self._memory.size, self._plane.written())
            raise
        self._silence.look(self.positions)

    def _copy(self) -> None:
        collected = self._transactions.collect(self.positions)
        if collected.drained or not collected.pending:
            self._unserved.idle()
        if collected.failed:
            self._abort(next(iter(collected.failed.values())))
            self._decide_failed(collected.failed)
        elif collected.pending:
            self._commit(CommitKind.RECORDS, collected)
        elif self._ends_due(collected.ends):
            self._commit(CommitKind.ENDS, collected)

    def _ends_due(self, ends: Mapping[Partition, Seek]) -> bool:
        """Tell whether positions shall move now although nothing is there to be copied."""
        due = self._clock.now_s() - self._last_commit_s >= self._plan.flow.commit.interval_ms / 1000
        return due or self._policy.done(self.positions, ends) or not ends.keys().isdisjoint(self._refusals.bounded())

    def _stalled(self, written: Written) -> None:
        self._readiness.stalled(written)
        self._map.stalled()

    def _commit(self, kind: CommitKind, collected: Collected) -> None:
        """Commit what was copied, or positions alone, and find out how the source is read from then on."""
        done = self._transactions.commit(kind, self.positions, collected)
        self._last_commit_s = self._clock.now_s()
        if kind is CommitKind.RECORDS or done.positions:
            self._report_commit(done, collected.since_s)
        for at, part in done.copied.items():
            if part.blocked is not None:
                self._start.stop(at, part.blocked)
        if self._ends_range(done, collected.ends):
            self._partitions.read_anew = True

    def _ends_range(self, done: Done, ends: Mapping[Partition, Seek]) -> bool:
        """Tell whether a commit was the end of what the source was asked to read, so that it must be read anew.

        Partitions that stand before a refused record are stopped.
        """
        of_policy = self._policy.on_committed(done.copied, ends)
        with_records = done.positions if done.copied else None
        after = self._refusals.on_committed(with_records, partial(self._policy.reached, self.positions))
        for at, incident in after.stopped.items():
            self._start.stop(at, incident, lasting=not self._timestamps.note(at, incident))
        return of_policy or after.read_anew

    def _report_commit(self, done: Done, since_s: float) -> None:
        self._aborts.reset()
        records = sum(part.records for part in done.copied.values())
        self.has_committed = True
        self._observer.on_committed(done.copied, done.positions, self._last_commit_s - since_s if since_s else 0.0)
        self._log.debug(
            "committed",
            records=records,
            positions={str(at): position.offset for at, position in done.positions.items()},
            ms=round((self._last_commit_s - since_s) * 1000) if since_s else 0,
        )
        if records:
            self._partitions.records_committed()

    def _rewind(self) -> None:
        read_plans = self._throttling.readable(self._policy.read_plans(self.positions))
        if self._refusals.every_ack:
            read_plans = {at: replace(plan, every_ack=True) for at, plan in read_plans.items()}
        self._transactions.seek(read_plans)
        self._partitions.read_anew = False

    def _recommit(self) -> None:
        """Commit every position again before it could expire, of partitions that aren't copied, too (invariant 7)."""
        before, self._last_recommit_s = self._last_recommit_s, self._clock.now_s()
        self._start.before_all(self.positions)
        try:
            self._commit_positions(CommitKind.KEEP_ALIVE)
        except IdMismatch:
            self._last_recommit_s = before  # at once again, without the partitions that it names
            raise
        self._last_commit_s = self._clock.now_s()
        self._log.info("recommitted", partitions=len(self.positions.entries))

    def _commit_positions(self, kind: CommitKind) -> None:
        """Commit positions and claims without records, as in step 3.

        A right that is missing for one topic keeps out that topic's partitions and no others. Where the transaction is
        aborted for any other reason the session ends: going on, the next one would commit positions without claims.
        """
        while True:
            try:
                done = self._transactions.commit(kind, self.positions)
            except NotAllowed as denied:
                kept_out = self._keep_out(denied)
                self._plane.abort()
                if not kept_out:
                    raise
                self._memory.reports.again()
                continue
            except IdMismatch:
                raise  # nothing was sent yet
            except Abortable as error:
                raise UnknownOutcome(str(error)) from error
            self._observer.on_committed({}, done.positions, 0.0)
            self._start.check_origins()
            return

    def _decide(self) -> None:
        """Do what operators have decided of stopped partitions, and check these again."""
        self._decisions.look()
        for at, decision in self._decisions.due().items():
            try:
                done = self._decisions.act(self.positions, at, decision)
            except IdMismatch as mismatch:
                self._abort(mismatch)
                self._decide_failed(mismatch.answers, mismatch.at_target)
            except (NotAllowed, Abortable) as error:
                self._decisions.failed(decision, error)
                if isinstance(error, NotAllowed):
                    self._keep_out(error)
                self._abort(error)
            else:
                if done:
                    self._commit_positions(CommitKind.ADMITTED)

    def _decide_waiting(self) -> None:
        """Decide again over waiting partitions whose time has come; those that can go on do."""
        due = [*self._throttling.not_paused(self._partitions.due()), *self._timestamps.over()]
        if due and self._start.decide_again(due):
            self._commit_positions(CommitKind.ADMITTED)
            self._partitions.read_anew = True

    def _decide_failed(
        self, answers: Mapping[Partition, str | ReplicatorError], at_target: Collection[Partition] = ()
    ) -> None:
        """Decide anew, over each by itself, of partitions that failed or whose ids are others.

        `at_target`: those whose answers are of the target.
        """
        again: list[Partition] = []
        truncated: dict[Partition, Incident] = {}
        reads_on, ahead = self._policy.reads_on, self.positions.is_ahead  # repairs read from elsewhere
        for at, answer in answers.items():
            if isinstance(answer, Incident) and answer.name in AT_ONCE:
                self._start.stop(at, answer)
            elif isinstance(answer, Incident) and answer.name == "record_too_large":
                self._refusals.stop_before(at, answer)
            elif isinstance(answer, Incident) and answer.name == TRUNCATED and not (reads_on and ahead(at, answer)):
                truncated[at] = answer
            elif isinstance(answer, Incident | str):
                again.append(at)
            else:
                self._start.wait(at, answer, Reason.TARGET_MISSING if at in at_target else Reason.SOURCE_MISSING)
        if again or truncated:
            self._start.decide_again([*again, *truncated])
            for at, incident in truncated.items():
                if not isinstance(self._partitions[at].state, Stopped):  # it can't be found out a second time
                    self._start.stop(at, incident)
            self._commit_positions(CommitKind.ADMITTED)
        self._partitions.read_anew = True

    def _denied(self, denied: NotAllowed) -> None:
        if not self._keep_out(denied):
            for at in self.positions.copying:  # a right of the whole lane: its transactional id, its group, its claims
                self._start.wait(at, denied)
        self._abort(denied)

    def _keep_out(self, denied: NotAllowed) -> bool:
        """Make the partitions wait that a missing right stops; return whether any was found that didn't wait before."""
        if not self._policy.waits:
            raise denied
        return self._start.keep_out(denied)

    def _stopped_by(self, error: ReplicatorError, incidents: Iterable[Incident], *, lasting: bool = False) -> None:
        """Stop the partitions whose incidents acknowledgements or records showed. Other incidents go to the driver."""
        for incident in incidents:
            at = Partition(incident.topic, incident.partition)
            if at not in self.positions.copying:
                raise incident
            self._start.stop(at, incident, lasting=lasting)
        self._abort(error)

    def _abort_and_wait(self, error: ReplicatorError) -> None:
        """Abort what may come again at once: the more aborts there were in a row, the longer the wait."""
        self._abort(error)
        pause_s = self._aborts.next_s()
        if self._aborts.failures > 1:
            self._clock.wait(self._stop, pause_s)

    def _abort(self, error: ReplicatorError) -> None:
        """Abort; the source is read anew after that (invariant 5). Then compare the target with the positions, before
        the same producer's next commit could make records visible whose marker was lost."""
        self._partitions.read_anew = True
        written = self._plane.written()
        self._readiness.ended(written.partitions)
        self._plane.abort()
        if written.records and self._stop.is_set():
            self.given_up = error
        self._observer.aborted(type(error).__name__)
        # What the client says first may not be the cause: advice comes with the incident that is found.
        reason = f"{error.name}: {error.detail}" if isinstance(error, Incident) else str(error)
        self._log.warning("aborted", reason=reason, kind=type(error).__name__)
        if written.records:
            self._start.check_target(self.positions.copying)
