"""Chains and counts of a partition's sections, and the map up to a position: what is in flight isn't judged."""

from __future__ import annotations

import pytest

from replicator.model.partition import Span
from replicator.offset_map.fold import PlacedSection
from replicator.offset_map.section import MapSection
from replicator.offset_map.varints import OFFSET_MAX
from replicator.proof.map_chain import ChainBreak, MapChain
from replicator.proof.map_cut import MapUpTo

pytestmark = pytest.mark.tier("default")
ID = bytes(15) + b"\x01"


def section(before: int, after: int, first: int, *runs: Span, count: int, base: bool = False) -> MapSection:
    return MapSection(
        source_topic_id=ID,
        partition=0,
        before=before,
        after=after,
        first_target=first,
        runs=runs,
        count=count,
        base=base,
    )


def chain_of(
    *sections: MapSection, position: int = OFFSET_MAX, since_ms: int | None = None, origin: int = 0, begins: int = -1
) -> MapChain:
    chain = MapChain(position, since_ms, origin, begins)
    for number, one in enumerate(sections):
        chain.add(PlacedSection(1, number, 0, b"", one), 1_000 * number)
    return chain


FIRST = section(0, 10, 0, (0, 10), count=10, base=True)
SECOND = section(10, 22, 11, (10, 15), (17, 22), count=20)


def test_sections_that_follow_one_another_claim_all_of_their_copies() -> None:
    chain = chain_of(FIRST, SECOND)
    assert (chain.begun, chain.after, chain.count, chain.next_target) == (0, 22, 20, 21)
    assert list(zip(chain.firsts, chain.ends, strict=True)) == [(0, 10), (11, 21)]
    assert (chain.copies, chain.wrong, chain.breaks, chain.voided) == (20, [], [], 0)


def test_a_section_that_is_missing_is_a_break_and_one_where_the_map_begins_again_says_so() -> None:
    later = section(30, 40, 50, (30, 40), count=40)
    assert chain_of(FIRST, later).breaks == [ChainBreak(10, 30, (10, 50), False)]
    again = section(30, 40, 50, (30, 40), count=40, base=True)
    assert chain_of(FIRST, again).breaks == [ChainBreak(10, 30, (10, 50), True)]


def test_what_is_below_an_earlier_claim_voids_it() -> None:
    chain = chain_of(FIRST, SECOND, section(22, 30, 15, (22, 30), count=28))
    assert list(zip(chain.firsts, chain.ends, strict=True)) == [(0, 10), (11, 23)]
    assert (chain.voided, chain.next_target) == (6, 23)


def test_counts_must_go_on() -> None:
    wrong = chain_of(FIRST, section(10, 20, 11, (10, 20), count=21)).wrong
    assert wrong == ["the count at source offset 10 goes on from 11, and the last one was 10"]
    repaired = section(22, 22, 30, (12, 13), count=20)
    assert chain_of(FIRST, SECOND, repaired, section(22, 23, 40, (22, 23), count=21)).wrong == []


@pytest.mark.parametrize("adopted", [4, 22, 40])
def test_what_stood_before_an_adoption_is_not_the_flows(adopted: int) -> None:
    again = section(adopted, adopted + 5, 30, (adopted, adopted + 5), count=5, base=True)
    chain = chain_of(FIRST, SECOND, again, origin=25)
    assert (chain.begun, chain.after, chain.count, chain.sections) == (adopted, adopted + 5, 5, 1)
    assert list(zip(chain.firsts, chain.ends, strict=True)) == [(30, 35)]
    assert (chain.wrong, chain.breaks, chain.restarts, chain.voided) == ([], [], 0, 0)
    before = chain_of(FIRST, SECOND, origin=25)
    assert (before.sections, before.begun, before.after, before.count, before.copies) == (0, -1, -1, 0, 0)


@pytest.mark.parametrize("lost", [False, True])
def test_a_target_topic_that_was_created_again_has_target_offsets_from_the_beginning(*, lost: bool) -> None:
    again = section(0, 12, 0, (0, 12), count=12, base=True)
    chain = chain_of(FIRST, SECOND, again, begins=4 if lost else 0)
    assert list(zip(chain.firsts, chain.ends, strict=True)) == [(0, 12)]
    assert (chain.after, chain.count) == (12, 12)
    assert (chain.sections, chain.voided, chain.restarts) == ((3, 20, 1) if lost else (1, 0, 0))


