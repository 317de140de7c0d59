"""Sets positions of a flow that stands still, all in one transaction: for `position_set` and `mm2.adoption`.

    1 open       a generation of its own with one lane: fences whatever ran the flow before
    2 set        initialise the lane's id, read the generation again, then have `attempt` look at everything once more
                 and commit all positions in one transaction, with the record of what was decided
    3 hand over  the daemon's next generation fences what may still run of this one

Invariants
- Invariant 1: fence, then read, then write, at each attempt. An attempt whose outcome is unknown is found, or not, in
  the claims topic behind the next fence.
- Invariant 12: the positions and the closed occurrences that say who has set them, from where to where and why stand
  in one transaction: it was done or it wasn't, wherever this process dies. The ids of all topics are asked for before
  its end (invariant 8).
- Whoever begins another generation meanwhile fences this one: a daemon's start waits for nothing that may have died.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

import structlog

from replicator.config import Config, Flow
from replicator.failpoints import Failpoint
from replicator.flow.retrying import beside_others
from replicator.flow.setup import Setup
from replicator.jobs.clients import JobClients
from replicator.kafka import properties
from replicator.kafka.offset_reader import OffsetReader
from replicator.kafka.producer import TransactionalProducer
from replicator.kafka.topic_questions import raised
from replicator.lane.plan import LanePlan
from replicator.lane.start_decision import Facts, decide
from replicator.model import checkpoint, names
from replicator.model.checkpoint import NOBODY, Position
from replicator.model.errors import (
    Abortable,
    Fenced,
    ReplicatorError,
    Retriable,
    TakenOver,
    UnknownOutcome,
    Unreachable,
)
from replicator.model.names import process_name
from replicator.model.origins import NONE
from replicator.model.partition import LogEnds, Partition
from replicator.model.route import Route
from replicator.state.claims import Claim, Claims
from replicator.state.control import MayReplace, handing_back
from replicator.state.control_topic import check_generation
from replicator.state.decisions import NotDecided, Objection
from replicator.state.generation import Generation, Kind, LaneAssignment
from replicator.state.occurrences import Occurrence
from replicator.state.own_file import lanes_wanted

ONE_LANE = LaneAssignment(1)


@dataclass(frozen=True, slots=True)
class MovedPosition:
    """A target partition's position as it is committed, and the records of the claims topic that go with it."""

    target: Partition
    position: Position
    entries: tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class ComparedSides:
    """Both sides of a partition, as somebody has looked at them."""

    source: Partition
    target: Partition
    source_log: LogEnds
    target_log: LogEnds


@dataclass(frozen=True, slots=True)
class FencedAttempt:
    """What one attempt works with, behind its fence. `newest`: generation of the control topic."""

    clients: JobClients
    reader: OffsetReader
    claims: Claims
    newest: int
    plan: LanePlan
    producer: TransactionalProducer
    failpoint: Failpoint

    def commit(self, moved: Sequence[MovedPosition], sides: Sequence[ComparedSides]) -> None:
        """Commit these positions, if the topics of `sides` still have the ids that they had. Raises NotDecided where
        they haven't, what a cluster has answered instead, and what a transaction may end with."""
        flow, producer = self.plan.flow, self.producer
        self.failpoint("before_position_set")
        producer.begin()
        for one in moved:
            for key, value in one.entries:
                producer.write(names.claims_topic(flow.name), value, key, 0)
        producer.flush()
        self.failpoint("position_set_recorded")
        offsets = {one.target: checkpoint.written(one.position) for one in moved}
        producer.send_positions(names.position_group(flow.name), offsets, self.reader.group_metadata)
        self.failpoint("position_set_sent")
        self._check_ids(sides)
        self.failpoint("before_end_position_set")
        producer.end()
        self.failpoint("after_position_set")

    def _check_ids(self, sides: Sequence[ComparedSides]) -> None:
        """Check invariant 8, before the transaction ends."""
        source = self.clients.source.topic_ids({it.source.topic for it in sides})
        target = self.clients.plane.target_logs.topic_ids({it.target.topic for it in sides})
        here, there = source.wait(), target.wait()
        for it in sides:
            for found, was in (
                (here[it.source.topic], it.source_log.topic_id),
                (there[it.target.topic], it.target_log.topic_id),
            ):
                if raised(found) != was:
                    raise NotDecided(Objection.OUTDATED, f"{it.source}: a topic's id was {was}, is {found}")


