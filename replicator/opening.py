"""The first steps of a lane, in the one order that is safe: fence, check the generation, read, commit again.

Invariant 1 (design): InitProducerId → check the generation → read the positions, stable → commit them again with
oneself as owner → seek. At every start and every reassignment; EndTxn is answered before markers and offsets are
applied, so an unstable or earlier read returns an old position, and an old position doubles records.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from replicator import checkpoint, control, map, names, tails
from replicator.admin import ClusterAdmin
from replicator.checkpoint import NOBODY, Evidence, Observed, Position
from replicator.config import Cluster, Delivery, Flow
from replicator.errors import Incident, Retriable, Superseded
from replicator.generation import Control, Cut
from replicator.ledger import Entry, Ledger, Route
from replicator.planes.contract import Committed, Partition, Plane
from replicator.planes.records.reading import Reader
from replicator.routing import selects, target_topic


@dataclass(frozen=True, slots=True)
class Span:
    """What a bounded lane copies of its partitions, by source offsets, and how fast.

    `first` is where a partition without a position begins; `end` (exclusive) where each ends. `rate_max` is in records
    a second, of all its partitions together; None: as fast as it goes.
    """

    first: Mapping[Partition, int]
    end: Mapping[Partition, int]
    rate_max: float | None = None


@dataclass(frozen=True, slots=True)
class LanePlan:
    """What one lane is to do: fixed when its generation was opened and the topics were listed."""

    flow: Flow
    generation: int
    lane: int
    owner: str
    source_cluster: str
    routes: tuple[Route, ...]
    map_partitions: int
    cut: Cut
    span: Span | None = None

    @property
    def transactional_id(self) -> str:
        """The id on which fencing rests."""
        return names.lane_id(self.flow.name, self.generation, self.lane)

    @property
    def map_partition(self) -> int:
        """Where its claims go: a partition of the map topic is shared where a generation has more lanes than that."""
        return self.lane % self.map_partitions


@dataclass(frozen=True, slots=True)
class Bounds:
    """Ends of one route's logs as they stand now; `source_stable` is the last stable offset."""

    source_start: int
    source_end: int
    source_stable: int
    target_end: int


def check_generation(plan: LanePlan, target: Reader) -> Control:
    """The control topic's state, under which this lane may run. Raises Superseded when it may not, and Incident."""
    state, number = control.read(plan.flow, target), plan.generation
    if state.newest < number:
        raise Incident(
            "control_topic_behind",
            f"this lane is of generation {number}, the control topic knows {state.newest}",
            topic=names.control_topic(plan.flow.name),
            advice="was the control topic deleted or truncated? positions cannot be trusted without it",
        )
    if state.open is None or (state.open.number, state.open.cut) != (number, plan.cut):
        kind = state.generations[state.newest].kind.value
        raise Superseded(f"flow {plan.flow.name}: generation {state.newest} ({kind}) has taken over from {number}")
    return state


