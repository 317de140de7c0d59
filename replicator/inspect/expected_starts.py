"""Decides what becomes of all partitions of a flow as its lanes would, from outside and without changing anything.

Called by `planning` and `status`. What becomes of a partition is decided by `lane.start_decision` and
`lane.target_check`, on the routes of `flow.topic_rules`: what `run` would stop is stopped here. What only a lane can
find is what lanes have reported.

The flow may run meanwhile. So claims are read before the positions, and positions before the ends of the logs, as each
lane does; and an incident counts only if the position was still the same after everything had been read: a lane that
moves its position has found nothing wrong.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from replicator.config import Config, Flow, routing
from replicator.config.routing import selects, target_topic
from replicator.flow.listing import Listing, copied_topics, decide_topics, known_to, unknown_source_topic
from replicator.flow.topic_rules import ListedTopic, topic_routes
from replicator.flow.topics import ControlPlane
from replicator.kafka.offset_reader import OffsetReader
from replicator.lane.facts import first_offsets
from replicator.lane.own_transactions import OPEN, Decision, Left, left_open
from replicator.lane.own_transactions import decide as decide_open
from replicator.lane.partition import LanePartition, Reason, reason_of
from replicator.lane.plan import LanePlan
from replicator.lane.ports import LogEndsByPartition
from replicator.lane.start_decision import Facts, StartDecision, decide, source_deleted, unlisted
from replicator.lane.target_check import check_target
from replicator.model import names
from replicator.model.checkpoint import NOBODY, Position, Stored
from replicator.model.errors import Incident, ReplicatorError, Retriable, Unreachable
from replicator.model.origins import NONE
from replicator.model.partition import LogEnds, Partition
from replicator.model.route import Route
from replicator.state.claims import Claims
from replicator.state.control import fits
from replicator.state.control_topic import Control
from replicator.state.generation import LaneAssignment
from replicator.state.origins import FoundOrigins, loops
from replicator.state.own_file import lanes_wanted, own_file
from replicator.wire.open_transactions import WireOpenTransactions

ROUNDS_MAX = 3
"""How often a partition is looked at whose position moves meanwhile."""


@dataclass(frozen=True, slots=True)
class ExpectedStart:
    """One partition: what was read of it, and what becomes of it. `position` is None where there is none, and where it
    can't be read or understood."""

    route: Route
    stored: Stored | ReplicatorError | None
    source: LogEnds | ReplicatorError
    target: LogEnds | ReplicatorError
    decision: StartDecision

    @property
    def position(self) -> Position | None:
        """What the target has committed."""
        return self.stored if isinstance(self.stored, Position) else None

    @property
    def stored_offset(self) -> int | None:
        """The offset that is committed, also where it can't be understood."""
        return self.stored.offset if isinstance(self.stored, Stored) else None

    @property
    def to_be_made(self) -> bool:
        """Whether its target topic or partition isn't there yet and `run` would make it."""
        route = self.route  # without a source topic id the topic is gone
        return bool(route.source_topic_id) and not (route.target_topic_id or route.stopped or route.waiting)


ExpectedStarts = dict[Partition, ExpectedStart]
"""By source partition."""


def list_topics(
    flow: Flow, config: Config, clusters: ControlPlane, cluster_ids: Mapping[str, str]
) -> tuple[dict[str, ListedTopic], Listing, FoundOrigins]:
    """List the source topics that the flow copies: as the source tells them with the user's rights, as a listing with
    all conflicts, and where they come from.

    Args:
        cluster_ids: ids of the flow's two clusters, by their names in the file.
    """
    found = clusters.listed_source(rights=True)
    there = {name: it for name, it in found.items() if it != ListedTopic()}
    conflicts = routing.topic_conflicts(config, flow.name, {flow.source.name: list(there)}, cluster_ids)
    missing = [unknown_source_topic(flow, name) for name in sorted(found.keys() - there.keys())]
    listing = Listing.of(there, conflicts, missing)
    origins = clusters.source_claims.origins({name: info.topic_id for name, info in listing.topics.items()})
    ids = cluster_ids[flow.source.name], cluster_ids[flow.target.name]
    listing = listing.coming_from(origins, loops(flow, *ids, origins.origins))
    copied = set(filter(copied_topics(flow, _known_topics(flow, clusters)), there))
    return {name: it for name, it in there.items() if name in copied}, listing.only(copied), origins


