"""Takes over what MirrorMaker 2 has copied: `eos-replicate adopt-mm2`.

In two steps: `plan` finds where the copy of each partition ends, and changes nothing; `apply` writes all positions in
one transaction (`position_change`), if both sides are as they were then.

Invariants
- Only a partition without a position and without a claim is adopted: who has begun to copy it goes on where he is.
- What can't be told of one partition keeps all of them from being adopted.
- MirrorMaker 2 doesn't run: its Connect group has no members, before and behind the fence, and no target has grown.
  Nothing of ours can fence it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import structlog

from replicator.config import Config, Flow
from replicator.failpoints import Failpoint, nothing
from replicator.flow.occupied import check_frozen
from replicator.jobs.clients import JobClients
from replicator.jobs.job_generation import check_free_now
from replicator.jobs.mm2.connect_offsets import CONNECTOR, ConnectOffsets, is_own_topic, read_offsets
from replicator.jobs.mm2.sides import AdoptedPartition, SidesReader
from replicator.jobs.partition_state import existing_targets
from replicator.jobs.position_change import (
    ComparedSides,
    FencedAttempt,
    MovedPosition,
    PositionChange,
    begun_anew,
    now_ms,
)
from replicator.kafka.offset_reader import OffsetReader
from replicator.kafka.topic_questions import TopicInfo, raised
from replicator.lane.plan import LanePlan
from replicator.model.commands import Command
from replicator.model.counting import counted, named
from replicator.model.errors import ConfigError
from replicator.model.partition import Partition
from replicator.state.claims import Claims
from replicator.state.decisions import WHY_CHARACTERS_MAX, AdoptedSides, NotDecided, Objection, OperatorDecision
from replicator.state.generation import Generation, Kind
from replicator.state.occurrences import ID_DIGITS, Closing, Ending, Occurrence
from replicator.state.signed_gaps import ADOPT_MM2

NAMED_MAX = 20
"""Partitions that are named in one refusal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionRequest:
    """What `by` asks for, and `why`.

    `connect_offsets`: Connect's offsets topic on the target; None: only the records tell. `connector` and `alias`:
    whose offsets, of which source (None: the only one). `group`: Connect's group, None: that of the dedicated mode.
    `compare`, `trust`: as of `SidesReader`. `take_over`: also from a worker that holds the flow.
    """

    by: str
    why: str
    connect_offsets: str | None = None
    connector: str = CONNECTOR
    alias: str | None = None
    group: str | None = None
    compare: int = 1_000
    trust: bool = False
    take_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionPlan:
    """What would be adopted, by source partition; `empty`: partitions of which nothing was copied, they begin as the
    flow says; `begun`: those that the flow has begun to copy, they go on where they are; `unselected`: source topics
    that MirrorMaker 2 has copied, and that the flow doesn't. `group`: the one that has no members."""

    partitions: Mapping[Partition, AdoptedPartition]
    empty: Sequence[Partition]
    begun: Sequence[Partition]
    unselected: Sequence[str]
    group: str


