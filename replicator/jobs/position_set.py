"""Sets positions of a flow that stands still, as an operator has decided: `eos-replicate position set`.

In two steps: `plan` says what would become of each partition, by what both clusters say, to be shown (`position_plan`);
`apply` does it in one transaction (`position_change`), if all is as it was shown. From a worker that copies
(`take_over`) the flow is taken first: then it is done by what stands behind the fence, if nobody but the flow itself
has changed anything.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import structlog

from replicator.config import Config, Delivery, Flow
from replicator.failpoints import Failpoint, nothing
from replicator.flow.occupied import check_frozen, check_topics
from replicator.jobs.clients import JobClients
from replicator.jobs.job_generation import check_free_now
from replicator.jobs.position_change import (
    ComparedSides,
    FencedAttempt,
    MovedPosition,
    PositionChange,
    begun_anew,
    now_ms,
)
from replicator.jobs.position_plan import (
    PlannedPosition,
    PositionFacts,
    check_grown,
    look,
    plan_position,
)
from replicator.kafka.offset_reader import OffsetReader
from replicator.lane.plan import LanePlan
from replicator.model.checkpoint import NOBODY, Position, without_map
from replicator.model.commands import Command
from replicator.model.partition import Partition
from replicator.state.claims import Claims
from replicator.state.decisions import WHY_CHARACTERS_MAX, AdoptedSides, NotDecided, Objection, OperatorDecision
from replicator.state.exported_positions import WantedPosition
from replicator.state.generation import Generation, Kind
from replicator.state.occurrences import ID_DIGITS, Closing, Ending, Occurrence
from replicator.state.signed_gaps import POSITION_SET

PlannedPositions = Mapping[Partition, PlannedPosition]
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
        self._log = log.bind(flow=flow.name)
        self._ids = {it.source: uuid.uuid4().hex[:ID_DIGITS] for it in request.wanted}
        self._tokens = {it.source: uuid.uuid4().hex for it in request.wanted}
        self._newest, self._source_cluster = -1, ""  # generation of the control topic, and the source's id, as shown
        self.done: PlannedPositions = {}
        """What was done, once `apply` has returned: it may be more, or less, than was shown of a flow that copied."""

    def plan(self) -> PlannedPositions:
        """Say what would become of each partition. Changes nothing.

        Raises NotDecided; TakenOver where somebody runs the flow, FlowFrozen where it was failed over; Incident of the
        flow's own topics; Unreachable, NotAllowed, Retriable.
        """
        with JobClients(self._flow) as clients:
            source, _ = clients.plane.connect()
            control, claims = clients.state.control_if_any(), clients.state.claims_if_any()
            if control is None or not control.begun or claims is None:
                raise NotDecided(Objection.NO_POSITION, f"flow {self._flow.name} has never run, or its topics are lost")
            check_frozen(self._flow, control)
            if control.open is not None:
                self._check_free(clients, control.open)
            self._newest, self._source_cluster = control.newest, source.cluster_id
            return self._planned(clients, source.cluster_id, control.newest, claims)

    def _planned(self, clients: JobClients, source_cluster: str, newest: int, claims: Claims) -> PlannedPositions:
        """Make the plan as things stand now, while others may write."""
        with closing(OffsetReader(self._flow, stable=False)) as reader:
            facts = self._look(clients, reader, claims, fenced=False)
        return self._plan_each(facts, source_cluster, newest)

    def _check_free(self, clients: JobClients, found: Generation) -> None:
        check_topics(self._flow, found.failed_over, {at.topic for at in self._ids})
        infos = clients.plane.list_source(configs=False)
        check_free_now(self._flow, clients, infos, found, Kind.POSITION_SET, take_over=self._request.take_over)

    def _look(
        self, clients: JobClients, reader: OffsetReader, claims: Claims, *, fenced: bool
    ) -> dict[Partition, PositionFacts]:
        wanted, target = list(self._ids), clients.plane.target_logs
        moving = self._request.take_over and not fenced
        return look(self._flow, reader, clients.source, target, wanted, claims, fenced=fenced, moving=moving)

    def _plan_each(
        self, facts: Mapping[Partition, PositionFacts], source_cluster: str, newest: int
    ) -> PlannedPositions:
        wanted = self._request.wanted
        return {it.source: plan_position(self._flow, it, facts[it.source], source_cluster, newest) for it in wanted}

    def apply(self, shown: PlannedPositions) -> int:
        """Do what `plan` has said, if all is as it was `shown`, or has only gone on as a moving flow does; return the
        generation under which it was done.

        Raises as `plan`. TakenOver: another generation was begun before it was done; nothing was.
        """
        change = PositionChange(self._flow, self._config, self._ids.values(), self._log, self._failpoint)
        return change.run(
            lambda clients, found: self._check_replaced(clients, found, shown),
            lambda fenced: self._attempt(fenced, shown),
        )

    def _check_replaced(self, clients: JobClients, found: Generation, shown: PlannedPositions) -> None:
        """Check that the open generation may be replaced. From a worker that copies it is taken only if the same would
        be refused for nothing that is known now: it would be stopped in vain."""
        self._check_free(clients, found)
        if not any(it.moving for it in shown.values()):
            return
        if found.number != self._newest:
            why = f"flow {self._flow.name}: generation {found.number} was begun since it was shown"
            raise NotDecided(Objection.OUTDATED, f"{why}, which was under {self._newest}")
        _check_same(self._planned(clients, self._source_cluster, found.number, clients.state.claims()), shown)

    def _attempt(self, fenced: FencedAttempt, shown: PlannedPositions) -> None:
        clients, claims = fenced.clients, fenced.claims
        facts = self._look(clients, fenced.reader, claims, fenced=True)
        now = self._plan_each(facts, fenced.plan.source_cluster, fenced.newest)
        _check_same(now, shown)
        check_grown(shown, now, clients.plane.target_logs)
        moved = [made for it in now.values() if (made := self._moved(fenced.plan, it, claims)) is not None]
        self.done = now
        if moved:  # a position that was moving may have come to stand there
            fenced.commit(moved, [_sides(it) for it in now.values()])
        for at, it in now.items():
            if it.command is None:
                continue
            self._log.info(
                "position_set",
                topic=at.topic,
                partition=at.partition,
                before=it.before.offset,
                after=it.after,
                by=self._request.by,
                why=self._request.why,
                occurrence=self._ids[at],
            )

    def _moved(self, plan: LanePlan, it: PlannedPosition, claims: Claims) -> MovedPosition | None:
        """Return what is committed of one partition; None where it stands there already."""
        if it.command is None:
            return None
        at_ms = now_ms(it.target, claims)
        occurrence = self._closed(plan, it, at_ms)
        if it.command is Command.SKIP:
            return MovedPosition(it.target, _forward(self._flow, it, plan.generation, at_ms), (occurrence.encode(),))
        return begun_anew(plan, _sides(it), it.claim, it.after, occurrence)

    def _closed(self, plan: LanePlan, it: PlannedPosition, at_ms: int) -> Occurrence:
        """Make the record of it, in the form of an incident that was decided about: `status` and reconcile read it
        there.
        """
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


def _check_same(now: PlannedPositions, shown: PlannedPositions) -> None:
    """Raise NotDecided where something has changed that was not to be expected."""
    for at, it in now.items():
        if why := it.outdated(shown[at]):
            raise NotDecided(Objection.OUTDATED, f"{at}: {why}")


def _sides(it: PlannedPosition) -> ComparedSides:
    return ComparedSides(it.source, it.target, it.source_log, it.target_log)


def _forward(flow: Flow, it: PlannedPosition, generation: int, now_ms: int) -> Position:
    """Return the position behind a signed gap: as a lane's, see `LanePositions.skipped`, and released. Its transaction
    has no block of the offset map, so that begins anew there."""
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
