"""Verdicts by the map and what a repair copies, case by case; tests/model has them over whole histories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from replicator.offset_map.compare import compare
from replicator.offset_map.fold import PlacedSection, fold
from replicator.offset_map.places import TooManyLeft
from replicator.offset_map.repair_rule import records_to_copy
from replicator.offset_map.section import DroppedRecord, MapSection, SetAside
from replicator.offset_map.verdicts import ComparedRecord, MapComparison, MapFinding, MapVerdict, SidesEvidence

V = MapVerdict
SOURCE, TARGET = bytes(15) + b"\x01", bytes(15) + b"\x02"
SECTION = MapSection(
    source_topic_id=SOURCE, partition=0, before=0, after=5, first_target=10, count=5, runs=((0, 5),), base=True
)


def rows(text: str, first: int, key: bytes | None = None) -> list[ComparedRecord]:
    """One record for each letter; a point is an offset without one, a capital letter a tombstone."""
    return [
        ComparedRecord(offset, letter.lower().encode(), key, letter.isupper())
        for offset, letter in enumerate(text, first)
        if letter != "."
    ]


def compared(
    source: str,
    target: str,
    *sections: MapSection,
    known: SidesEvidence | None = None,
    key: bytes | None = None,
    first: int = 0,
) -> MapComparison:
    placed = [PlacedSection(1, n, 0, TARGET, one) for n, one in enumerate(sections or (SECTION,))]
    here, there = rows(source, first, key), rows(target, 10, key)
    mapped = fold(placed, SOURCE, TARGET)
    return compare(mapped, lambda: here, lambda: there, lambda: known or SidesEvidence())


def verdicts(found: MapComparison) -> list[tuple[MapVerdict, int | None, int | None]]:
    return [finding[:3] for finding in found.findings]


def test_a_right_copy_is_the_same_and_nothing_is_read_twice() -> None:
    found = compared("abcde", "abcde.")
    assert (found.counts[V.SAME], found.findings, found.doubts) == (5, [], {})


@pytest.mark.parametrize(("target", "left"), [("ab....", 3), ("abxyz.", 6)])
def test_no_more_is_kept_in_memory_than_is_allowed(target: str, left: int) -> None:
    """Up to the last record that is read: missing ones, and others in their places."""
    mapped = fold([PlacedSection(1, 0, 0, TARGET, SECTION)], SOURCE, TARGET)
    here, there = rows("abcde", 0), rows(target, 10)
    compare(mapped, lambda: here, lambda: there, SidesEvidence, left_max=left)
    with pytest.raises(TooManyLeft):
        compare(mapped, lambda: here, lambda: there, SidesEvidence, left_max=left - 1)


@pytest.mark.parametrize(("fits", "verdict"), [(False, V.ALTERED), (True, V.SOURCE_CHANGED)])
def test_another_record_in_its_place(fits: bool, verdict: MapVerdict) -> None:
    found = compared("abcde", "abxde", known=SidesEvidence(digest_fits=lambda offset: fits))
    assert found.findings == [MapFinding(verdict, 2, 12, by_digest=fits)]
    assert records_to_copy(found).left == {2: "not_asked_for"}
    assert records_to_copy(found, also={verdict}).copied == [2]


def test_a_copy_elsewhere_is_displaced_and_what_stands_there_no_alteration() -> None:
    """The map is wrong by one: c was skipped, and d stands where c should."""
    found = compared("abcde", "abde.")
    assert verdicts(found) == [(V.MISSING, 2, 12), (V.DISPLACED, 3, 12), (V.DISPLACED, 4, 13)]
    assert found.doubts == {"displaced": 2}
    assert records_to_copy(found).copied == [2]


def test_a_record_that_no_claim_names_is_missing_and_the_map_is_doubted() -> None:
    found = compared("abcde", "abde", replace(SECTION, runs=((0, 2), (3, 5))))
    assert verdicts(found) == [(V.MISSING, 2, None)]
    assert found.doubts == {"unclaimed": 1}


def test_what_the_map_names_is_no_loss() -> None:
    aside, dropped = (SetAside(1, 0, 7),), (DroppedRecord(2, 0),)
    gap = MapSection(source_topic_id=SOURCE, partition=0, before=5, after=7, gap=True)
    section = replace(SECTION, runs=((0, 1), (3, 5)), aside=aside, dropped=dropped)
    found = compared("abcdefg", "ade", section, gap)
    assert verdicts(found) == [
        (V.SET_ASIDE, 1, None),
        (V.DROPPED, 2, None),
        (V.SIGNED_GAP, 5, None),
        (V.SIGNED_GAP, 6, None),
    ]
    assert records_to_copy(found).copied == []
    assert found.doubts == {}


def test_below_the_target_s_log_start_and_the_source_s() -> None:
    known = SidesEvidence(source_start=1, target_start=12)
    found = compared("bcde", "..cde", known=known, first=1)
    assert verdicts(found) == [(V.EXPIRED, 1, 11)]
    found = compared("cde", ".bcde", known=replace(known, source_start=2), first=2)
    assert found.findings == [MapFinding(V.SOURCE_GONE, 1, 11, "retention")]


@pytest.mark.parametrize(
    ("known", "why"), [(SidesEvidence(source_compacted=True), "compaction"), (SidesEvidence(), "unknown")]
)
def test_a_source_record_that_is_gone(known: SidesEvidence, why: str) -> None:
    known = replace(known, digest_fits=lambda offset: True)
    found = compared("ab.de", "abcde", known=known)
    assert found.findings == [MapFinding(V.SOURCE_GONE, 2, 12, why, by_digest=True)]
    assert bool(found.doubts) == (why == "unknown")


def test_records_of_others_and_second_copies() -> None:
    second = replace(SECTION, before=5, after=6, first_target=18, count=6, runs=((5, 6),), base=False)
    found = compared("abcdef", "abcde.xbf", replace(SECTION), second)
    assert verdicts(found) == [(V.EXTRA, None, 16), (V.DOUBLED, None, 17)]


def test_where_the_chain_is_broken_content_decides() -> None:
    again = replace(SECTION, before=8, after=10, first_target=19, count=7, runs=((8, 10),), base=True)
    found = compared("abcdefghij", "abcde.fhx", SECTION, again)
    assert [(one.verdict, one.source, one.target, one.by_content) for one in found.findings] == [
        (V.MISSING, 6, None, True),
        (V.MISSING, 8, 19, False),
        (V.MISSING, 9, 20, False),
        (V.EXTRA, None, 18, True),
    ]
    assert found.same_by_content == 2


KNOWN = SidesEvidence(target_compacted=True, emptied=lambda offset: True)


@pytest.mark.parametrize(
    ("source", "target", "key", "expected"),
    [
        ("abcde", "....e", b"k", [(V.COMPACTED, n, 10 + n) for n in range(4)]),
        ("abcde", "abcd.", b"k", [(V.MISSING, 4, 14)]),  # its key's last one
        ("abcde", ".bcde", None, [(V.COMPACTED, 0, 10)]),
        ("abcdE", ".....", b"k", [(V.COMPACTED, n, 10 + n) for n in range(5)]),
        ("abcdE", "abcd.", b"k", [(V.MISSING, 4, 14)]),  # a tombstone goes after what it deletes
    ],
)
def test_compaction(
    source: str, target: str, key: bytes | None, expected: Sequence[tuple[MapVerdict, int, int]]
) -> None:
    assert verdicts(compared(source, target, key=key, known=KNOWN)) == list(expected)


def test_an_offset_that_compaction_has_not_emptied_is_a_loss() -> None:
    known = replace(KNOWN, emptied=lambda offset: False)
    assert verdicts(compared("abcde", "ab.de", key=b"k", known=known)) == [(V.MISSING, 2, 12)]


def test_in_a_compacted_topic_only_a_key_s_last_record_is_copied() -> None:
    known = SidesEvidence(target_compacted=True)
    found = compared("abcde", "ab...", key=b"k", known=known)
    choice = records_to_copy(found)
    assert (choice.copied, choice.left) == ([4], {2: "superseded", 3: "superseded"})
    assert records_to_copy(compared("abcde", "abcd.", known=known)).left == {4: "without_key"}


def test_nothing_is_copied_while_an_equal_record_stands_where_nothing_is_compared() -> None:
    found = compared("abccc", "ab....c")  # the last one stands behind what the map knows
    choice = records_to_copy(found)
    assert (choice.copied, choice.left) == ([3, 4], {2: "standing"})


def test_of_equal_records_that_one_is_missing_whose_lack_nothing_explains() -> None:
    """The place of the first a has expired; so the a that stands in a wrong place is the second one."""
    second = replace(SECTION, before=5, after=6, first_target=16, count=6, runs=((5, 6),), base=False)
    found = compared("abcdaf", "...d.af", SECTION, second, known=SidesEvidence(target_start=13))
    assert verdicts(found) == [(V.EXPIRED, 0, 10), (V.EXPIRED, 1, 11), (V.EXPIRED, 2, 12), (V.DISPLACED, 4, 15)]


def test_a_record_that_the_client_cannot_return_equals_none() -> None:
    found = compared("abcde", "abcde")
    assert found.counts[V.SAME] == 5
    row = ComparedRecord(0, b"")
    mapped = fold([PlacedSection(1, 0, 0, TARGET, SECTION)], SOURCE, TARGET)
    found = compare(mapped, lambda: [row], lambda: [ComparedRecord(10, b"")], SidesEvidence)
    assert verdicts(found) == [(V.ALTERED, 0, 10)]
    assert records_to_copy(found, also={V.ALTERED}).left == {0: "standing"}