class Opening:
    """One pass through the opening steps of a lane. Raises Superseded, Retriable, Fenced, Unreachable, …"""

    def __init__(
        self, plan: LanePlan, plane: Plane, source: Reader, target: Reader, owners: Mapping[Partition, str]
    ) -> None:
        """`owners`: who owned target partitions when this process last looked; anybody else has come since."""
        self._plan, self._plane, self._source, self._target = plan, plane, source, target
        self._owners = owners

    def read(self) -> tuple[Ledger, list[tuple[bytes, bytes]]]:
        """After the fence: check the generation, read and judge all positions, resolve missing ones.

        Returns the ledger and the claim records that belong into the first transaction.
        """
        plan = self._plan
        state = check_generation(plan, self._target)
        routes = plan.routes if plan.span is None else self._as_they_are(plan.routes)
        stored = self._plane.committed([route.target for route in routes])
        claimed = self._claims()
        bounds = {route.source: self._bounds(route) for route in routes}
        starts = self._resolve_starts([r for r in routes if stored[r.target] is None], bounds, state)
        entries: dict[Partition, Entry] = {}
        claims: list[tuple[bytes, bytes]] = []
        for route in routes:
            found = stored[route.target]
            if found is None:
                entry = self._without_position(route, bounds[route.source], claimed.get(route.target), starts)
                if entry.position is not None:
                    claims.append(self._claim(route, entry.position.offset).encode())
            else:
                entry = self._with_position(route, found, bounds[route.source], state.newest)
            entries[route.source] = entry
        lost, kept = self._without_route(claimed)
        ledger = Ledger(entries | lost, plan.owner, plan.generation, plan.flow.delivery.value, kept)
        for source, incident in self.check_tails(ledger).items():
            ledger.entries[source].incident = incident
        return ledger, claims

    def _as_they_are(self, routes: Sequence[Route]) -> list[Route]:
        """Routes with the topic ids of now: a job has listed topics long ago, and no reader was open since, that would
        have seen one re-created."""
        ids: list[dict[str, str]] = []
        for cluster, names_ in (
            (self._plan.flow.source, {route.source.topic for route in routes}),
            (self._plan.flow.target, {route.target.topic for route in routes}),
        ):
            admin = self._admin(cluster)
            try:
                ids.append({name: info.topic_id for name, info in admin.topics(names_).items()} if names_ else {})
            finally:
                admin.close()
        sources, targets = ids
        return [
            replace(
                route,
                source_topic_id=sources.get(route.source.topic, route.source_topic_id),
                target_topic_id=targets.get(route.target.topic, route.target_topic_id),
            )
            for route in routes
        ]

    def _claims(self) -> Mapping[Partition, map.Claim]:
        topic, least = names.map_topic(self._plan.flow.name), self._plan.map_partitions
        count = self._target.partitions([topic]).get(topic, 0)
        if count < least:  # a claim that isn't seen would make a lost position look like a new partition
            raise Retriable(f"cluster {self._plan.flow.target.name}: {topic} has {count} partitions, not {least}")
        try:
            return map.claims(self._target.whole(topic, range(count)))
        except map.BadMap as error:
            raise Incident("map_topic_unreadable", str(error), topic=topic) from error

    def _without_route(
        self, claimed: Mapping[Partition, map.Claim]
    ) -> tuple[dict[Partition, Entry], dict[Partition, Committed]]:
        """Positions of this lane that nothing is copied to now: they must not expire (invariant 7).

        Returns those whose source topic has gone, by source partition, and the others (the flow's topics or names
        were changed), by target partition. What the target doesn't have can't be committed and is left out.
        """
        plan, routed = self._plan, {route.target for route in self._plan.routes}
        mine = [
            claim
            for target, claim in claimed.items()
            if target not in routed and plan.cut.lane_of(*claim.source) == plan.lane
        ]
        counts = self._target.partitions({claim.target.topic for claim in mine}) if mine else {}
        there = {c.target: c for c in mine if c.target.partition < counts.get(c.target.topic, 0)}
        gone: dict[Partition, Entry] = {}
        kept: dict[Partition, Committed] = {}
        for target, found in self._plane.committed(sorted(there)).items():
            source = there[target].source
            if found is None:
                continue
            if selects(plan.flow, source.topic) and target_topic(plan.flow, source.topic) == target.topic:
                why = f"{target} has its position, but the source topic isn't there any more"
                incident = Incident(
                    "source_topic_gone", why, topic=source.topic, partition=source.partition, offset=found.offset
                )
                gone[source] = Entry(Route(source, target, "", ""), None, incident, verbatim=found)
            else:
                kept[target] = found
        return gone, kept

    def _bounds(self, route: Route) -> Bounds:
        start, end = self._source.bounds(route.source)
        stable = self._source.committed_bounds(route.source)[1] if self._plan.flow.start.kind == "latest" else end
        return Bounds(start, end, stable, self._target.bounds(route.target)[1])

    def _resolve_starts(
        self, routes: Sequence[Route], bounds: Mapping[Partition, Bounds], state: Control
    ) -> dict[Partition, int]:
        """The first offset of partitions without a position: `start` for those of the flow's first listing."""
        if self._plan.span is not None:
            return {route.source: self._plan.span.first[route.source] for route in routes}
        start, listing = self._plan.flow.start, state.first_listing()
        first = [r.source for r in routes if r.source.partition < listing.get(r.source.topic, 0)]
        starts = {route.source: bounds[route.source].source_start for route in routes}
        if start.kind == "latest":
            starts.update({at: bounds[at].source_stable for at in first})
        elif start.kind == "timestamp" and first:
            for at, offset in self._source.at_time(first, start.timestamp_ms).items():
                starts[at] = offset if offset >= 0 else self._source.committed_bounds(at)[1]
        return starts

    def _without_position(
        self, route: Route, seen: Bounds, claim: map.Claim | None, starts: Mapping[Partition, int]
    ) -> Entry:
        if claim is not None:
            return Entry(
                route,
                None,
                Incident(
                    "position_missing",
                    f"{route.target} was claimed at source offset {claim.offset}, but has no position any more: it "
                    "expired (offsets.retention.minutes) or was deleted",
                    topic=route.source.topic,
                    partition=route.source.partition,
                ),
            )
        if seen.target_end > 0:
            return Entry(
                route,
                None,
                Incident(
                    "target_not_empty",
                    f"{route.target} has data up to offset {seen.target_end}, but this flow has no position for it",
                    topic=route.source.topic,
                    partition=route.source.partition,
                    advice="copying from the start could double records: delete the target topic or rename",
                ),
            )
        if starts[route.source] < seen.source_start:  # a job was told to begin there
            why = (
                f"source offsets {starts[route.source]} to {seen.source_start - 1} were deleted before they were copied"
            )
            incident = Incident(
                "source_records_gone",
                why,
                topic=route.source.topic,
                partition=route.source.partition,
                offset=starts[route.source],
            )
            return Entry(route, None, incident)
        evidence = Evidence(
            generation=self._plan.generation,
            owner=self._plan.owner,
            source_topic=route.source.topic,
            source_cluster=self._plan.source_cluster,
            source_topic_id=route.source_topic_id,
            target_topic_id=route.target_topic_id,
            log_start=seen.source_start,
            next_target_offset=0,
            delivery=self._plan.flow.delivery.value,
        )
        return Entry(route, Position(starts[route.source], evidence))

    def _claim(self, route: Route, offset: int) -> map.Claim:
        plan = self._plan
        return map.Claim(
            route.target,
            route.source,
            route.source_topic_id,
            offset,
            plan.generation,
            plan.owner,
            int(time.time() * 1000),
        )

    def _with_position(self, route: Route, found: Committed, seen: Bounds, newest: int) -> Entry:
        source = route.source
        try:
            position = Position(found.offset, checkpoint.decode(found.metadata))
        except checkpoint.BadMetadata as error:
            incident = Incident(
                "position_unreadable", str(error), topic=source.topic, partition=source.partition, offset=found.offset
            )
            return Entry(route, None, incident, verbatim=found)
        owner = position.evidence.owner
        if owner not in (NOBODY, self._plan.owner, self._owners.get(route.target, owner)):
            raise Superseded(
                f"flow {self._plan.flow.name}: {owner} has taken over {route.target} while this process was away"
            )
        observed = Observed(
            source_cluster=self._plan.source_cluster,
            source_topic=source.topic,
            source_topic_id=route.source_topic_id,
            source_log_start=seen.source_start,
            source_end=seen.source_end,
            target_topic_id=route.target_topic_id,
            target_end=seen.target_end,
            generation=newest,
        )
        wrong = checkpoint.compare(position, observed)
        if wrong is None:
            return Entry(route, position)
        return Entry(
            route,
            position,
            Incident(wrong.name, wrong.detail, topic=source.topic, partition=source.partition, offset=found.offset),
        )

    def check_tails(self, ledger: Ledger) -> dict[Partition, Incident]:
        """What is wrong with the ends of the target's partitions, by source partition (exactly_once only)."""
        if self._plan.flow.delivery is not Delivery.EXACTLY_ONCE:
            return {}
        return tails.examine(ledger, self._target, self._compacted)

    def _compacted(self, topic: str) -> bool:
        admin = self._admin(self._plan.flow.target)
        try:
            return "compact" in admin.topic_configs([topic])[topic]["cleanup.policy"]
        finally:
            admin.close()

    def _admin(self, cluster: Cluster) -> ClusterAdmin:
        limits = self._plan.flow.limits
        return ClusterAdmin(
            cluster, request_timeout_ms=limits.request_timeout_ms, connect_timeout_ms=limits.connect_timeout_ms
        )

    def close(self) -> None:
        """Let go of the readers' connections; a later check connects again."""
        self._source.close()
        self._target.close()
