"""Bugs that a lane could have in the offset map that it writes, planted as those of `mutations`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from replicator.lane import map_writer
from replicator.lane.map_check import MapFindings
from replicator.lane.map_writer import MapWriter
from replicator.lane.transaction import LaneTransactions
from replicator.model.errors import Abortable
from tests.replicator.lane import test_map_topic, test_map_writer
from tests.replicator.lane.mutations import MUTATIONS, Patch, mutation

ALL_MUTATIONS = MUTATIONS


@mutation(
    partial(
        test_map_writer.test_after_an_unknown_outcome_the_map_goes_on_where_the_positions_stand, "plane.end_answered"
    )
)
def commit_the_block_behind_its_records(patch: Patch) -> None:
    def end(self: Any, held: Any, before_end: Any = None) -> None:
        with self._map.blocks_of(held.sections) as blocks:
            self._plane.commit(held.offsets, held.entries, before_end or (lambda: None))
            if blocks is not None:
                self._plane.commit({}, (), lambda: None, blocks)

    patch.setattr(LaneTransactions, "_end", end)


@mutation(test_map_writer.test_each_copy_has_its_place_in_a_block_of_its_own_transaction)
def leave_the_block_out(patch: Patch) -> None:
    def end(self: Any, held: Any, before_end: Any = None) -> None:
        self._plane.commit(held.offsets, held.entries, before_end or (lambda: None))

    patch.setattr(LaneTransactions, "_end", end)


@mutation(
    partial(
        test_map_writer.test_where_no_block_is_taken_records_are_copied_without_and_the_map_begins_again,
        test_map_writer.refuse_blocks,
    ),
    test_map_topic.test_a_map_topic_that_was_made_again_is_told_and_the_map_begins_anew,
    test_map_writer.test_a_position_of_a_lane_without_the_map_names_no_block,
)
def write_no_base_after_a_break(patch: Patch) -> None:
    section = MapWriter._section

    def without(self: Any, at: Any, before: Any, after: Any, done: Any, *, gap: bool) -> Any:
        found = section(self, at, before, after, done, gap=gap)
        return found if found is None or not before.offset else replace(found, base=False)

    patch.setattr(MapWriter, "_section", without)


@mutation(test_map_writer.test_a_position_names_the_offset_behind_the_lane_s_previous_block)
def name_a_stale_previous_block(patch: Patch) -> None:
    init = MapWriter.__setattr__

    def first_only(self: Any, name: str, value: object) -> None:
        if name != "_behind" or getattr(self, "_behind", -1) < 0:
            init(self, name, value)

    patch.setattr(MapWriter, "__setattr__", first_only)


@mutation(test_map_writer.test_the_map_goes_on_over_restarts)
def name_an_offset_behind_the_block(patch: Patch) -> None:
    mapped = MapWriter.mapped

    def further(self: Any, positions: Any, moved: Any, copied: Any, *, gap: bool = False) -> Any:
        self._behind += 2
        try:
            return mapped(self, positions, moved, copied, gap=gap)
        finally:
            self._behind -= 2

    patch.setattr(MapWriter, "mapped", further)


@mutation(
    test_map_writer.test_a_newest_block_that_is_not_there_is_told_and_the_map_begins_anew,
    test_map_writer.test_a_lost_marker_of_the_map_alone_is_found_at_the_next_start_if_an_abort_follows,
)
def look_at_no_newest_block(patch: Patch) -> None:
    patch.setattr(map_writer, "check_newest", lambda *arguments: MapFindings())


@mutation(
    partial(
        test_map_writer.test_where_no_block_is_taken_records_are_copied_without_and_the_map_begins_again,
        test_map_writer.refuse_blocks,
    ),
    test_map_writer.test_a_position_of_a_lane_without_the_map_names_no_block,
)
def let_positions_name_blocks_that_were_not_written(patch: Patch) -> None:
    patch.setattr(map_writer, "without_map", lambda position: position)


@mutation(test_map_writer.test_positions_that_only_advance_have_sections)
def write_sections_with_records_only(patch: Patch) -> None:
    mapped = MapWriter.mapped

    def with_records(self: Any, positions: Any, moved: Any, copied: Any, *, gap: bool = False) -> Any:
        found = mapped(self, positions, moved, copied, gap=gap)
        return replace(found, sections=[section for section in found.sections if section.runs])

    patch.setattr(MapWriter, "mapped", with_records)


@mutation(test_map_writer.test_a_partition_of_the_map_that_goes_away_in_a_transaction_holds_it_up_until_it_is_back)
def say_nothing_of_the_map_that_holds_up(patch: Patch) -> None:
    patch.setattr(MapWriter, "place_of", lambda self, sections: None)


@mutation(test_map_writer.test_a_missing_right_on_the_map_s_topic_makes_no_partition_wait)
def take_a_refused_block_for_a_missing_right(patch: Patch) -> None:
    patch.setattr(map_writer, "MapRefused", type("Never", (Abortable,), {}))
    patch.setattr(MapWriter, "_refused", lambda self, error, blocks: "")


@mutation(
    test_map_topic.test_a_map_topic_that_is_deleted_under_a_lane_holds_up_nothing,
    test_map_topic.test_one_that_is_deleted_while_a_block_is_on_its_way_holds_it_up_for_a_moment,
    test_map_topic.test_one_that_was_made_again_is_written_again_by_a_lane_that_runs,
)
def notice_no_other_topic(patch: Patch) -> None:
    patch.setattr(MapWriter, "_gone", lambda self: "")


@mutation(partial(test_map_topic.test_one_that_came_back_in_another_shape_is_not_written, 1, {}))
def take_any_topic(patch: Patch) -> None:
    patch.setattr(MapWriter, "_fit", lambda self, topic_id: True)
