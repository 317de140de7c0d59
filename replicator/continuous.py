"""A flow that runs on an engine instead of the daemon's threads: the rounds of a backfill, repeated until stopped.

Each round copies what is there, to the read_committed ends seen at its beginning. What is new takes up to a round
longer than with the daemon; what can be lost or doubled is the same: nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

import structlog

from replicator import control, ranges, sighting
from replicator.admin import TopicInfo
from replicator.bounded import RangeDone
from replicator.config import Config, Flow
from replicator.engine import Engine, EngineGone, Standing
from replicator.errors import ConfigError, Incident, Retriable, Superseded, UnknownOutcome, Unreachable
from replicator.generation import Generation, Kind
from replicator.names import process_name
from replicator.planes.contract import Partition
from replicator.planes.records.reading import Reader
from replicator.ranges import Plan, Range, Seen
from replicator.rounds import Rounds
from replicator.setup import Setup, occupied
from replicator.sighting import Sighted
from replicator.topics import ControlPlane

OFFSETS_MAX = 1_000_000  # of one range: bounds how long a stop, or a new partition, waits for a round
PAUSE_S_MAX = 5.0


class Continuous:
    """Runs one flow in rounds. `stop` may be called from any thread, but no signal handler."""

    def __init__(
        self, flow: Flow, config: Config, log: structlog.stdlib.BoundLogger, *, take_over: bool = False
    ) -> None:
        """`take_over`: also from a backfill or repair that has the flow."""
        self._flow, self._config, self._take_over = flow, config, take_over
        self._log = log.bind(flow=flow.name)
        self._asked = threading.Event()
        self._missing: Incident | None = None

    def stop(self) -> None:
        """Ask for a clean stop: the round is cancelled, and the flow handed over to the daemon's next generation."""
        self._asked.set()

    def run(self, engine: Engine) -> int:
        """Run until stopped; the exit code: 4 when incidents wait for a decision. Raises what can't be waited out."""
        with ControlPlane(self._flow) as plane:
            setup = Setup(self._flow, self._config, plane, process_name(), self._log, self._asked)
            infos, missing = setup.begin()
            self._note_missing(missing)
            rounds = Rounds(self._flow, setup, plane, Told(self._log), self._log, self._asked)
            try:
                rounds.open(Kind.ROUNDS, infos, self._may_replace)
                self._repeat(engine, setup, rounds, infos)
            except Superseded:
                raise
            except BaseException:
                rounds.hand_over_anyway()
                raise
            rounds.hand_over()
        return Incident.exit_code if rounds.incidents or self._missing else 0

    def _note_missing(self, missing: Incident | None) -> None:
        """Tell of topics that the flow names and that aren't there, once for as long as they aren't."""
        if missing is not None and str(missing) != str(self._missing):
            self._log.error("incident", name=missing.name, detail=missing.detail, topic=missing.topic)
        self._missing = missing

    def _may_replace(self, found: Generation) -> None:
        if found.kind.bounded and not self._take_over:
            raise Superseded(occupied(self._flow, found))

    def _repeat(self, engine: Engine, setup: Setup, rounds: Rounds, infos: Mapping[str, TopicInfo]) -> None:
        """Rounds, and from time to time a look for new topics and partitions: those need lanes of their own."""
        limits, failures, stale = self._flow.limits, 0, False
        look_s = time.monotonic() + limits.discovery_interval_ms / 1000
        while not self._asked.is_set():
            try:
                if stale or time.monotonic() >= look_s:
                    found, missing = setup.listing()
                    self._note_missing(missing)
                    rounds.check()
                    look_s = time.monotonic() + limits.discovery_interval_ms / 1000
                    if stale or _shape(found) != _shape(infos):
                        stale = True  # until it is open, nothing may run with what was known before
                        rounds.open(Kind.ROUNDS, found, rounds.check_own)
                        infos, stale = found, False
                idle = not self._once(engine, rounds)
                failures = 0
            except EngineGone:
                raise
            except (
                Unreachable,
                Retriable,
                UnknownOutcome,
                Incident,
                ConfigError,
            ) as error:  # of a topic, or for a while
                failures += 1
                pause_s = min(PAUSE_S_MAX, 0.1 * 2 ** min(failures, 10))
                self._log.warning("round_failed", kind=type(error).__name__, reason=str(error))
                self._asked.wait(pause_s)
                continue
            if rounds.incidents and idle and rounds.incidents.keys() >= rounds.routes.keys():
                return  # nothing of it can go on: somebody should look at it
            if idle:
                self._asked.wait(self._flow.commit.interval_ms / 1000)

    def _once(self, engine: Engine, rounds: Rounds) -> bool:
        """Everything that is there now; whether that was anything."""
        seen = {at: found for at, found in rounds.sight(stable=True).items() if at not in rounds.incidents}
        plan = self._plan(seen)
        for at, gone in plan.lost.items():
            rounds.stop(at, gone)
        rounds.run(engine, plan, seen, None)
        return bool(plan.ranges)

    def _plan(self, seen: Mapping[Partition, Sighted]) -> Plan:
        begins: Mapping[Partition, int] = {}
        if any(found.position is None for found in seen.values()):
            source, target = Reader(self._flow, self._flow.source), Reader(self._flow, self._flow.target)
            try:
                begins = sighting.starts(self._flow, seen, control.read(self._flow, target), source)
            finally:
                source.close()
                target.close()
        known = {at: Seen(f.log_start, f.end, f.position, begins.get(at)) for at, f in seen.items()}
        return ranges.plan(known, OFFSETS_MAX)


def _shape(infos: Mapping[str, TopicInfo]) -> dict[str, tuple[int, str]]:
    return {name: (info.partitions, info.topic_id) for name, info in infos.items()}


class Told:
    """An observer that tells the log."""

    def __init__(self, log: structlog.stdlib.BoundLogger) -> None:
        self._log = log

    def planned(self, generation: int, ranges: Sequence[Range], standings: Mapping[Partition, Standing]) -> None:
        """See the protocol."""

    def round_began(self, number: int, tasks: int) -> None:
        """See the protocol."""
        self._log.debug("round_began", round=number, tasks=tasks)

    def moved(self, standings: Mapping[Partition, Standing]) -> None:
        """See the protocol."""

    def unseen(self, reason: str) -> None:
        """See the protocol."""
        self._log.warning("positions_unseen", reason=reason)

    def round_ended(self, number: int, ranges: Sequence[Range], done: Sequence[RangeDone]) -> None:
        """See the protocol."""
        positions = {str(answer.at): answer.position for answer in done if answer.position >= 0}
        records = sum(answer.records for answer in done)
        self._log.info("committed", round=number, records=records, positions=positions)
