"""Reads what must be known of partitions before they are copied, in the one order that is safe. Decides nothing.

After the fence: the control topic and claims, positions, the ends of both logs, the offset of a time, as
`start_decision.Facts` lists them. Called by `lane.start`, for all partitions of a lane at its start, and later for
those that waited or failed.

Invariants
- Fence first, then positions, stable (invariant 1): `EndTxn` is answered before markers and offsets are applied, so an
  earlier or unstable read returns an old position, and an old position doubles records.
- Claims before positions. A claim is committed together with the partition's first position. Read in this order, a
  transaction that ends in between shows a position without its claim, and a position needs none. Read the other way
  round it would show a claim without its position, which is how a position that expired looks, and a healthy partition
  would be stopped. `plan` and `status` read while lanes run, so for them it matters at any time. In a lane the fence
  has ended the predecessor's transactions before, and only this lane writes what it reads again later.
- Positions before the ends of the logs: an end that is read first may lie below a position that was committed since,
  which is how lost data looks.
- Ids last, where offsets contradict a position: see `FactReader.with_ids`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from replicator.config import Flow
from replicator.config.routing import selects, target_topic
from replicator.lane.owners import check_owners, targets_of
from replicator.lane.plan import LanePlan
from replicator.lane.policy import Policy
from replicator.lane.ports import ClusterQuestions, Connections, LogEndsByPartition
from replicator.lane.start_decision import Facts, StartDecision, source_deleted, unlisted
from replicator.model.checkpoint import Stored
from replicator.model.errors import ReplicatorError, Retriable, TopicMissing, Unreachable
from replicator.model.partition import LogEnds, Partition
from replicator.model.route import Route
from replicator.state.claims import Claim, Claims
from replicator.state.control_topic import Control, check_generation
from replicator.state.decisions import OperatorDecision
from replicator.state.run_settings import RunSettings
from replicator.state.starts import start_of


@dataclass(slots=True)
class Unrouted:
    """Positions of a lane that nothing is copied to now: they must not expire (invariant 7).

    `deleted`: those whose source topic is not listed any more. `kept`: of topics or names that the flow has no more, by
    target partition. `unread`: whether the target could not tell some of them now.
    """

    unread: bool = False
    deleted: dict[Partition, tuple[Route, StartDecision]] = field(default_factory=dict)
    kept: dict[Partition, Stored] = field(default_factory=dict)


class FactReader:
    """Reads for one producer session of a lane. Raises TakenOver, Incident of the whole flow, Retriable, Unreachable,
    NotAllowed; what can't be known of one partition is among its facts."""

    def __init__(self, plan: LanePlan, policy: Policy, to: Connections, owners: Mapping[Partition, str]) -> None:
        """`owners`: who owned target partitions when this process last read them; any other owner is newer."""
        self._plan, self._policy, self._to, self._owners = plan, policy, to, owners
        self._control = Control()
        self.source_ends: Mapping[Partition, LogEnds | ReplicatorError] = {}  # as they were read last
        self.target_ends: Mapping[Partition, LogEnds | ReplicatorError] = {}

    def begin(self) -> Claims:
        """Read the control topic, and the claims that can concern this lane, if the control topic lets it run."""
        self._control, claims = self._to.state.control_and_claims(self._plan.lane)
        check_generation(self._control, self._plan.generation, self._plan.assignment)
        return claims()

    @property
    def decided(self) -> Mapping[str, OperatorDecision]:
        """What operators have decided, by occurrence, as it was read at the session's start."""
        return self._control.decisions

    @property
    def settings(self) -> RunSettings:
        """What operators have set, as it was read at the session's start."""
        return self._control.settings

    def read(self, routes: Sequence[Route], claims: Mapping[Partition, Claim]) -> dict[Partition, Facts]:
        """Read the facts of these partitions, by source partition. `claims` were read before, by target partition."""
        stored = self.positions([route.target for route in routes])
        source_ends = self._source_ends([r.source for r in routes if r.source_topic_id])
        target_ends = self._to.target.ask_log_ends([r.target for r in routes if r.target_topic_id])
        self.source_ends, self.target_ends = source, target = source_ends(), target_ends()
        fresh = [route.source for route in routes if stored[route.target] is None]
        starts = self._starts([at for at in fresh if isinstance(source.get(at), LogEnds)], source)
        return {
            route.source: Facts(
                stored[route.target],
                claims.get(route.target),
                source.get(route.source, unlisted(route.source)),
                target.get(route.target, unlisted(route.target)),
                starts.get(route.source),
                self._control.newest,
                failed_over=self._control.failed_over_said(route.source.topic),
            )
            for route in routes
        }

    def positions(self, targets: Sequence[Partition]) -> dict[Partition, Stored | ReplicatorError | None]:
        """Read positions, stable. Raises TakenOver where somebody else has come to own one of them."""
        found = self._to.plane.positions(targets)
        check_owners(self._plan, self._owners, found)
        return found

    def with_ids(self, facts: Mapping[Partition, Facts], routes: Collection[Route]) -> dict[Partition, Facts]:
        """Complete facts whose offsets contradict their positions by the ids that their topics have now.

        Ids and ends are asked for at the same time, perhaps of different brokers: the ends may be those of a new topic
        beside the id of the old one. An id that was asked for after them tells.
        """
        if not routes:
            return {}
        here = self._to.source.topic_ids({route.source.topic for route in routes}).wait()
        there = self._to.target.topic_ids({route.target.topic for route in routes}).wait()
        return {
            route.source: replace(
                facts[route.source],
                source=_with_id(facts[route.source].source, here[route.source.topic]),
                target=_with_id(facts[route.source].target, there[route.target.topic]),
            )
            for route in routes
        }

    def _source_ends(self, partitions: Sequence[Partition]) -> Callable[[], LogEndsByPartition]:
        """Ask; the function that this returns waits. While the source doesn't answer at all its partitions wait, and
        their positions are kept alive (invariant 7); a job is told."""
        asked = self._to.source.ask_log_ends(partitions)

        def answer() -> LogEndsByPartition:
            try:
                return asked()
            except (Unreachable, Retriable) as error:
                if not self._policy.waits:
                    raise
                return dict.fromkeys(partitions, error)

        return answer

    def _starts(
        self, fresh: Sequence[Partition], source: Mapping[Partition, LogEnds | ReplicatorError]
    ) -> dict[Partition, int | ReplicatorError]:
        """Find the first offset of partitions without a position, of which the source's ends are known.

        It is the job's, or what was resolved when the flow was opened. Those that have none begin at earliest.
        """
        given: dict[Partition, int | ReplicatorError] = {
            at: first for at in fresh if (first := self._policy.first_offset(at)) is not None
        }
        logs = {at: log for at in fresh if at not in given and isinstance(log := source[at], LogEnds)}
        return given | first_offsets(self._plan.flow, self._to.source, logs, self._control)

    def unrouted(self, claims: Claims) -> Unrouted:
        """Read the positions of this lane whose partitions have no route now.

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
                found.deleted[source] = (
                    Route(source, target, "", ""),
                    source_deleted(plan.flow, source, target, stored, self._control.failed_over_said(source.topic)),
                )
            else:
                found.kept[target] = stored
        return found


def _with_id(log: LogEnds | ReplicatorError, topic_id: str | ReplicatorError) -> LogEnds | ReplicatorError:
    if isinstance(log, ReplicatorError):
        return log
    return log._replace(topic_id=topic_id) if isinstance(topic_id, str) else topic_id


def first_offsets(
    flow: Flow, source: ClusterQuestions, logs: Mapping[Partition, LogEnds], control: Control
) -> dict[Partition, int | ReplicatorError]:
    """Find where partitions without a position begin, given what the source says of their logs; those that are left out
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
    source: ClusterQuestions, ends: Mapping[Partition, int], timestamp_ms: int
) -> dict[Partition, int | ReplicatorError]:
    """Find the first offset at or after a time, of partitions with their stable `ends`; the end where there is none.

    Invariant 4: the ends are read before this asks for the time's offset. The other way round a record that is
    committed in between would never be copied. Used by jobs, too.
    """
    found = source.offsets_at(ends, timestamp_ms)
    return {at: ends[at] if offset == -1 else offset for at, offset in found.items()}
