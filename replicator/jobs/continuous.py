"""A flow that runs on an engine instead of the daemon's threads: what a backfill does, in rounds until it is stopped.

Each round copies what is there, to the read_committed ends at its beginning. What is new takes up to a round
longer than with the daemon; what can be lost or doubled is the same: nothing.

Incidents are found, written down and ended by the lanes of tasks, as in the daemon. A partition that one has stopped
gets no range until an operator has decided about it (`jobs.decided`), or the incident was ended by the lane, which is
kept alive.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence

import structlog

from replicator.backoff import Backoff
from replicator.config import Config, Flow
from replicator.flow.discovery import FlowNotes
from replicator.flow.listing import Listing
from replicator.flow.occupied import occupied
from replicator.flow.setup import Setup
from replicator.jobs import partition_state, ranges
from replicator.jobs.clients import JobClients
from replicator.jobs.decided import DecidedPartitions
from replicator.jobs.engine import Engine, EngineGone, PartitionProgress
from replicator.jobs.partition_state import PartitionOffsets
from replicator.jobs.range_copy import RangeDone
from replicator.jobs.range_job import RangeJob
from replicator.jobs.ranges import Plan, Range
from replicator.model.errors import Incident, NotAllowed, Retriable, TakenOver, UnknownOutcome, Unreachable
from replicator.model.names import process_name
from replicator.model.partition import Partition
from replicator.state.claims import Claims
from replicator.state.generation import Generation, Kind

OFFSETS_MAX = 1_000_000  # of one range
PAUSE_S, PAUSE_S_MAX = 0.1, 5.0
SUMMARY_S = 30.0  # between two lines about what was copied


class Continuous:
    """Runs one flow in rounds. `stop` may be called from any thread, but no signal handler."""

    def __init__(
        self, flow: Flow, config: Config, log: structlog.stdlib.BoundLogger, *, take_over: bool = False
    ) -> None:
        """`take_over`: also from a backfill or repair that has the flow."""
        self._flow, self._config, self._take_over = flow, config, take_over
        self._log = log.bind(flow=flow.name)
        self._asked = threading.Event()
        self._notes = FlowNotes(self._log)

    def stop(self) -> None:
        """Ask for a clean stop: its tasks are cancelled, and the flow handed over to the daemon's next generation."""
        self._asked.set()

    def run(self, engine: Engine) -> int:
        """Run until stopped; the exit code: 4 when incidents wait for a decision. Raises what can't be waited out."""
        with JobClients(self._flow) as clients:
            setup = Setup(self._flow, self._config, clients.plane, process_name(), self._log, self._asked)
            listing = setup.begin()
            self._notes.note_listing(listing)
            observer = LogObserver(self._log)
            job = RangeJob(self._flow, setup, clients, observer, self._log, self._asked, waits=True)
            rounds = Rounds(self._flow, setup, clients, job, observer, self._notes, self._log, self._asked)
            try:
                job.open(Kind.ROUNDS, listing, self._may_replace)
                rounds.run(engine, listing)
            except TakenOver:
                raise
            except BaseException:
                job.hand_over_after_error()
                raise
            finally:
                observer.sum_up()
            job.hand_over()
        return Incident.exit_code if job.incidents or self._notes.incidents else 0

    def _may_replace(self, found: Generation) -> None:
        if found.kind.bounded and not self._take_over:
            raise TakenOver(occupied(self._flow, found))


