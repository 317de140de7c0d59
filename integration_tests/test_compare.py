"""The comparator itself: it must see each kind of damage, or all tests that rest on it assert nothing."""

from __future__ import annotations

import pytest

from integration_tests.harness.compare import CopyVerdict, ReadRecord, compare_records


def record(number: int, value: bytes = b"v") -> ReadRecord:
    return ReadRecord(b"record %08d" % number, value, (), 1)


FIVE = [record(number) for number in range(5)]


@pytest.mark.parametrize(
    ("target", "verdict"),
    [
        (FIVE, CopyVerdict(5, 5, lost=0, doubled=0, reordered=0, altered=0)),
        (FIVE[:2] + FIVE[3:], CopyVerdict(5, 4, lost=1, doubled=0, reordered=0, altered=0)),
        (FIVE[:-1], CopyVerdict(5, 4, lost=1, doubled=0, reordered=0, altered=0)),
        (FIVE[:3] + FIVE[1:], CopyVerdict(5, 7, lost=0, doubled=2, reordered=0, altered=0)),
        ([*FIVE[:2], FIVE[3], FIVE[2], FIVE[4]], CopyVerdict(5, 5, lost=0, doubled=0, reordered=1, altered=0)),
        ([*FIVE[:4], record(4, b"w")], CopyVerdict(5, 5, lost=0, doubled=0, reordered=0, altered=1)),
        ([*FIVE, record(9)], CopyVerdict(5, 6, lost=0, doubled=0, reordered=0, altered=1)),
        ([], CopyVerdict(5, 0, lost=5, doubled=0, reordered=0, altered=0)),
    ],
)
def test_each_kind_of_damage_is_counted(target: list[ReadRecord], verdict: CopyVerdict) -> None:
    assert compare_records(FIVE, target) == verdict
    assert verdict.exact == (target == FIVE)


@pytest.mark.parametrize(
    "changed",
    [
        ReadRecord(b"record 00000001", None, (), 1),
        ReadRecord(b"record 00000001", b"v", (("a", b"1"),), 1),
        ReadRecord(b"record 00000001", b"v", (), 2),
    ],
)
def test_value_headers_and_timestamp_count_as_content(changed: ReadRecord) -> None:
    assert compare_records([record(1)], [changed]).altered == 1


def test_a_record_without_a_key_is_known_by_its_value() -> None:
    nameless = ReadRecord(None, b"record 00000001 padding", (), 1)
    assert nameless.name == record(1).name
    assert compare_records([nameless], [record(1)]).altered == 1