class Mm2Adoption:
    """One call of the command. Use from one thread."""

    def __init__(
        self,
        flow: Flow,
        config: Config,
        request: AdoptionRequest,
        log: structlog.stdlib.BoundLogger,
        failpoint: Failpoint = nothing,
    ) -> None:
        self._flow, self._config, self._request, self._failpoint = flow, config, request, failpoint
        self._log = log.bind(flow=flow.name)
        self._ids: dict[Partition, str] = {}
        self._group = ""

    def plan(self) -> AdoptionPlan:
        """Find where the copy of each partition ends. Changes nothing.

        Raises ConfigError for offsets of something else, or a flow that selects MirrorMaker 2's own topics; NotDecided;
        TakenOver where somebody runs the flow; Incident of the flow's own topics; Unreachable, NotAllowed, Retriable.
        """
        with JobClients(self._flow) as clients:
            clients.plane.connect()
            infos = clients.plane.list_source(configs=False)
            own = sorted(name for name in infos if is_own_topic(name))
            if own:
                raise ConfigError(f"flow {self._flow.name}: exclude MirrorMaker 2's own topics: {', '.join(own)}")
            control, claims = clients.state.control_if_any(), clients.state.claims_if_any() or Claims({}, ())
            check_frozen(self._flow, control)
            if control is not None and control.open is not None:
                self._check_free(clients, control.open)
            offsets = self._offsets(clients)
            self._group = self._request.group or f"{offsets.alias}-mm2"
            self._check_stopped(clients)
            pairs = self._pairs(clients, infos, offsets)
            with closing(OffsetReader(self._flow, stable=False)) as reader:
                begun = self._begun(reader, claims, pairs)
            sides = self._sides(clients, {at: to for at, to in pairs.items() if at not in begun})
            found, empty = self._compared(clients, sides, offsets)
            if not found:
                self._refuse_begun(begun)
                raise NotDecided(Objection.NO_POSITION, "MirrorMaker 2 has copied nothing of what the flow selects")
        unselected = sorted({at.topic for at in offsets.last} - infos.keys())
        self._failpoint("adoption_planned")
        return AdoptionPlan(partitions=found, empty=empty, begun=begun, unselected=unselected, group=self._group)

    def _check_free(self, clients: JobClients, found: Generation) -> None:
        infos = clients.plane.list_source(configs=False)
        take_over = self._request.take_over
        check_free_now(self._flow, clients, infos, found, Kind.POSITION_SET, take_over=take_over)

    def _offsets(self, clients: JobClients) -> ConnectOffsets:
        request, topic = self._request, self._request.connect_offsets
        if topic is None:
            return ConnectOffsets(request.alias or self._flow.source.name, {})
        count = clients.plane.target_reader.partition_count(topic)
        if not count:
            raise ConfigError(f"cluster {self._flow.target.name!r} has no topic {topic}")
        records = clients.plane.target_reader.whole(topic, range(count))
        return read_offsets(records, topic, request.connector, request.alias)

    def _check_stopped(self, clients: JobClients) -> None:
        members = clients.plane.target.count_members(self._group)
        if members:
            raise NotDecided(
                Objection.STILL_RUNS,
                f"group {self._group} of MirrorMaker 2 has {counted(members, 'member')}: stop it. One that was killed "
                "is a member until its session has timed out",
            )

    def _pairs(
        self, clients: JobClients, infos: Mapping[str, TopicInfo], offsets: ConnectOffsets
    ) -> dict[Partition, Partition]:
        """Return all partitions that both sides have, by source partition."""
        targets = existing_targets(self._flow, infos, clients.plane.list_target(infos))
        missing = sorted(at for at in offsets.last if at.topic in infos and targets.get(at) is None)
        if missing:
            raise NotDecided(
                Objection.NOT_PROVEN,
                f"MirrorMaker 2 has copied {named(missing, most=NAMED_MAX)}, and the source or the target has no such "
                "partition: a topic was created again, or rename gives it another name",
            )
        return {at: to for at, to in targets.items() if to is not None}

    def _begun(self, reader: OffsetReader, claims: Claims, pairs: Mapping[Partition, Partition]) -> list[Partition]:
        """Return those with a position or a claim. Raises the target's error."""
        stored = reader.positions(list(pairs.values()))
        return [at for at, to in sorted(pairs.items()) if raised(stored[to]) is not None or to in claims.claims]

    def _refuse_begun(self, begun: Sequence[Partition]) -> None:
        if begun:
            raise NotDecided(
                Objection.HAS_POSITION,
                f"flow {self._flow.name} has begun to copy {named(begun, most=NAMED_MAX)}",
            )

    def _sides(self, clients: JobClients, pairs: Mapping[Partition, Partition]) -> list[ComparedSides]:
        """Read both sides as they are now. Raises a cluster's error."""
        here, there = clients.source.log_ends(pairs), clients.plane.target_logs.log_ends(list(pairs.values()))
        return [ComparedSides(at, to, raised(here[at]), raised(there[to])) for at, to in sorted(pairs.items())]

    def _compared(
        self, clients: JobClients, sides: Sequence[ComparedSides], offsets: ConnectOffsets
    ) -> tuple[dict[Partition, AdoptedPartition], list[Partition]]:
        found, empty, refused = dict[Partition, AdoptedPartition](), list[Partition](), list[NotDecided]()
        request = self._request
        asked = clients.source, clients.plane.target_logs
        with closing(SidesReader(self._flow, *asked, request.compare, trust=request.trust)) as reader:
            for it in sides:
                try:
                    adopted = reader.adopted(it, offsets.last.get(it.source))
                except NotDecided as error:
                    refused.append(error)
                    continue
                if adopted is None:
                    empty.append(it.source)
                else:
                    found[it.source] = adopted
        if refused:
            more = f"\nand {len(refused) - NAMED_MAX} more" if len(refused) > NAMED_MAX else ""
            raise NotDecided(refused[0].reason, "\n".join(it.detail for it in refused[:NAMED_MAX]) + more)
        return found, empty

    def apply(self, shown: AdoptionPlan) -> int:
        """Write the positions that `plan` has said, if both sides are as they were; return the generation under which
        it was done. Raises as `plan`."""
        self._ids = {at: uuid.uuid4().hex[:ID_DIGITS] for at in shown.partitions}
        change = PositionChange(self._flow, self._config, self._ids.values(), self._log, self._failpoint)
        return change.run(self._check_free, lambda fenced: self._attempt(fenced, shown))

    def _attempt(self, fenced: FencedAttempt, shown: AdoptionPlan) -> None:
        clients = fenced.clients
        self._check_stopped(clients)
        pairs = {at: it.sides.target for at, it in shown.partitions.items()}
        self._refuse_begun(self._begun(fenced.reader, fenced.claims, pairs))
        sides = self._sides(clients, pairs)
        for it in sides:
            if (why := _changed(shown.partitions[it.source].sides, it)) is not None:
                raise NotDecided(Objection.OUTDATED, f"{it.source}: {why}")
        moved = [self._moved(fenced, it, shown.partitions[it.source]) for it in sides]
        fenced.commit(moved, sides)
        for it in sides:
            self._log.info(
                "partition_adopted",
                topic=it.source.topic,
                partition=it.source.partition,
                position=shown.partitions[it.source].end,
                by=self._request.by,
                why=self._request.why,
                occurrence=self._ids[it.source],
            )

    def _moved(self, fenced: FencedAttempt, it: ComparedSides, shown: AdoptedPartition) -> MovedPosition:
        at_ms = now_ms(it.target, fenced.claims)
        adopted = AdoptedSides(
            source_topic_id=it.source_log.topic_id,
            target_topic_id=it.target_log.topic_id,
            target_end=it.target_log.end,
        )
        occurrence = self._closed(fenced.plan, it, shown, adopted, at_ms)
        return begun_anew(fenced.plan, it, None, shown.end, occurrence)

    def _closed(
        self, plan: LanePlan, it: ComparedSides, shown: AdoptedPartition, adopted: AdoptedSides, at_ms: int
    ) -> Occurrence:
        """Make the record of it, in the form of an incident that was decided about: `status` and reconcile read it
        there.
        """
        end = shown.end
        decision = OperatorDecision(
            occurrence=self._ids[it.source],
            command=Command.ADOPT,
            name=ADOPT_MM2,
            offset=-1,
            end=end,
            by=self._request.by,
            why=self._request.why[:WHY_CHARACTERS_MAX],
            at_ms=at_ms,
            token=uuid.uuid4().hex,
            adopted=adopted,
        )
        return Occurrence(
            id=decision.occurrence,
            target=it.target,
            source=it.source,
            name=ADOPT_MM2,
            detail="" if shown.seam is None else shown.seam.said,
            offset=-1,
            end=end,
            found_by=plan.owner,
            found_ms=at_ms,
            generation=plan.generation,
            at_ms=at_ms,
            topic_id=it.source_log.topic_id,
            target_topic_id=it.target_log.topic_id,
            closing=Closing(effect=Ending.ADOPTED, by=plan.owner, at_ms=at_ms, moved=(-1, end), decision=decision),
        )


def _changed(was: ComparedSides, now: ComparedSides) -> str | None:
    """Say what of both sides isn't as it was when somebody was shown it."""
    facts = (
        ("the source topic's id", was.source_log.topic_id, now.source_log.topic_id),
        ("the target topic's id", was.target_log.topic_id, now.target_log.topic_id),
        (f"the end of {now.target}", was.target_log.end, now.target_log.end),
    )
    return next((f"{what} was {before}, is {after}" for what, before, after in facts if before != after), None)
