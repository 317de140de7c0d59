"""Bugs that break one invariant of docs/invariants.md each, planted as in `mutations`, and the tests that find them.

Of invariants for which `mutations` and the models have none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from replicator.config import routing
from replicator.lane import driver, facts, positions, start_decision
from replicator.lane.driver import LaneDriver
from replicator.lane.positions import LanePositions
from replicator.lane.start_decision import Facts, StartDecision
from replicator.model.contradictions import compare
from replicator.model.errors import ReplicatorError, TakenOver
from tests.replicator.config import test_routing
from tests.replicator.lane import test_lane, test_owners, test_positions, test_start_decision
from tests.replicator.lane.mutations import Finder, Mutation, Patch
from tests.replicator.lane.test_start_decision import SOURCE

INVARIANT_MUTATIONS: list[Mutation] = []


def breaks(*finders: Finder) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    """Put a bug on the list."""

    def take(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
        INVARIANT_MUTATIONS.append(Mutation(plant, finders))
        return plant

    return take


@breaks(
    test_routing.test_two_flows_onto_one_target_topic, test_routing.test_each_topic_in_conflict_is_named_and_no_other
)
def let_two_sources_share_a_target_topic(patch: Patch) -> None:
    """Break invariant 3."""
    patch.setattr(routing, "_shared_target", lambda flow, topic, place, origin: iter(()))


@breaks(test_start_decision.test_an_error_never_reads_as_no_position)
def take_an_error_for_no_position(patch: Patch) -> None:
    """Break invariant 7."""
    decided = start_decision._decided

    def hopeful(plan: Any, route: Any, found: Facts, now_ms: int) -> StartDecision:
        stored = None if isinstance(found.stored, ReplicatorError) else found.stored
        return decided(plan, route, replace(found, stored=stored), now_ms)

    patch.setattr(start_decision, "_decided", hopeful)


@breaks(
    partial(
        test_start_decision.test_every_contradiction_is_named_with_its_range,
        {"newest": 2},
        "position_newer_than_control",
        "knows only up to 2",
    )
)
def copy_on_whatever_contradicts_the_position(patch: Patch) -> None:
    """Break invariant 9."""
    patch.setattr(start_decision, "compare", lambda *facts: None)


@breaks(test_positions.test_an_ack_below_the_promised_target_offset_is_an_incident)
def take_any_acknowledgement(patch: Patch) -> None:
    """Break invariant 9."""
    patch.setattr(positions, "check_acks", lambda at, position, done: None)


@breaks(test_lane.test_a_successor_is_not_fenced_back)
def start_over_whoever_owns_the_positions(patch: Patch) -> None:
    """Break invariant 10: a fenced lane fences its successor."""
    for module in (driver, facts):
        patch.setattr(module, "check_owners", lambda *known, fenced=False: None)


@breaks(test_owners.test_a_fenced_lane_takes_no_stray_commit_for_a_successor)
def leave_whenever_fenced(patch: Patch) -> None:
    """Break invariant 10: a lane whose transaction timed out doesn't go on."""

    def taken_over(self: LaneDriver, error: ReplicatorError, to: Any) -> None:
        raise TakenOver(str(error)) from error

    patch.setattr(LaneDriver, "_examine", taken_over)


@breaks(test_positions.test_a_partition_end_moves_the_position_past_markers_but_claims_no_record)
def move_positions_with_records_only(patch: Patch) -> None:
    """Break invariant 11: a position stays before markers and aborted records."""
    moved = LanePositions.next_positions
    patch.setattr(LanePositions, "next_positions", lambda self, copied, ends, now_ms: moved(self, copied, {}, now_ms))


@breaks(
    partial(
        test_start_decision.test_every_contradiction_is_named_with_its_range,
        {"source": SOURCE._replace(start=550)},
        "source_records_gone",
        "source offsets 500 to 549 were deleted",
    )
)
def take_what_was_deleted_for_a_gap(patch: Patch) -> None:
    """Break invariant 11: offsets below the log's start are passed as if they had no records."""

    def blind(position: Any, cluster: str, topic: str, source: Any, *rest: Any) -> tuple[str, str] | None:
        return compare(position, cluster, topic, source._replace(start=min(source.start, position.offset)), *rest)

    patch.setattr(start_decision, "compare", blind)
