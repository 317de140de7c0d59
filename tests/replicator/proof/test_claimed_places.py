"""Claimed offsets against those of records: one offset at a time says the same."""

from __future__ import annotations

import random
from array import array

import pytest

from replicator.proof.claimed_places import ClaimedPlaces, OffsetSpans

pytestmark = pytest.mark.tier("default")


def drawn_spans(drawn: random.Random, end: int) -> list[tuple[int, int]]:
    found, at = list[tuple[int, int]](), 0
    while at < end:
        first = at + drawn.choice((0, 0, 1, 3))
        at = first + drawn.choice((1, 2, 7))
        found.append((first, at))
    return found


def offsets(spans: OffsetSpans) -> set[int]:
    found = {offset for first, end in spans.spans for offset in range(first, end)}
    assert len(found) == spans.offsets
    return found


def test_runs_say_what_single_offsets_do() -> None:
    for seed in range(500):
        check(seed)


def check(seed: int) -> None:
    drawn = random.Random(seed)
    claims = [span for span in drawn_spans(drawn, 60) if drawn.random() < 0.8]
    start = drawn.choice((0, 0, 5, 33, 200))
    records = [span for span in drawn_spans(drawn, 70) if drawn.random() < 0.8 and span[0] >= start]
    places = ClaimedPlaces(array("q", (one[0] for one in claims)), array("q", (one[1] for one in claims)), start)
    for span in records:
        places.add(*span)
    places.finish()
    claimed = {offset for first, end in claims for offset in range(first, end)}
    standing = {offset for first, end in records for offset in range(first, end)}
    assert places.expired == sum(offset < start for offset in claimed)
    assert places.standing == len(claimed & standing)
    assert offsets(places.empty) == {offset for offset in claimed - standing if offset >= start}
    assert offsets(places.unclaimed) == standing - claimed
