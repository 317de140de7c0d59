"""The first steps of a lane, in the one order that is safe: fence, check the generation, read, commit again.

Invariant 1: InitProducerId → check the generation → read the positions, stable → commit them again with oneself as
owner → seek. At every start and every reassignment; EndTxn is answered before markers and offsets are applied, so an
unstable or earlier read returns an old position, and an old position doubles records.

Called by `lane.session`, for all partitions of a lane at its start, and later for those that waited or are in doubt:
what a partition lacks never keeps the others shut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from replicator.config import Flow
from replicator.config.routing import selects, target_topic
from replicator.lane.judge import Facts, Verdict, judge, source_deleted, unlisted
from replicator.lane.plan import LanePlan
from replicator.lane.policy import Policy
from replicator.lane.ports import Clock, Connections
from replicator.model.checkpoint import NOBODY, Position, Stored
from replicator.model.errors import ReplicatorError, Retriable, TakenOver, TopicMissing, Unreachable
from replicator.model.partition import LogEnds, Partition
from replicator.model.route import Route
from replicator.planes.contract import Cluster, LogEndsByPartition
from replicator.state.claims import Claims
from replicator.state.generation import Control, check_generation
from replicator.state.starts import start_of

BY_OFFSETS = ("source_records_gone", "source_truncated", "target_lost_data")
"""Incidents that offsets show: those of a topic that was created again would, too."""


@dataclass(slots=True)
class Unrouted:
    """Positions of a lane that nothing is copied to now: they must not expire (invariant 7).

    `deleted`: those whose source topic is not listed any more. `kept`: of topics or names that the flow has no more, by
    target partition. `unread`: whether the target could not tell some of them now.
    """

    unread: bool = False
    deleted: dict[Partition, tuple[Route, Verdict]] = field(default_factory=dict)
    kept: dict[Partition, Stored] = field(default_factory=dict)


class LaneStart:
    """Reads and judges for one producer session of a lane. Raises TakenOver, Incident of the whole flow, Retriable,
    Unreachable, NotAllowed; what concerns one partition is in its verdict."""

    def __init__(
        self, plan: LanePlan, policy: Policy, to: Connections, owners: Mapping[Partition, str], clock: Clock
    ) -> None:
        """`owners`: who owned target partitions when this process last read them; any other owner is newer."""
        self._plan, self._policy, self._to, self._clock = plan, policy, to, clock
        self._owners = owners
        self.source_ends: Mapping[Partition, LogEnds | ReplicatorError] = {}  # as `admit` has read them last
        self.target_ends: Mapping[Partition, LogEnds | ReplicatorError] = {}

    def check_generation(self) -> Control:
        """After the fence: the control topic's state, if this lane may run under it."""
        control = self._to.state.control()
        check_generation(control, self._plan.generation, self._plan.assignment)
        return control

    def admit(self, routes: Sequence[Route], control: Control, claims: Claims) -> dict[Partition, Verdict]:
        """The verdict over each of these partitions, by source partition. Positions are read first."""
        stored = self._to.plane.positions([route.target for route in routes])
        for route in routes:
            found = stored[route.target]
            if isinstance(found, Stored):
                self.check_owner(route.target, found)
        source_ends = self._source_ends([r.source for r in routes if r.source_topic_id])
        target_ends = self._to.target.ask_log_ends([r.target for r in routes if r.target_topic_id])
        source, target = source_ends(), target_ends()
        self.source_ends, self.target_ends = source, target
        fresh = [route.source for route in routes if stored[route.target] is None]
        starts = self._starts([at for at in fresh if isinstance(source.get(at), LogEnds)], source, control)
        facts = {
            route.source: Facts(
                stored[route.target],
                claims.claims.get(route.target),
                source.get(route.source, unlisted(route.source)),
                target.get(route.target, unlisted(route.target)),
                starts.get(route.source),
                control.newest,
            )
            for route in routes
        }
        now_ms = self._clock.now_ms()
        verdicts = {route.source: judge(self._plan, route, facts[route.source], now_ms) for route in routes}
        doubted = [route for route in routes if _by_offsets(verdicts[route.source])]
        for at, known in self._asked_last(doubted, facts).items():
            route = next(route for route in doubted if route.source == at)
            verdicts[at] = judge(self._plan, route, known, now_ms)
        return verdicts

    def _asked_last(self, doubted: Sequence[Route], facts: Mapping[Partition, Facts]) -> dict[Partition, Facts]:
        """The facts of partitions whose offsets contradict their positions, with the ids that their topics have now.

        Ids and ends are asked for at the same time, perhaps of different brokers: the ends may be those of a new topic
        beside the id of the old one. An id that was asked for after them tells.
        """
        if not doubted:
            return {}
        here = self._to.source.topic_ids({route.source.topic for route in doubted}).wait()
        there = self._to.target.topic_ids({route.target.topic for route in doubted}).wait()
        return {
            route.source: replace(
                facts[route.source],
                source=_with_id(facts[route.source].source, here[route.source.topic]),
                target=_with_id(facts[route.source].target, there[route.target.topic]),
            )
            for route in doubted
        }

    def _source_ends(self, partitions: Sequence[Partition]) -> Callable[[], LogEndsByPartition]:
        """Asks; waits when it is called. While the source doesn't answer at all its partitions wait, and their
        positions are kept alive (invariant 7); a job is told."""
        asked = self._to.source.ask_log_ends(partitions)

        def answer() -> LogEndsByPartition:
            try:
                return asked()
            except (Unreachable, Retriable) as error:
                if not self._policy.waits:
                    raise
                return dict.fromkeys(partitions, error)

        return answer

    def check_owner(self, target: Partition, found: Stored) -> None:
        """Raises TakenOver for a position that somebody has written who wasn't known to own it."""
        owner = owner_of(found)
        if owner not in (None, NOBODY, self._plan.owner, self._owners.get(target, owner)):
            raise TakenOver(f"flow {self._plan.flow.name}: {owner} has taken over {target} while this process was away")

    def _starts(
        self, fresh: Sequence[Partition], source: Mapping[Partition, LogEnds | ReplicatorError], control: Control
    ) -> dict[Partition, int | ReplicatorError]:
        """The first offset of partitions without a position, of which the source's ends are known: the job's, or what
        was resolved when the flow was opened. Those that have none begin at earliest."""
        given: dict[Partition, int | ReplicatorError] = {
            at: first for at in fresh if (first := self._policy.first_offset(at)) is not None
        }
        logs = {at: log for at in fresh if at not in given and isinstance(log := source[at], LogEnds)}
        return given | first_offsets(self._plan.flow, self._to.source, logs, control)

    def unrouted(self, claims: Claims) -> Unrouted:
        """Positions of this lane whose partitions have no route now.

        What the target doesn't have can't be committed and is left out.
        """
        plan, routed = self._plan, {route.target for route in self._plan.routes}
        mine = {target: claims.claims[target] for target in targets_of(plan, claims) if target not in routed}
        found = Unrouted()
        if not mine:
            return found
        ends = self._to.target.log_ends(sorted(mine))
        there = [target for target in sorted(mine) if isinstance(ends[target], LogEnds)]
        found.unread = any(
            isinstance(end, ReplicatorError) and not isinstance(end, TopicMissing) for end in ends.values()
        )
        for target, stored in self._to.plane.positions(there).items():
            if not isinstance(stored, Stored):
                found.unread = found.unread or stored is not None
                continue
            source = mine[target].source
            if selects(plan.flow, source.topic) and target_topic(plan.flow, source.topic) == target.topic:
                found.deleted[source] = (Route(source, target, "", ""), source_deleted(source, target, stored))
            else:
                found.kept[target] = stored
        return found