def test_a_section_without_copies_counts_with_those_around_it() -> None:
    nowhere = section(22, 25, -1, count=20)
    assert chain_of(FIRST, SECOND, nowhere, origin=25).sections == 0
    at_first = section(0, 3, -1, count=0, base=True)
    chain = chain_of(at_first, section(3, 8, 30, (3, 8), count=5), origin=25)
    assert (chain.begun, chain.after, chain.sections) == (0, 8, 2)


def test_going_back_is_wrong_unless_the_map_begins_again_there() -> None:
    back = section(5, 22, 11, (5, 22), count=37)
    assert "begins at source offset 5, and the last one ended at 10" in chain_of(FIRST, back).wrong[0]
    adopted = section(5, 22, 11, (5, 22), count=17, base=True)
    chain = chain_of(FIRST, adopted)
    assert (chain.wrong, chain.restarts) == ([], 1)


def test_sections_out_of_their_order_are_wrong() -> None:
    chain = MapChain(OFFSET_MAX)
    chain.add(PlacedSection(2, 0, 0, b"", FIRST), 0)
    chain.add(PlacedSection(1, 5, 0, b"", SECOND), 0)
    assert chain.wrong == ["a section of generation 1 follows one of generation 2"]


def test_only_what_was_committed_since_then_is_looked_at_and_all_of_it_is_followed() -> None:
    chain = chain_of(FIRST, SECOND, since_ms=1_000)
    assert list(zip(chain.firsts, chain.ends, strict=True)) == [(11, 21)]
    assert (chain.begun, chain.count) == (0, 20)
    assert chain_of(FIRST, section(30, 40, 50, (30, 40), count=40), since_ms=5_000).breaks != []


def test_what_was_committed_behind_the_position_is_not_judged() -> None:
    later = section(22, 30, 30, (22, 30), count=28)
    chain = chain_of(FIRST, SECOND, later, position=22)
    assert (chain.after, chain.count, chain.sections) == (22, 20, 2)
    upto = MapUpTo(ID, bytes(16), 22)
    for number, one in enumerate((FIRST, SECOND, later)):
        upto.add(PlacedSection(1, number, 0, b"", one))
    mapped = upto.finished()
    assert mapped is not None
    assert (mapped.passed, mapped.next_target) == (22, 21)


def test_what_was_passed_before_the_position_was_set_back_counts() -> None:
    upto = MapUpTo(ID, bytes(16), 12)
    back = section(10, 12, 30, (10, 12), count=2, base=True)
    for number, one in enumerate((FIRST, SECOND, back)):
        upto.add(PlacedSection(1, number, 0, b"", one))
    mapped = upto.finished()
    assert upto.sections == 3
    assert mapped is not None
    assert (mapped.passed, mapped.by_source.place(10), mapped.by_source.place(9)) == (12, 30, 9)


def test_a_map_without_a_section_up_to_the_position_is_none() -> None:
    upto = MapUpTo(ID, bytes(16), 5)
    upto.add(PlacedSection(1, 0, 0, b"", FIRST))
    assert upto.finished() is None


def test_a_map_is_whole_since_its_beginning_or_the_last_gap_in_it() -> None:
    upto = MapUpTo(ID, bytes(16), 100)
    assert upto.since is None
    lost = section(30, 40, 50, (30, 40), count=40, base=True)
    more = section(40, 45, 60, (40, 45), count=45, base=True)
    told = list[tuple[int, int] | None]()
    for number, one in enumerate((FIRST, SECOND, lost, more, section(45, 45, 70, (3, 5), count=45))):
        upto.add(PlacedSection(1, number, 0, b"", one), 1_000 + number)
        told.append(upto.since)
    assert told == [(0, 1_000), (0, 1_000), (30, 1_002), (30, 1_002), (30, 1_002)]


def test_sections_out_of_order_end_what_is_taken() -> None:
    upto = MapUpTo(ID, bytes(16), 100)
    upto.add(PlacedSection(2, 0, 0, b"", FIRST))
    upto.add(PlacedSection(1, 5, 0, b"", SECOND))
    assert "section (1, 5, 0) after (2, 0, 0)" in upto.unordered
    mapped = upto.finished()
    assert mapped is not None
    assert mapped.passed == 10
