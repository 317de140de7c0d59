"""Sets positions of a flow that stands still, as an operator has decided: `eos-replicate position set`.

    1 plan       what would become of each partition, by what both clusters say: to be shown        (position_plan)
    2 open       a generation of its own with one lane: fences whatever ran the flow before
    3 set        initialise the lane's id, read the generation and the positions again: what isn't as it was shown is
                 refused. All positions in one transaction, with the record of what was decided
    4 hand over  the daemon's next generation fences what may still run of this one

Invariants
- Invariant 1: fence, then read, then write, at each attempt. An attempt whose outcome is unknown is found, or not, in
  the claims topic behind the next fence.
- Invariant 12: the positions and the closed occurrences that say who has moved them, from where to where and why stand
  in one transaction: it was done or it wasn't, wherever this process dies. The ids of all topics are asked for before
  its end (invariant 8).
- Whoever begins another generation meanwhile fences this one: a daemon's start waits for nothing that may have died.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import structlog

from replicator.backoff import Backoff
from replicator.config import Config, Delivery, Flow
from replicator.failpoints import Failpoint, nothing
from replicator.flow.setup import Setup
from replicator.jobs.clients import JobClients
from replicator.jobs.job_generation import check_free_now
from replicator.jobs.position_plan import (
    PlannedPosition,
    PositionFacts,
    check_grown,
    judge,
    look,
)
from replicator.kafka import properties
from replicator.kafka.offset_reader import OffsetReader
from replicator.kafka.producer import TransactionalProducer
from replicator.lane.plan import LanePlan
from replicator.lane.start_decision import Facts, decide
from replicator.model import checkpoint, names
from replicator.model.checkpoint import NOBODY, Position, without_map
from replicator.model.commands import Command
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
from replicator.model.partition import Partition
from replicator.model.route import Route
from replicator.state.claims import Claims
from replicator.state.decisions import WHY_CHARACTERS_MAX, AdoptedSides, NotDecided, Objection, OperatorDecision
from replicator.state.exported_positions import WantedPosition
from replicator.state.generation import Generation, Kind, LaneAssignment, check_generation
from replicator.state.occurrences import ID_DIGITS, Closing, Ending, Occurrence
from replicator.state.signed_gaps import POSITION_SET

ONE_LANE = LaneAssignment(1)
PAUSE_S, PAUSE_S_MAX = 0.1, 1.0
Plan = Mapping[Partition, PlannedPosition]
"""By source partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetRequest:
    """Which positions `by` wants, and `why`. `take_over`: also from a worker that holds the flow."""

    wanted: Sequence[WantedPosition]
    by: str
    why: str
    take_over: bool = False