class PositionChange:
    """One change of positions. `occurrences`: the ids of the records that say what was decided."""

    def __init__(
        self,
        flow: Flow,
        config: Config,
        occurrences: Collection[str],
        log: structlog.stdlib.BoundLogger,
        failpoint: Failpoint,
    ) -> None:
        self._flow, self._config, self._occurrences = flow, config, frozenset(occurrences)
        self._failpoint, self._log, self._by = failpoint, log, process_name()

    def run(
        self, may_replace: Callable[[JobClients, Generation], None], attempt: Callable[[FencedAttempt], None]
    ) -> int:
        """Have `attempt` commit; return the generation under which that was done.

        Args:
            may_replace: is shown the generation that is open, and raises if it must stay.
            attempt: looks at everything again and commits, or raises what forbids it. It is called again where the
                outcome isn't known, or what it has met may pass.

        Raises what both raise. TakenOver: another generation was begun before it was done; nothing was.
        """
        with JobClients(self._flow) as clients:
            setup = Setup(self._flow, self._config, clients.plane, self._by, self._log, threading.Event())
            listing = setup.begin()
            self._failpoint("position_set_begun")
            opened = self._open(setup, listing.partitions, partial(may_replace, clients))
            self._failpoint("position_set_opened")
            try:
                self._set(clients, setup.source_cluster, opened, attempt)
            except TakenOver as error:
                raise TakenOver(f"flow {self._flow.name}: {error}. No position was set") from error
            finally:
                self._hand_over(setup, listing.partitions, opened)
            self._failpoint("position_set_handed_over")
        return opened.number

    def _open(self, setup: Setup, listing: Mapping[str, int], may_replace: MayReplace) -> Generation:
        """Open the generation of the change. Who has initialised the control id meanwhile is ahead, and says what
        becomes of the flow: asked again, this command might take it from a worker that has just begun."""
        try:
            return setup.change(
                lambda changer: changer.begin(Kind.POSITION_SET, ONE_LANE, listing, may_replace, before=0)
            )
        except Fenced as error:
            why = "another command or worker has taken over meanwhile. No position was set"
            raise TakenOver(f"flow {self._flow.name}: {why}") from error

    def _hand_over(self, setup: Setup, listing: Mapping[str, int], opened: Generation) -> None:
        """Open the daemon's next generation. Where that fails whoever starts the flow opens it."""

        def check_own(found: Generation) -> None:
            if found.number != opened.number:
                raise TakenOver(f"generation {found.number} ({found.kind.value}) has taken over from {opened.number}")

        wanted = handing_back(partial(lanes_wanted, self._flow, listing))
        try:
            setup.change(lambda changer: changer.ensure(wanted, listing, check_own))
        except ReplicatorError as error:
            self._log.info("handed_over_later", generation=opened.number, reason=str(error))

    def _set(
        self,
        clients: JobClients,
        source_cluster: str,
        opened: Generation,
        attempt: Callable[[FencedAttempt], None],
    ) -> None:
        """Try until it is certain that it was done. Raises what can't pass."""
        passing = (Fenced, UnknownOutcome, Abortable, Retriable, Unreachable)
        beside_others(
            partial(self._attempt, clients, source_cluster, opened, attempt),
            may_pass=lambda error: isinstance(error, passing),
            say=lambda error: self._log.info("position_set_tried_again", reason=str(error)),
            others_s=self._flow.limits.connect_timeout_ms / 1000,
        )

    def _attempt(
        self,
        clients: JobClients,
        source_cluster: str,
        opened: Generation,
        attempt: Callable[[FencedAttempt], None],
    ) -> None:
        flow = self._flow
        lane_id = names.lane_id(flow.name, opened.number, 0)
        producer = TransactionalProducer(flow, properties.position_producer(flow, lane_id), self._client_error)
        with closing(producer), closing(OffsetReader(flow)) as reader:
            producer.fence()
            self._failpoint("position_set_fenced")
            claims = clients.state.claims()
            if self._occurrences & {it.id for it in claims.occurrences}:
                return  # the attempt before was committed after all, whoever has the flow by now
            control = clients.state.control()
            check_generation(control, opened.number, ONE_LANE)
            plan = LanePlan(
                flow=flow,
                generation=opened.number,
                lane=0,
                owner=self._by,
                source_cluster=source_cluster,
                routes=(),
                claim_partitions=1,
                assignment=ONE_LANE,
            )
            attempt(FencedAttempt(clients, reader, claims, control.newest, plan, producer, self._failpoint))

    def _client_error(self, text: str) -> None:
        self._log.info("client", detail=text)


def begun_anew(
    plan: LanePlan, sides: ComparedSides, claim: Claim | None, end: int, occurrence: Occurrence
) -> MovedPosition:
    """Make the position of a partition that goes on at source offset `end`, without an owner, with its claim and the
    occurrence whose decision says what of the target is adopted. Pure.

    Raises NotDecided where a lane couldn't begin there.
    """
    assert occurrence.closing is not None
    assert occurrence.closing.decision is not None
    log, to, at_ms = sides.source_log, sides.target_log, occurrence.at_ms
    route = Route(
        sides.source, sides.target, log.topic_id, to.topic_id, origins=NONE if claim is None else claim.origins
    )
    facts = Facts(None, claim, log, to, end, plan.generation, occurrence.closing.decision.adopted)
    found = decide(plan, route, facts, at_ms)
    if found.position is None or found.claim is None:
        why = found.stopped or found.waits
        raise NotDecided(Objection.OUTDATED, f"{sides.source} can't begin at {end}: {why}")
    released = replace(found.position, evidence=replace(found.position.evidence, owner=NOBODY, committed_ms=at_ms))
    return MovedPosition(sides.target, released, (found.claim.encode(), occurrence.encode()))


def now_ms(target: Partition, claims: Claims) -> int:
    """Return the time now, but not before what was decided of this partition last, whoever's clock that was."""
    last = max((it.at_ms for it in claims.occurrences if it.target == target), default=0)
    return max(time.time_ns() // 1_000_000, last + 1)