def _by_offsets(verdict: Verdict) -> bool:
    return verdict.stopped is not None and verdict.stopped.name in BY_OFFSETS


def _with_id(log: LogEnds | ReplicatorError, topic_id: str | ReplicatorError) -> LogEnds | ReplicatorError:
    if isinstance(log, ReplicatorError):
        return log
    return log._replace(topic_id=topic_id) if isinstance(topic_id, str) else topic_id


def first_offsets(
    flow: Flow, source: Cluster, logs: Mapping[Partition, LogEnds], control: Control
) -> dict[Partition, int | ReplicatorError]:
    """Where partitions without a position begin, given what the source says of their logs; those that are left out
    begin at earliest. Used by jobs, too.

    Invariant 4: as it was resolved when the flow was opened. A flow that was opened before that was stored resolves it
    now. Raises as `offsets_at`, and Incident (`Control.starts`).
    """
    if not logs:
        return {}
    starts = control.starts()
    if starts is not None:
        found = {at: start_of(starts, at, log.topic_id) for at, log in logs.items()}
        return {at: offset for at, offset in found.items() if offset is not None}
    listing = control.first_listing()
    ends = {at: log.stable for at, log in logs.items() if at.partition < listing.get(at.topic, 0)}
    if flow.start.kind == "latest":
        return dict(ends)
    if flow.start.kind == "timestamp" and ends:
        return offsets_of_time(source, ends, flow.start.timestamp_ms)
    return {}


def offsets_of_time(
    source: Cluster, ends: Mapping[Partition, int], timestamp_ms: int
) -> dict[Partition, int | ReplicatorError]:
    """The first offset at or after a time, of partitions with their stable `ends`; the end where there is none.

    Invariant 4: the ends are read before this asks for the time's offset. The other way round a record that is
    committed in between would never be copied. Used by jobs, too.
    """
    found = source.offsets_at(ends, timestamp_ms)
    return {at: ends[at] if offset == -1 else offset for at, offset in found.items()}


def owner_of(found: Stored | None) -> str | None:
    """Who wrote a position; None where this program didn't: a stray commit is no successor's."""
    if found is None:
        return NOBODY
    return found.evidence.owner if isinstance(found, Position) else None


def targets_of(plan: LanePlan, claims: Claims) -> list[Partition]:
    """Target partitions of all positions that the lane has: also of topics that this process's flow file hasn't."""
    claimed = {target for target, claim in claims.claims.items() if plan.assignment.lane_of(*claim.source) == plan.lane}
    return sorted(claimed | {route.target for route in plan.routes})