class Rounds:
    """The rounds of an open generation, one after the other, and from time to time the topics listed again."""

    def __init__(
        self,
        flow: Flow,
        setup: Setup,
        clients: JobClients,
        job: RangeJob,
        observer: LogObserver,
        notes: FlowNotes,
        log: structlog.stdlib.BoundLogger,
        asked: threading.Event,
    ) -> None:
        self._flow, self._setup, self._clients, self._job = flow, setup, clients, job
        self._observer, self._notes, self._log, self._asked = observer, notes, log, asked
        self._listing = Listing({})
        self._stale = False  # another generation is needed, and not open yet: nothing may run with the one before
        self._listed_s = time.monotonic()
        self._unread: dict[Partition, str] = {}
        self._decided = DecidedPartitions(flow, clients, log)
        self._claims_s = float("-inf")  # when claims may be read for `_ended`

    def run(self, engine: Engine, listing: Listing) -> None:
        """Run rounds until asked to stop, or nothing can go on. Raises TakenOver, EngineGone, Incident of the control
        topic.
        """
        self._listing = listing
        backoff = Backoff(PAUSE_S, PAUSE_S_MAX)
        interval_s = self._flow.limits.discovery_interval_ms / 1000
        while not self._asked.is_set():
            if self._stale or time.monotonic() >= self._listed_s + interval_s:
                self._check_generation()
            try:
                if self._stale or time.monotonic() >= self._listed_s + interval_s:
                    self._discover()
                idle = not self._round(engine)
                backoff.reset()
            except EngineGone:
                raise
            except Incident as incident:
                self._notes.note_incident(incident)
                self._asked.wait(backoff.next_s())
                continue
            except (Unreachable, Retriable, UnknownOutcome, NotAllowed) as error:
                self._log.warning("round_failed", kind=type(error).__name__, reason=str(error))
                self._asked.wait(backoff.next_s())
                continue
            if idle and self._waits_for_decision():
                return
            if idle:
                self._asked.wait(self._flow.commit.interval_ms / 1000)

    def _waits_for_decision(self) -> bool:
        """Tell whether incidents stop all partitions, and an operator has still to decide about each of them."""
        stopped = self._job.incidents
        return bool(stopped) and stopped.keys() >= self._job.routes.keys() and not self._decided.left

    def _check_generation(self) -> None:
        """Check that no other generation is open, which a round without tasks can't notice."""
        try:
            self._job.check_open()
        except (Unreachable, Retriable, NotAllowed) as error:
            self._log.warning("generation_not_checked", reason=str(error))

    def _discover(self) -> None:
        """List the topics again. New topics and partitions need a generation in which they have lanes of their own."""
        found = self._setup.listing()
        self._notes.note_listing(found)
        if self._stale or _shape(found) != _shape(self._listing):
            self._stale = True
            self._job.open(Kind.ROUNDS, found, self._job.check_own)
            self._listing, self._stale = found, False
        else:
            self._job.route_again(found)
        self._listed_s = time.monotonic()

    def _round(self, engine: Engine) -> bool:
        """Copy everything that is there now; return whether that was anything."""
        job = self._job
        read = job.read_offsets(stable=True)
        for at, error in read.errors.items():
            if self._unread.get(at) != str(error):
                self._log.warning("waiting", topic=at.topic, partition=at.partition, detail=str(error))
        self._unread = {at: str(error) for at, error in read.errors.items()}
        decided = self._decided.due()
        job.try_again(decided)
        job.try_again(self._ended())
        left_out = job.incidents.keys() | job.waiting
        offsets = {at: found for at, found in read.found.items() if at not in left_out}
        plan = self._plan(offsets, decided)
        job.run(engine, plan, offsets, None)
        self._observer.round_ended()
        return bool(plan.ranges)

    def _ended(self) -> Collection[Partition]:
        """Find the stopped partitions whose incident isn't open any more: the lane that kept their positions alive has
        found its cause gone, or has acted on what was decided. What only copying shows stays open."""
        now_s = time.monotonic()
        if not self._job.looked or now_s < self._claims_s:
            return ()
        self._claims_s = now_s + self._flow.limits.discovery_interval_ms / 1000
        try:  # without what an open transaction hides: a task may be what ends it
            claims = self._clients.state.both_if_any()[1]() or Claims({}, ())
        except (Retriable, Unreachable):
            return ()
        found = self._job.looked - {it.source for it in claims.occurrences if it.is_open}
        self._job.looked -= found
        return found

    def _plan(self, offsets: Mapping[Partition, PartitionOffsets], decided: Collection[Partition]) -> Plan:
        """Plan the round. Partitions that have lost what comes next, and those that were decided about, get a task,
        whatever there is to copy: its lane does what follows.
        """
        begins: Mapping[Partition, int] = {}
        if any(found.position is None for found in offsets.values()):
            control = self._clients.state.control()
            begins = partition_state.first_offsets(self._flow, offsets, control, self._clients.source)
        plan = ranges.plan(offsets, OFFSETS_MAX, begins=begins)
        planned = {cut.at for cut in plan.ranges}
        more: list[Range] = []
        for at in sorted({*plan.lost, *(offsets.keys() & decided)} - planned):
            start, end = plan.bounds[at]
            more.append(Range(at, min(start, end), min(end, max(start, offsets[at].log_start) + OFFSETS_MAX)))
        return plan._replace(ranges=[*plan.ranges, *more], lost={})


def _shape(listing: Listing) -> dict[str, tuple[int, str]]:
    return {name: (info.partitions, info.topic_id) for name, info in listing.topics.items()}


class LogObserver:
    """Implements `engine.Observer`: sums up in the log, now and then, what rounds have copied."""

    def __init__(self, log: structlog.stdlib.BoundLogger) -> None:
        self._log = log
        self._round = 0
        self._positions = dict[str, int]()  # not logged yet
        self._records = self._bytes = self._of_round = 0  # the same; the last only of this round
        self._summed_up_s = time.monotonic()

    def planned(
        self, generation: int, ranges: Sequence[Range], progress: Mapping[Partition, PartitionProgress]
    ) -> None:
        """Write one line for debugging: there is a plan for each round."""
        self._log.debug("round_began", round=self._round, ranges=len(ranges))

    def moved(self, progress: Mapping[Partition, PartitionProgress]) -> None:
        """Ignore positions, which are logged when ranges have ended."""

    def positions_unknown(self, reason: str) -> None:
        """Log a warning."""
        self._log.warning("positions_unknown", reason=reason)

    def answered(self, cut: Range, done: RangeDone) -> None:
        """Note what the next lines say."""
        self._records += done.records
        self._of_round += done.records
        self._bytes += done.bytes
        if done.position >= 0:
            self._positions[str(done.at)] = done.position
        self.sum_up(SUMMARY_S)

    def round_ended(self) -> None:
        """Write one line for debugging, as a lane logs a commit. The next round has another number."""
        if self._positions:
            self._log.debug("committed", round=self._round, records=self._of_round, positions=self._positions)
        self._of_round, self._positions = 0, {}
        self._round += 1
        self.sum_up(SUMMARY_S)

    def sum_up(self, after_s: float = 0.0) -> None:
        """Write a summary if there are records that none has told of, and the last one was so long ago."""
        now_s = time.monotonic()
        seconds = now_s - self._summed_up_s
        if not self._records or seconds < after_s:
            return
        rate = round(self._records / seconds, 1) if seconds else 0.0
        self._log.info("summary", round=self._round, records=self._records, bytes=self._bytes, records_per_s=rate)
        self._records, self._bytes, self._summed_up_s = 0, 0, now_s