class PositionSet:
    """One call of the command, in two steps: `plan` changes nothing, `apply` does what that has said."""

    def __init__(
        self,
        flow: Flow,
        config: Config,
        request: SetRequest,
        log: structlog.stdlib.BoundLogger,
        failpoint: Failpoint = nothing,
    ) -> None:
        self._flow, self._config, self._request, self._failpoint = flow, config, request, failpoint
        self._log, self._by = log.bind(flow=flow.name), process_name()
        self._ids = {it.source: uuid.uuid4().hex[:ID_DIGITS] for it in request.wanted}
        self._tokens = {it.source: uuid.uuid4().hex for it in request.wanted}

    def plan(self) -> Plan:
        """Say what would become of each partition. Changes nothing.

        Raises NotDecided; TakenOver where somebody runs the flow; Incident of the flow's own topics; Unreachable,
        NotAllowed, Retriable.
        """
        with JobClients(self._flow) as clients:
            source, _ = clients.plane.connect()
            control, claims = clients.state.control_if_any(), clients.state.claims_if_any()
            if control is None or not control.begun or claims is None:
                raise NotDecided(Objection.NO_POSITION, f"flow {self._flow.name} has never run, or its topics are lost")
            if control.open is not None:
                self._check_free(clients, control.open)
            with closing(OffsetReader(self._flow, stable=False)) as reader:
                facts = self._look(clients, reader, claims, fenced=False)
            return self._judged(facts, source.cluster_id, control.newest)

    def _check_free(self, clients: JobClients, found: Generation) -> None:
        infos = clients.plane.list_source(configs=False)
        check_free_now(self._flow, clients, infos, found, Kind.POSITION_SET, take_over=self._request.take_over)

    def _look(
        self, clients: JobClients, reader: OffsetReader, claims: Claims, *, fenced: bool
    ) -> dict[Partition, PositionFacts]:
        wanted, target = list(self._ids), clients.plane.target_logs
        return look(self._flow, reader, clients.source, target, wanted, claims, fenced=fenced)

    def _judged(self, facts: Mapping[Partition, PositionFacts], source_cluster: str, newest: int) -> Plan:
        wanted = self._request.wanted
        return {it.source: judge(self._flow, it, facts[it.source], source_cluster, newest) for it in wanted}

    def apply(self, shown: Plan) -> int:
        """Do what `plan` has said, if all is as it was `shown`; return the generation under which it was done.

        Raises as `plan`. TakenOver: another generation was begun before it was done; nothing was.
        """
        with JobClients(self._flow) as clients:
            setup = Setup(self._flow, self._config, clients.plane, self._by, self._log, threading.Event())
            listing = setup.begin()
            opened = setup.change(
                lambda changer: changer.begin(
                    Kind.POSITION_SET,
                    ONE_LANE,
                    listing.partitions,
                    lambda found: self._check_free(clients, found),
                    0,
                )
            )
            self._failpoint("position_set_opened")
            try:
                self._set(clients, setup.source_cluster, opened, shown)
            finally:
                self._hand_over(setup, listing.partitions, opened)
        return opened.number

    def _hand_over(self, setup: Setup, listing: Mapping[str, int], opened: Generation) -> None:
        """Open the daemon's next generation. Where that fails whoever starts the flow opens it."""

        def check_own(found: Generation) -> None:
            if found.number != opened.number:
                raise TakenOver(f"generation {found.number} ({found.kind.value}) has taken over from {opened.number}")

        try:
            setup.change(lambda changer: changer.ensure(LaneAssignment(self._flow.lanes), listing, check_own))
        except ReplicatorError as error:
            self._log.info("handed_over_later", generation=opened.number, reason=str(error))

    def _set(self, clients: JobClients, source_cluster: str, opened: Generation, shown: Plan) -> None:
        """Try until it is certain that it was done. Raises what can't pass."""
        backoff = Backoff(PAUSE_S, PAUSE_S_MAX)
        give_up_s = time.monotonic() + self._flow.limits.connect_timeout_ms / 1000
        while True:
            try:
                self._attempt(clients, source_cluster, opened, shown)
            except (Fenced, UnknownOutcome, Abortable, Retriable, Unreachable) as error:
                if time.monotonic() >= give_up_s:
                    raise
                self._log.info("position_set_tried_again", reason=str(error))
                time.sleep(backoff.next_s())
            else:
                return

    def _attempt(self, clients: JobClients, source_cluster: str, opened: Generation, shown: Plan) -> None:
        flow, state = self._flow, clients.state
        lane_id = names.lane_id(flow.name, opened.number, 0)
        producer = TransactionalProducer(flow, properties.position_producer(flow, lane_id), self._client_error)
        with closing(producer), closing(OffsetReader(flow)) as reader:
            producer.fence()
            claims = state.claims()
            if set(self._ids.values()) & {it.id for it in claims.occurrences}:
                return  # the attempt before was committed after all, whoever has the flow by now
            control = state.control()
            check_generation(control, opened.number, ONE_LANE)
            now = self._judged(self._look(clients, reader, claims, fenced=True), source_cluster, control.newest)
            changed = {at: why for at, it in now.items() if (why := it.outdated(shown[at]))}
            for at, why in changed.items():
                raise NotDecided(Objection.OUTDATED, f"{at}: {why}")
            check_grown(shown, now, clients.plane.target_logs)
            plan = self._lane_plan(opened, source_cluster)
            done = [made for it in now.values() if (made := self._moved(plan, it, claims)) is not None]
            self._failpoint("before_position_set")
            producer.begin()
            for moved in done:
                for key, value in moved.entries:
                    producer.write(names.claims_topic(flow.name), value, key, 0)
            producer.flush()
            offsets = {moved.target: checkpoint.written(moved.position) for moved in done}
            producer.send_positions(names.position_group(flow.name), offsets, reader.group_metadata)
            self._check_ids(clients, now)
            self._failpoint("before_end_position_set")
            producer.end()
            self._failpoint("after_position_set")
        for at, it in now.items():
            if it.command is None:
                continue
            self._log.warning(
                "position_set",
                topic=at.topic,
                partition=at.partition,
                before=it.before.offset,
                after=it.after,
                by=self._request.by,
                why=self._request.why,
                occurrence=self._ids[at],
            )

    def _check_ids(self, clients: JobClients, plan: Plan) -> None:
        """Invariant 8, before the transaction ends. Raises NotDecided, and what a cluster has answered instead."""
        source = clients.source.topic_ids({at.topic for at in plan})
        target = clients.plane.target_logs.topic_ids({it.target.topic for it in plan.values()})
        here, there = source.wait(), target.wait()
        for at, it in plan.items():
            for found, was in (
                (here[at.topic], it.source_log.topic_id),
                (there[it.target.topic], it.target_log.topic_id),
            ):
                if isinstance(found, ReplicatorError):
                    raise found
                if found != was:
                    raise NotDecided(Objection.OUTDATED, f"{at}: a topic's id was {was}, is {found}")

    def _lane_plan(self, opened: Generation, source_cluster: str) -> LanePlan:
        return LanePlan(
            flow=self._flow,
            generation=opened.number,
            lane=0,
            owner=self._by,
            source_cluster=source_cluster,
            routes=(),
            claim_partitions=1,
            assignment=ONE_LANE,
        )

    def _moved(self, plan: LanePlan, it: PlannedPosition, claims: Claims) -> _Moved | None:
        """What is committed of one partition; None where it stands there already."""
        if it.command is None:
            return None
        at_ms = _now_ms(it.target, claims)
        occurrence = self._closed(plan, it, at_ms)
        if it.command is Command.SKIP:
            return _Moved(it.target, _forward(self._flow, it, plan.generation, at_ms), (occurrence.encode(),))
        assert occurrence.closing is not None
        assert occurrence.closing.decision is not None
        log, to = it.source_log, it.target_log
        origins = NONE if it.claim is None else it.claim.origins
        route = Route(it.source, it.target, log.topic_id, to.topic_id, origins=origins)
        sides = occurrence.closing.decision.adopted
        facts = Facts(None, it.claim, log, to, it.after, plan.generation, sides)
        found = decide(plan, route, facts, at_ms)
        if found.position is None or found.claim is None:
            why = found.stopped or found.waits
            raise NotDecided(Objection.OUTDATED, f"{it.source} can't begin at {it.after}: {why}")
        released = replace(found.position, evidence=replace(found.position.evidence, owner=NOBODY, committed_ms=at_ms))
        return _Moved(it.target, released, (found.claim.encode(), occurrence.encode()))

    def _closed(self, plan: LanePlan, it: PlannedPosition, at_ms: int) -> Occurrence:
        """The record of it, in the form of an incident that was decided about: `status` and reconcile read it there."""
        command = it.command
        assert command is not None
        moved = (it.before.offset, it.after)
        sides = AdoptedSides(
            source_topic_id=it.source_log.topic_id,
            target_topic_id=it.target_log.topic_id,
            target_end=it.target_log.end,
        )
        decision = OperatorDecision(
            occurrence=self._ids[it.source],
            command=command,
            name=POSITION_SET,
            offset=it.before.offset,
            end=it.after,
            by=self._request.by,
            why=self._request.why[:WHY_CHARACTERS_MAX],
            at_ms=at_ms,
            token=self._tokens[it.source],
            adopted=sides if command is Command.ADOPT else None,
        )
        effect = Ending.ADOPTED if command is Command.ADOPT else Ending.SKIPPED
        return Occurrence(
            id=decision.occurrence,
            target=it.target,
            source=it.source,
            name=POSITION_SET,
            detail=f"the position was set from {moved[0]} to {moved[1]}",
            offset=it.before.offset,
            end=it.after,
            found_by=plan.owner,
            found_ms=at_ms,
            generation=plan.generation,
            at_ms=at_ms,
            topic_id=it.source_log.topic_id,
            closing=Closing(effect=effect, by=plan.owner, at_ms=at_ms, moved=moved, decision=decision),
        )

    def _client_error(self, text: str) -> None:
        self._log.info("client", detail=text)


@dataclass(frozen=True, slots=True)
class _Moved:
    """A target partition's position as it is committed, and the records of the claims topic that go with it."""

    target: Partition
    position: Position
    entries: tuple[tuple[bytes, bytes], ...]


def _forward(flow: Flow, it: PlannedPosition, generation: int, now_ms: int) -> Position:
    """The position behind a signed gap: as a lane's, see `LanePositions.skipped`, and released. Its transaction has no
    block of the offset map, so that begins anew there."""
    before = it.before.evidence
    exact = flow.delivery is Delivery.EXACTLY_ONCE
    evidence = replace(
        before,
        owner=NOBODY,
        generation=max(generation, before.generation),
        delivery=before.delivery if exact else flow.delivery.value,
        leader_epoch=-1,
        committed_ms=now_ms,
        moved_ms=now_ms,
        owned_ms=now_ms,
    )
    return without_map(Position(it.after, evidence))


def _now_ms(target: Partition, claims: Claims) -> int:
    """Now, but not before what was decided of this partition last, whoever's clock that was."""
    last = max((it.at_ms for it in claims.occurrences if it.target == target), default=0)
    return max(time.time_ns() // 1_000_000, last + 1)
