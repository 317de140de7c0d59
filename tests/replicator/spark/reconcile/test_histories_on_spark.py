"""The same histories with everything that Spark does, and with logs that retention has cut; and what a repair decides.

`integration_tests/spark/test_seeded_repair.py` has more of them, on real brokers, and carries the repair out.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

import pytest
from pyspark.sql import SparkSession

from replicator.jobs.repair_decision import Asked
from replicator.jobs.repair_spans import Missing
from replicator.model.partition import Partition
from replicator.planes.contract import RecordIdentity
from replicator.proof.by_content import alignment
from replicator.proof.pairs import Pair
from replicator.spark.reconcile import explain, missing
from tests.budget import budget
from tests.replicator.spark.reconcile.drawn import Content, Drawn, Entry, spread
from tests.replicator.spark.reconcile.histories import drawn_history, wrongly_counted
from tests.replicator.spark.reconcile.pipeline import counted
from tests.replicator.spark.reconcile.read_lists import found

SEEDS, AT_ONCE = budget(12, 100), budget(6, 50)
MEANS = (8, 512)
pytestmark = [pytest.mark.tier("full"), pytest.mark.timeout(budget(600, 7_200))]


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_no_verdict_is_wrong_and_no_repair_does_harm(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    drawn = {Partition("t", seed): with_offsets(seed) for seed in range(first, min(first + AT_ONCE, SEEDS))}
    monkeypatch.setattr(alignment, "MEAN_MIN", MEANS[first // AT_ONCE % len(MEANS)])
    monkeypatch.setattr(explain, "ON_DRIVER_MAX", random.Random(~first).choice((0, explain.ON_DRIVER_MAX, 1 << 30)))
    outcome, findings = found(spark, monkeypatch, drawn.values())
    unsure, spans = missing.unsure(outcome), missing.spans(findings)
    for partition in outcome.partitions:
        at, one = partition.source, drawn[partition.source]
        source, target = ([entry.content for entry in side] for side in (one.source, one.target))
        if not (one.pair.source_cut or one.pair.target_cut):
            wrong = wrongly_counted(partition.verdicts, counted(source), counted(target))
            assert not wrong, (at.partition, wrong, partition.verdicts, partition.notes)
        if at in unsure:
            continue
        before, truth = counted(target), counted(source)
        after = counted([*target, *repaired(one, spans.get(at, ()))])
        for content in before.keys() | after.keys():
            assert before[content] <= after[content] <= max(before[content], truth[content]), (at.partition, content)
        if not (one.pair.source_cut or one.pair.target_cut):
            copied = sum((after - before).values())
            assert copied == partition.verdicts.get("missing", 0), (at.partition, "all that was lost is copied")


def with_offsets(seed: int) -> Drawn:
    """The history of this seed in two logs with markers and aborted records; some have lost their beginning."""
    history, drawn = drawn_history(seed), random.Random(-seed)
    source, source_end = spread(drawn, history.source, first=drawn.choice((0, 1_000)))
    target, target_end = spread(drawn, history.target)
    origin = source[0].offset
    starts = [origin, 0]
    if drawn.random() < 0.4:
        starts[0] = drawn.randrange(origin, source_end)
    if drawn.random() < 0.4 and target:
        starts[1] = drawn.randrange(target_end)
    at = Partition("t", seed)
    pair = Pair(
        source=at,
        target=at,
        source_range=(starts[0], source_end),
        target_range=(starts[1], target_end),
        source_origin=origin,
        target_origin=0,
        source_start=starts[0],
        target_start=starts[1],
        source_copied_end=source_end,
        source_log_end=source_end,
        target_log_end=target_end,
        count=len(history.source),
        covered_end=target_end,
    )
    kept = [
        [entry for entry in side if entry.offset >= start] for side, start in zip((source, target), starts, strict=True)
    ]
    return Drawn(pair, kept[0], kept[1], Counter())


def repaired(one: Drawn, spans: tuple[Missing, ...]) -> list[Content]:
    """What a repair of these spans copies."""
    asked = Asked(compacted=False)
    for span in spans:
        records = _within(one.source, span)
        assert len(records) == span.records
        asked.wanted(span, [_identity(entry) for entry in records])
    asked.target(_identity(entry) for entry in one.target)
    if asked.needs_source:
        asked.source(_identity(entry) for entry in one.source)
    return [entry.content for span in asked.decide().copied for entry in _within(one.source, span)]


def _within(side: Sequence[Entry], span: Missing) -> Sequence[Entry]:
    first, end = (bisect_left(side, offset, key=lambda entry: entry.offset) for offset in span[:2])
    return side[first:end]


def _identity(entry: Entry) -> RecordIdentity:
    return RecordIdentity(entry.offset, repr(entry.content[1:]).encode(), entry.content.key)
