"""Whatever a repair is told to copy: no record is doubled, and no key of a compacted topic gets a wrong last one."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from replicator.jobs.repair_decision import WITHOUT_KEY, Asked, Decision
from replicator.jobs.repair_spans import Missing
from replicator.planes.contract import RecordIdentity
from tests.budget import budget


def log(records: list[str]) -> list[RecordIdentity]:
    """`key=value` has that key; any other has none."""
    return [
        RecordIdentity(n, record.encode(), record.partition("=")[0].encode() if "=" in record else None)
        for n, record in enumerate(records)
    ]


def decided(source: list[str], target: list[str], spans: list[Missing], *, compacted: bool = False) -> Decision:
    asked, here = Asked(compacted=compacted), log(source)
    for span in spans:
        asked.wanted(span, here[span.first : span.end])
    asked.target(log(target))
    if asked.needs_source:
        asked.source(here)
    return asked.decide()


def after(source: list[str], target: list[str], found: Decision) -> list[str]:
    return [*target, *(record for span in found.copied for record in source[span.first : span.end])]


def drawn_spans(drawn: random.Random, end: int) -> list[Missing]:
    """What a bad reconciliation may have said: any records at all."""
    cuts = sorted(drawn.sample(range(end + 1), 2 * drawn.randrange((end + 1) // 2 + 1)))
    return [Missing(a, b, b - a) for a, b in zip(cuts[::2], cuts[1::2], strict=True)]


@pytest.mark.tier("default")
@pytest.mark.parametrize("seed", range(budget(10, 100)))
def test_a_wrong_list_never_makes_the_target_worse(seed: int) -> None:
    drawn = random.Random(seed)
    for _ in range(200):
        kinds = drawn.choice((2, 10, 1_000))
        source = [f"r{drawn.randrange(kinds)}" for _ in range(drawn.randrange(1, 60))]
        target = [record for record in source if drawn.random() < drawn.choice((0.5, 0.9, 1.0))]
        target += [f"r{drawn.randrange(kinds)}" for _ in range(drawn.choice((0, 0, 3)))]
        drawn.shuffle(target)
        if drawn.random() < 0.3:
            del target[: drawn.randrange(len(target) + 1)]
        spans = drawn_spans(drawn, len(source))
        found = decided(source, target, spans)
        truth, was, now = Counter(source), Counter(target), Counter(after(source, target, found))
        for record, count in now.items():
            assert was[record] <= count <= max(was[record], truth[record]), (source, target, spans)
        asked = Counter(record for span in spans for record in source[span.first : span.end])
        for record, count in asked.items():
            lacking = max(0, truth[record] - was[record])
            assert now[record] - was[record] == min(count, lacking), "all that is lost and was asked for"


@pytest.mark.parametrize("seed", range(budget(10, 100)))
def test_in_a_compacted_topic_the_last_record_of_a_key_is_never_an_older_one(seed: int) -> None:
    drawn = random.Random(seed)
    for _ in range(200):
        keys = drawn.choice((1, 3, 20))
        source = [f"k{drawn.randrange(keys)}={n}" for n in range(drawn.randrange(1, 40))]
        target = [record for record in source if drawn.random() < drawn.choice((0.3, 0.8))]
        found = decided(source, target, drawn_spans(drawn, len(source)), compacted=True)
        before, now = last(target), last(after(source, target, found))
        newest = last(source)
        for key, record in now.items():
            assert record in (before.get(key), newest[key]), (source, target)
            assert source.index(record) >= source.index(before.get(key, source[0]))
        assert all(now[key] == record for key, record in before.items() if record == newest[key])


def last(records: list[str]) -> dict[str, str]:
    return {record.partition("=")[0]: record for record in records}


def test_the_size_of_the_missing_records_is_told() -> None:
    """On the average: by it the policy says how much is read between them."""
    asked = Asked(compacted=False)
    asked.wanted(Missing(0, 2, 2), [RecordIdentity(n, b"%d" % n, None, size) for n, size in ((0, 10), (1, 20))])
    asked.wanted(Missing(7, 8, 1), [RecordIdentity(7, b"7", None, 30)])
    asked.target([])
    assert asked.decide().record_bytes == 20
    assert Asked(compacted=False).decide().record_bytes == 0


def test_a_record_that_no_client_can_compare_is_copied() -> None:
    """Its digest is unknown, not equal to that of another."""
    asked = Asked(compacted=False)
    asked.wanted(Missing(0, 1, 1), [RecordIdentity(0, b"", None)])
    asked.target([RecordIdentity(0, b"", None)])
    assert not asked.needs_source
    assert asked.decide().copied == [Missing(0, 1, 1)]


def test_a_compacted_topic_takes_no_record_without_a_key_and_the_others_are_copied() -> None:
    """It may have taken one before it was compacted."""
    found = decided(["x", "k=1"], [], [Missing(0, 2, 2)], compacted=True)
    assert found.copied == [Missing(1, 2, 1)]
    assert found.refused == {WITHOUT_KEY: 1}


def test_of_a_key_two_records_that_no_client_can_compare_are_not_the_same() -> None:
    asked = Asked(compacted=True)
    asked.wanted(Missing(0, 1, 1), [RecordIdentity(0, b"", b"k")])
    asked.target([RecordIdentity(7, b"", b"k")])
    asked.source([RecordIdentity(0, b"", b"k")])
    found = asked.decide()
    assert (found.superseded, found.copied) == (1, [])
