"""Verdicts on records: each kind of difference is named as what it is, and nothing else is."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from replicator.proof import verdicts
from replicator.proof.by_content import alterations
from replicator.proof.by_content.record_verdicts import Finding, ReadRecord, compare


@dataclass(frozen=True)
class Content:
    """Fields of a record as test data; `ms` is its timestamp."""

    key: str | None
    value: str | None
    ms: int
    headers: tuple[str, ...] = field(default=())


def side(contents: list[Content], offset_step: int = 1) -> list[ReadRecord]:
    def hashed(value: object) -> int | None:
        return None if value is None or value == () else hash(value)

    return [
        ReadRecord(
            rank,
            rank * offset_step,
            content.ms,
            hash(content),
            hashed(content.key),
            hashed(content.value),
            hashed(content.headers),
            content.key.encode() if content.key is not None else None,
        )
        for rank, content in enumerate(contents)
    ]


def many(count: int) -> list[Content]:
    return [Content(f"k{number % 7}", f"v{number}", 1000 + number // 3) for number in range(count)]


def found(source: list[Content], target: list[Content]) -> list[Finding]:
    return [finding for finding in told(side(source), side(target, offset_step=2)) if finding.verdict != verdicts.SAME]


def told(source: list[ReadRecord], target: list[ReadRecord], **how: bool) -> list[Finding]:
    """Of a partition that is one range."""
    findings = compare(source, target, **how)  # type: ignore[arg-type]
    open_ = [finding for finding in findings if finding.verdict in (verdicts.MISSING, verdicts.EXTRA)]
    return [*(finding for finding in findings if finding not in open_), *alterations.altered(open_)]


def kinds(source: list[Content], target: list[Content]) -> dict[str, int]:
    return dict(Counter(finding.verdict for finding in found(source, target)))


def test_equal_sides_have_one_finding_that_counts_them() -> None:
    assert compare(side(many(50)), side(many(50))) == [Finding(verdicts.SAME, 50, source_rank=0, target_rank=0)]
    assert compare([], []) == []


def test_one_lost_record_is_reported_as_one() -> None:
    records = many(1000)
    (finding,) = found(records, records[:400] + records[401:])
    assert (finding.verdict, finding.source_offset, finding.target_offset) == ("missing", 400, None)
    assert (finding.source_rank, finding.timestamp_ms, finding.key) == (400, 1000 + 133, b"k1")


def test_one_doubled_record_is_reported_as_one() -> None:
    records = many(1000)
    (finding,) = found(records, records[:401] + records[400:])
    assert finding.verdict == "doubled"
    assert finding.source_offset is None
    assert finding.target_offset in (800, 802)
    assert finding.other_after in (399, 400)
    assert finding.other_before == finding.other_after + 1


def test_a_record_from_elsewhere_is_extra() -> None:
    records = many(100)
    (finding,) = found(records, [*records[:50], Content("x", "y", 5), *records[50:]])
    assert (finding.verdict, finding.target_offset, finding.target_rank) == ("extra", 100, 50)


@pytest.mark.parametrize(
    ("now", "fields"),
    [
        (Content("k9", "v20", 1006), "key"),
        (Content(None, "v20", 1006), "key"),
        (Content("k6", "other", 1006), "value"),
        (Content("k6", None, 1006), "value"),
        (Content("k6", "v20", 1006, ("a",)), "headers"),
        (Content("k6", "v20", 999), "timestamp"),
        (Content("k6", "other", 999, ("a",)), "value,headers,timestamp"),
    ],
)
def test_an_altered_record_names_its_fields(now: Content, fields: str) -> None:
    records = many(60)
    (finding,) = found(records, [*records[:20], now, *records[21:]])
    assert (finding.verdict, finding.fields) == ("altered", fields)
    assert (finding.source_offset, finding.target_offset) == (20, 40)


def test_in_a_compacted_topic_a_common_key_alone_makes_no_alteration() -> None:
    """Of both records the other side may have been compacted away, and each of them may be lost."""
    was, now = side([Content("k", "v1", 1000)]), side([Content("k", "v2", 2000)])
    assert [item.verdict for item in told(was, now)] == ["altered"]
    assert [item.verdict for item in told(was, now, compacted=True)] == ["missing", "extra"]
    now = side([Content("k", "v2", 1000)])
    assert [item.verdict for item in told(was, now, compacted=True)] == ["altered"]


def test_where_a_head_was_cut_a_common_key_alone_makes_no_alteration_before_the_first_match() -> None:
    """The one may be older than all that the other side still has, and the other one a loss or somebody else's."""
    was, now, both = Content("k", "v1", 1000), Content("k", "v2", 2000), Content("x", "x", 3000)

    def compared(source: list[Content], target: list[Content]) -> list[str]:
        return [item.verdict for item in told(side(source), side(target), prefix_cut=True)]

    assert compared([was, both], [now, both]) == ["same", "missing", "extra"]
    assert compared([was, both], [Content("k", "v2", 1000), both]) == ["same", "altered"]
    assert compared([both, was], [both, now]) == ["same", "altered"]