def _known_topics(flow: Flow, clusters: ControlPlane) -> Collection[str] | None:
    """Return the topics that aren't new to the flow, if `new_topics` makes a difference; None where it has never run,
    or its state can't be read: whoever reads that next says why."""
    if flow.new_topics == "copy":
        return None
    try:
        return known_to(clusters.state.control_if_any(), clusters.state.claims_if_any())
    except ReplicatorError:
        return None


def no_topic(flow: Flow) -> str:
    """Say of a flow that it selects nothing."""
    return f"no topic of cluster {flow.source.name!r} is selected now"


def routes_of(
    flow: Flow,
    listing: Listing,
    targets: Mapping[str, ListedTopic],
    claims: Claims,
    unclaimed: Mapping[str, str],
    failed_over: Mapping[str, int],
) -> list[Route]:
    """Say where the partitions of a listing go, before anything is created or grown; other arguments as of
    `decide_topics`."""
    decisions = decide_topics(flow, listing, targets, claims, unclaimed, failed_over)
    found: list[Route] = []
    for name, info in listing.topics.items():
        target = targets.get(target_topic(flow, name), ListedTopic()).info
        found += topic_routes(flow, info, target, decisions[name], listing.origins.get(name, NONE))
    return found


class StartForecast:
    """Says how each partition of one flow would start.

    Raises Unreachable, Retriable, NotAllowed where nothing can be known of any.
    """

    def __init__(
        self,
        flow: Flow,
        clusters: ControlPlane,
        source_cluster: str,
        control: Control | None,
        now_ms: Callable[[], int],
    ) -> None:
        """`source_cluster` is a cluster id; `control` is empty for a flow that has never run, None if it can't be
        read."""
        self._flow, self._clusters, self._now_ms = flow, clusters, now_ms
        self._control, self._newest = control or Control(), sys.maxsize if control is None else control.newest
        self._plan = LanePlan(
            flow=flow,
            generation=self._control.newest,
            lane=0,
            owner=NOBODY,
            source_cluster=source_cluster,
            routes=(),
            claim_partitions=1,
            assignment=LaneAssignment(1),
        )

    def decide(self, routes: Sequence[Route], claims: Claims) -> ExpectedStarts:
        """Decide where the partitions of these routes start, and those that have a position although their source topic
        is gone.
        """
        with closing(OffsetReader(self._flow)) as positions:
            found = self._look(positions, routes, claims)
            found |= self._deleted(positions, {it.target for it in routes}, claims)
            for _ in range(ROUNDS_MAX):
                moved = self._moved(positions, found)
                if not moved:
                    return found
                again = self._clusters.state.claims_if_any() or Claims({}, ())
                found |= self._look(positions, moved, again)
            for route in self._moved(positions, found):  # it is being copied
                found[route.source] = replace(found[route.source], decision=StartDecision())
        return found

    def _look(self, positions: OffsetReader, routes: Sequence[Route], claims: Claims) -> ExpectedStarts:
        stored = positions.positions([route.target for route in routes])
        listed = [route for route in routes if route.source_topic_id]
        asked = (
            self._clusters.source_logs.ask_log_ends([route.source for route in listed]),
            self._clusters.target_logs.ask_log_ends([it.target for it in routes if it.target_topic_id]),
        )
        source = _answered(asked[0], [route.source for route in listed])
        target = _answered(asked[1], [route.target for route in routes if route.target_topic_id])
        starts = self._starts(source, [route.source for route in routes if stored[route.target] is None])
        known = claims.open_occurrences()
        found: ExpectedStarts = {}
        for route in routes:
            here = source.get(route.source, unlisted(route.source))
            there = target.get(route.target, unlisted(route.target))
            at, claim = stored[route.target], claims.claims.get(route.target)
            said = self._control.failed_over_said(route.source.topic)
            facts = Facts(at, claim, here, there, starts.get(route.source), self._newest, failed_over=said)
            decision = decide(self._plan, route, facts, self._now_ms())
            if decision.stopped is None and not said and route.target in known:
                decision = StartDecision(position=decision.position, stopped=known[route.target][0].incident)
            found[route.source] = ExpectedStart(route, at, here, there, decision)
        return found

    def _starts(
        self, source: LogEndsByPartition, fresh: Collection[Partition]
    ) -> dict[Partition, int | ReplicatorError]:
        logs = {at: log for at in fresh if isinstance(log := source.get(at), LogEnds)}
        return first_offsets(self._flow, self._clusters.source_logs, logs, self._control)

    def _moved(self, positions: OffsetReader, found: ExpectedStarts) -> list[Route]:
        """Return partitions with an incident whose positions are others now than those that were read."""
        stopped = [it for it in found.values() if it.decision.stopped is not None and it.route.source_topic_id]
        now = positions.positions([it.route.target for it in stopped])
        return [it.route for it in stopped if now[it.route.target] != it.stored]

    def _deleted(self, positions: OffsetReader, routed: Collection[Partition], claims: Claims) -> ExpectedStarts:
        """Decide over positions of topics that the flow selects and that aren't at the source any more."""
        gone = {
            target: claim.source
            for target, claim in claims.claims.items()
            if target not in routed
            and selects(self._flow, claim.source.topic)
            and target_topic(self._flow, claim.source.topic) == target.topic
        }
        found: ExpectedStarts = {}
        for target, stored in positions.positions(sorted(gone)).items():
            if isinstance(stored, Stored):
                source = gone[target]
                route, said = Route(source, target, "", ""), self._control.failed_over_said(source.topic)
                decision = source_deleted(self._flow, source, target, stored, said)
                found[source] = ExpectedStart(route, stored, unlisted(source), unlisted(target), decision)
        return found

    def check_target(self, expected: ExpectedStarts) -> ExpectedStarts:
        """Compare the ends of the target's partitions with their positions, as a lane does before it copies.

        A transaction that is open at the target may be that of a process that runs, or that was killed: `run` would end
        it first. So it is an incident only where a process has released the position, and where the lane wouldn't end
        it either. (Whether the user may write a marker shows when it is written.)
        """
        lane = {
            at: LanePartition(it.route, position=it.position)
            for at, it in expected.items()
            if it.position is not None and it.decision.stopped is None and it.decision.waits is None
        }
        ends = {it.route.target: it.target for it in expected.values()}
        wrong = check_target(lane, lane.keys(), self._clusters.target_logs, ends)
        if not wrong:
            return expected
        with closing(OffsetReader(self._flow)) as positions:
            now = positions.positions([expected[at].route.target for at in wrong])
        found = dict(expected)
        for at, error in wrong.items():
            it = expected[at]
            if now[it.route.target] != it.stored:
                continue
            left: ReplicatorError | None = error
            if isinstance(error, Incident) and error.name == OPEN:
                left = self._left_open(error, it)
            if left is not None:
                found[at] = replace(it, decision=_decision(left, it.position))
        return found

    def _left_open(self, incident: Incident, expected: ExpectedStart) -> ReplicatorError | None:
        """Return what is to be said of a transaction that is open at the target; None if a lane would end it."""
        position, at = expected.position, expected.route.target
        if position is None or position.evidence.owner != NOBODY:
            return None
        decision: Decision
        try:
            with closing(WireOpenTransactions(self._flow, self._flow.target, _asked_once())) as transactions:
                id_ = self._transactional_id(expected.route.source)
                decision = decide_open(at, position.evidence, id_, self._clusters.target_logs, transactions)
        except Unreachable as error:
            return error
        except ReplicatorError as error:
            decision = Left(str(error))
        return left_open(incident, decision, self._flow, at) if isinstance(decision, Left) else None

    def _transactional_id(self, source: Partition) -> str:
        """Return the id under which `run` would write: of the generation that it would go on with, or of its next
        one.
        """
        open_, listing = self._control.open, self._control.first_listing()
        lanes = lanes_wanted(self._flow, listing, self._control)
        if open_ is not None and fits(open_, lanes, own_file(self._flow)):
            generation, assignment = open_.number, open_.assignment
        else:
            generation, assignment = self._control.newest + 1, LaneAssignment(lanes, dealt=listing)
        return names.lane_id(self._flow.name, generation, assignment.lane_of(source.topic, source.partition))


def _asked_once() -> threading.Event:
    stop = threading.Event()
    stop.set()
    return stop


def _decision(error: ReplicatorError, position: Position | None) -> StartDecision:
    if isinstance(error, Incident):
        return StartDecision(position=position, stopped=error)
    return StartDecision(position=position, waits=(reason_of(error, Reason.TARGET_MISSING), str(error)))


def _answered(asked: Callable[[], LogEndsByPartition], partitions: Iterable[Partition]) -> LogEndsByPartition:
    """Ask for log ends; a cluster that doesn't answer at all keeps its partitions waiting, as in a lane."""
    try:
        return asked()
    except (Unreachable, Retriable) as error:
        return dict.fromkeys(partitions, error)
