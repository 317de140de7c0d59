"""Translated offsets, case by case; tests/model has them over whole histories."""

from __future__ import annotations

import pytest

from replicator.offset_map.fold import PartitionFold, PlacedSection, fold, reached
from replicator.offset_map.mapped import PartitionMap
from replicator.offset_map.section import MapSection
from replicator.offset_map.translate import ClaimedStart, TranslatedOffset, to_source, to_target
from replicator.offset_map.varints import OFFSET_MAX

SOURCE, TARGET, REVERSE = bytes(15) + b"\x01", bytes(15) + b"\x02", bytes(15) + b"\x03"


def section(before: int, after: int, first: int, *runs: tuple[int, int], base: bool = False) -> MapSection:
    return MapSection(
        source_topic_id=SOURCE, partition=0, before=before, after=after, first_target=first, runs=runs, base=base
    )


def placed(*sections: MapSection, target: bytes = TARGET) -> list[PlacedSection]:
    return [PlacedSection(1, number, 0, target, one) for number, one in enumerate(sections)]


def mapped(*sections: MapSection, pruned_to: int = 0) -> PartitionMap:
    folding = PartitionFold(SOURCE, TARGET)
    for one in placed(*sections):
        folding.add(one)
    if pruned_to:
        folding.prune(pruned_to)
    return folding.finished()


BEGUN = section(100, 100, 50, base=True)
FIRST = section(100, 112, 50, (100, 105), (106, 110))  # 50 to 54, 55 to 58
SECOND = section(112, 120, 60, (112, 120))
REPAIR = section(120, 120, 69, (105, 106))  # it had been skipped


PLAIN = (
    (100, TranslatedOffset(50, 0)),
    (103, TranslatedOffset(53, 0)),
    (105, TranslatedOffset(55, 0)),  # a hole of the source
    (110, TranslatedOffset(60, 0)),
    (119, TranslatedOffset(67, 0)),
    (120, TranslatedOffset(68, 0)),  # the end: the next target offset
    (130, TranslatedOffset(68, None, ("ahead",))),
    (99, TranslatedOffset(50, 0, ("before_start",))),
)


def test_offsets_of_a_plain_flow_are_exact() -> None:
    found = mapped(BEGUN, FIRST, SECOND)
    assert [to_target(found, offset) for offset, _ in PLAIN] == [expected for _, expected in PLAIN]


def test_behind_a_repair_it_says_what_is_read_again() -> None:
    """At 106 the repaired record, which stands behind, was consumed already."""
    found = mapped(BEGUN, FIRST, SECOND, REPAIR)
    assert [to_target(found, offset)[:2] for offset in (105, 106, 115, 120)] == [(55, 0), (55, 1), (63, 1), (70, 0)]


def test_the_smallest_place_of_all_is_taken_and_not_that_of_the_first() -> None:
    found = to_target(mapped(BEGUN, FIRST, SECOND, REPAIR), 105)
    assert found == TranslatedOffset(55, 0)  # 105 itself stands at 69: from there 106 to 119 would be skipped


def test_before_the_map_began_there_are_only_bounds() -> None:
    claim = ClaimedStart(20, 7)
    assert to_target(mapped(BEGUN, FIRST), 60, claim=claim) == TranslatedOffset(None, None, ("before_map",), (7, 50))
    found = to_target(mapped(BEGUN, FIRST), 3, claim=claim)
    assert found == TranslatedOffset(None, None, ("before_start", "before_map"), (7, 50))


def test_an_offset_of_another_topic_is_not_translated() -> None:
    assert to_target(mapped(BEGUN, FIRST), 101, topic_id=REVERSE) == TranslatedOffset(None, None, ("another_topic",))


@pytest.mark.parametrize("pruned_to", [0, 57])
def test_below_the_log_start_it_goes_on_there(pruned_to: int) -> None:
    """Of what was pruned a part was copied again since: then it isn't known any more how much else there was."""
    found = mapped(BEGUN, FIRST, SECOND, REPAIR, pruned_to=pruned_to)
    known = not pruned_to
    assert to_target(found, 101, target_start=57) == TranslatedOffset(57, 0 if known else None, ("expired",))
    assert to_target(found, 107, target_start=57) == TranslatedOffset(57, 1 if known else None, ("expired",))
    assert to_target(found, 109, target_start=57) == TranslatedOffset(58, 1)


def test_what_is_read_again_is_known_after_what_was_before_it_was_pruned() -> None:
    """The repaired records stand behind higher source offsets, of which the map has forgotten the places."""
    lost = section(100, 110, 50, (100, 110))
    later = section(110, 130, 50, (110, 130))
    repair = section(130, 130, 75, (100, 110))
    found = mapped(BEGUN, lost, later, repair, pruned_to=72)
    assert to_target(found, 120, target_start=72) == TranslatedOffset(72, 10, ("expired",))


def test_where_the_chain_is_broken_nothing_is_skipped() -> None:
    again = section(115, 120, 70, (115, 120), base=True)
    found = mapped(BEGUN, FIRST, again)  # of 112 to 114 nothing is known: they stand at 59 to 69
    assert [(one.first, one.end, one.target_first, one.target_end) for one in found.unmapped] == [(112, 115, 59, 70)]
    assert to_target(found, 109) == TranslatedOffset(58, 0)
    assert to_target(found, 110) == TranslatedOffset(59, None, ("unmapped",))
    assert to_target(found, 114) == TranslatedOffset(59, None, ("unmapped",))
    assert to_target(found, 115) == TranslatedOffset(70, 0)
    assert to_source(found, 64) == TranslatedOffset(112, None, ("unmapped",))