def test_where_a_head_was_cut_the_earlier_ones_of_equal_records_are_gone() -> None:
    """Also where the first ones of both sides are equal, and something else differs behind them."""
    twice, end = Content("x", "x", 1), Content("z", "z", 9)
    source = side([twice, twice, Content("a", "a", 5), end])
    target = side([twice, Content("b", "b", 6), end])
    findings = compare(source, target, from_end=True)
    assert {item.source_offset for item in findings if item.verdict == verdicts.MISSING} == {0, 2}
    findings = compare(target, source, from_end=True)
    assert {(item.verdict, item.target_offset) for item in findings} >= {("doubled", 0), ("extra", 2)}


def test_swapped_records_are_one_reordering() -> None:
    records = many(100)
    swapped = [*records[:10], records[11], records[10], *records[12:]]
    (finding,) = found(records, swapped)
    assert finding.verdict == "reordered"
    assert {finding.source_offset, (finding.target_offset or 0) // 2} == {10, 11}


def test_nothing_in_common_is_missing_and_extra() -> None:
    source = [Content(None, None, number) for number in range(5)]
    target = [Content(None, None, 100 + number) for number in range(3)]
    assert kinds(source, target) == {"missing": 5, "extra": 3}
    assert kinds(source, []) == {"missing": 5}
    assert kinds([], target) == {"extra": 3}


def test_neighbours_of_different_kinds_are_told_apart() -> None:
    records = many(40)
    target = list(records)
    target[30] = Content("k2", "changed", records[30].ms)
    target[20], target[21] = target[21], target[20]
    target.insert(13, target[12])
    del target[5]
    assert kinds(records, target) == {"altered": 1, "reordered": 1, "doubled": 1, "missing": 1}


def test_the_neighbour_that_shares_more_is_the_altered_one() -> None:
    records = [Content(f"k{number}", f"v{number}", 7) for number in range(20)]
    findings = found(records, [*records[:9], Content("k10", "changed", 7), *records[11:]])
    assert {(finding.verdict, finding.source_offset) for finding in findings} == {("missing", 9), ("altered", 10)}


@pytest.mark.tier("default")
def test_random_damage_is_counted_exactly() -> None:
    chance = random.Random(7)
    for _ in range(200):
        records = many(120)
        lost = set(chance.sample(range(0, 120, 4), chance.randint(0, 8)))
        changed = set(chance.sample(range(1, 120, 4), chance.randint(0, 8)))
        doubled = set(chance.sample(range(2, 120, 4), chance.randint(0, 8)))
        target: list[Content] = []
        for number, record in enumerate(records):
            if number in lost:
                continue
            target.append(Content(record.key, "changed", record.ms) if number in changed else record)
            if number in doubled:
                target.append(record)
        expected = {"missing": len(lost), "altered": len(changed), "doubled": len(doubled)}
        assert kinds(records, target) == {name: count for name, count in expected.items() if count}