LOST = (
    (850, TranslatedOffset(850, 0)),  # of what is left nothing is skipped
    (899, TranslatedOffset(899, 0)),
    (900, TranslatedOffset(900, 0)),
    (950, TranslatedOffset(900, None, ("lost",))),
    (1_000, TranslatedOffset(900, None, ("lost",))),
    (1_200, TranslatedOffset(900, None, ("ahead", "lost"))),
)


@pytest.mark.parametrize("offset", range(len(LOST)))
def test_behind_the_end_that_the_target_has_lost_it_goes_on_at_what_is_its_end_now(offset: int) -> None:
    """Others write from there on: whoever began behind it would skip their records."""
    folding = PartitionFold(SOURCE, TARGET)
    for one in placed(section(0, 0, 0, base=True), section(0, 1_000, 0, (0, 1_000))):
        folding.add(one)
    found = folding.finished(reached(900, 900))
    asked, expected = LOST[offset]
    assert to_target(found, asked, target_end=900, position=1_000, claim=ClaimedStart(0, 0)) == expected


def test_behind_a_lost_end_a_broken_chain_leads_nowhere_either() -> None:
    again = section(115, 120, 70, (115, 120), base=True)
    found = to_target(mapped(BEGUN, FIRST, again), 110, target_end=57)
    assert found == TranslatedOffset(57, None, ("unmapped", "lost"))


BACKWARDS = (
    (50, TranslatedOffset(100, 0)),
    (55, TranslatedOffset(105, 0)),
    (59, TranslatedOffset(105, 4)),  # the repaired one, and with it what lies behind it
    (70, TranslatedOffset(120, 0)),
    (90, TranslatedOffset(120, None, ("ahead",))),
    (49, TranslatedOffset(None, None, ("before_map",), (0, 100))),
)


def test_backwards_the_smallest_source_offset_that_was_not_consumed() -> None:
    found = mapped(BEGUN, FIRST, SECOND, REPAIR)
    assert [to_source(found, offset) for offset, _ in BACKWARDS] == [expected for _, expected in BACKWARDS]


def test_backwards_below_the_source_s_log_start() -> None:
    assert to_source(mapped(BEGUN, FIRST, SECOND), 52, source_start=104) == TranslatedOffset(104, 0, ("expired",))


CUT = (
    (55, TranslatedOffset(106, 0)),
    (58, TranslatedOffset(109, 0)),
    (59, TranslatedOffset(109, None, ("lost",))),
    (68, TranslatedOffset(109, None, ("lost",))),
    (90, TranslatedOffset(109, None, ("ahead", "lost"))),
)


@pytest.mark.parametrize("offset", range(len(CUT)))
def test_backwards_behind_the_end_that_the_source_has_lost_it_goes_on_at_what_is_its_end_now(offset: int) -> None:
    """Producers write from there on: whoever began behind it would skip their records."""
    asked, expected = CUT[offset]
    assert to_source(mapped(BEGUN, FIRST, SECOND), asked, source_end=109) == expected


def test_backwards_records_of_others_are_not_skipped() -> None:
    """Somebody has written to the target at 59; the other flow has brought it back to the source, at 111."""
    native = MapSection(
        source_topic_id=TARGET, partition=0, before=0, after=60, first_target=111, count=1, runs=((59, 60),), base=True
    )
    other = fold([PlacedSection(1, 0, 0, SOURCE, native)], TARGET, SOURCE)
    found = mapped(BEGUN, FIRST, SECOND)
    assert to_source(found, 59).offset == 112
    assert to_source(found, 59, native=other).offset == 111
    assert to_source(found, 60, native=other).offset == 112


def test_beyond_the_end_of_the_map_and_below_the_position_nothing_is_exact() -> None:
    """The map's last blocks are lost, or can't be relied on yet."""
    found = fold(placed(BEGUN, FIRST), SOURCE, TARGET)
    assert to_target(found, found.passed, position=120) == TranslatedOffset(59, 0)
    assert to_target(found, 115, position=120) == TranslatedOffset(59, None, ("unmapped",))
    assert to_target(found, 130, position=120) == TranslatedOffset(59, None, ("ahead", "unmapped"))


def test_what_stands_on_the_target_before_the_flow_is_nobody_s() -> None:
    found = fold(placed(BEGUN, FIRST), SOURCE, TARGET)
    assert to_source(found, 49, claim=ClaimedStart(100, 50)) == TranslatedOffset(100, 0, ("before_start",))
    later = to_source(found, 49, claim=ClaimedStart(90, 40))  # ten records were copied before the map began
    assert later == TranslatedOffset(None, None, ("before_map",), (90, 100))


def test_sections_count_once_the_target_s_stable_offset_has_reached_them() -> None:
    sections = placed(BEGUN, FIRST, SECOND)
    behind, there = fold(sections, SOURCE, TARGET, stable=60), fold(sections, SOURCE, TARGET, stable=68)
    assert (behind.passed, behind.next_target, to_target(behind, 115)) == (
        112,
        59,
        TranslatedOffset(59, None, ("ahead",)),
    )
    assert (there.passed, to_target(there, 115)) == (120, TranslatedOffset(63, 0))
    assert reached(60, 80) == 60
    assert reached(60, 60) == OFFSET_MAX  # no transaction is open: what the map has above is lost


def test_sections_out_of_order_are_refused_by_one_fold_and_sorted_by_the_other() -> None:
    one, other = placed(BEGUN, FIRST)
    folding = PartitionFold(SOURCE, TARGET)
    folding.add(other)
    with pytest.raises(ValueError, match="after"):
        folding.add(one)
    assert list(fold([other, one], SOURCE, TARGET).by_source) == list(mapped(BEGUN, FIRST).by_source)
