"""A partition that was repaired and has lost its beginning since: what was copied again is found behind all others,
however far it stands from its place, and nothing else is taken for it. Entries of the claims topic are evidence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from replicator.jobs.repair_spans import Missing
from replicator.model.partition import Partition
from replicator.proof import verdicts as v
from replicator.proof.by_content import alignment
from replicator.proof.by_content.record_verdicts import FINDING
from replicator.proof.copied_again import CopiedRun
from replicator.spark.reconcile import missing, reconcile
from tests.replicator.spark.reconcile.drawn import EPOCH_MS, Content, Drawn, Entry, of_cut_logs
from tests.replicator.spark.reconcile.read_lists import found
from tests.replicator.spark.reconcile.sample_outcomes import SIGNED

RECORDS = 1_200
PREFIX_RECORDS = 40
"""Of a retained prefix, in place of `reconcile.PREFIX_RECORDS`: the rest is left out."""


class Case(NamedTuple):
    """`source`, `target`: numbers of the records that stand there; so many offsets are gone from either log.

    `runs`: what the claims topic says was copied again.
    """

    source: Iterable[int]
    target: Iterable[int]
    source_gone: int
    target_gone: int
    expected: dict[str, int]
    runs: tuple[CopiedRun, ...] = ()


def entry(place: int, number: int) -> Entry:
    name = b"%d" % number
    return Entry(place, Content(number, name, name, EPOCH_MS + number))


def drawn(number: int, case: Case) -> Drawn:
    gone = case.source_gone, case.target_gone
    return of_cut_logs(number, (case.source, case.target), gone, RECORDS, entry, case.runs)


def again(first: int) -> range:
    """Ten records that were lost, and that the repair copied again."""
    return range(first, first + 10)


CASES = {
    # Far from the first record that both sides have, and near to it.
    "they were lost where nobody looks any more": Case(
        range(RECORDS), [*range(1_100, RECORDS), *again(100)], 0, 1_090, {v.EXPIRED: 1_090, v.REORDERED: 10}
    ),
    "they were lost before the first common record": Case(
        range(RECORDS), [*range(700, RECORDS), *again(680)], 0, 690, {v.EXPIRED: 690, v.REORDERED: 10}
    ),
    "others were lost behind": Case(
        range(RECORDS),
        [*range(1_100, 1_150), *range(1_153, RECORDS), *again(100)],
        0,
        1_093,
        {v.EXPIRED: 1_090, v.REORDERED: 10, v.MISSING: 3},
    ),
    "the source begins later, and a record of it stands far in front": Case(
        range(1_100, RECORDS),
        [*range(100), 1_150, *range(100, 1_150), *range(1_151, RECORDS)],
        1_100,
        0,
        {v.NEVER_MINE: 1_100, v.REORDERED: 1},
    ),
    # Nothing that either log still has tells whose these ten are. The entry in the claims topic does.
    "the source has lost the originals, too": Case(
        range(700, RECORDS),
        [*range(100), *range(110, RECORDS), *again(100)],
        700,
        0,
        {v.NEVER_MINE: 700},
        (CopiedRun(1_190, 100, 10),),
    ),
    "and both begin later": Case(
        range(720, RECORDS),
        [*range(730, RECORDS), *again(100)],
        720,
        720,
        {v.NEVER_MINE: 10, v.EXPIRED: 10},
        (CopiedRun(1_190, 100, 10),),
    ),
    "the target is empty": Case(range(RECORDS), [], 0, RECORDS, {v.EXPIRED: RECORDS}),
    "and no entry says so": Case(
        range(700, RECORDS),
        [*range(100), *range(110, RECORDS), *again(100)],
        700,
        0,
        {v.NEVER_MINE: 690, v.EXTRA: 10},
        (CopiedRun(1_190, 800, 5),),
    ),
}


@pytest.mark.tier("full")
def test_what_was_copied_again_is_found_wherever_it_stood(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "PREFIX_RECORDS", PREFIX_RECORDS)
    monkeypatch.setattr(alignment, "MEAN_MIN", 32)
    histories = [drawn(number, case) for number, case in enumerate(CASES.values())]
    pairs = [history.pair for history in histories]
    outcome, findings = found(spark, monkeypatch, histories)
    got = {name: dict(outcome.partitions[number].verdicts) for number, name in enumerate(CASES)}
    for name, case in CASES.items():
        common = len({*case.source} & {*case.target}) - case.expected.get(v.REORDERED, 0)
        assert got[name] == {v.SAME: common, **case.expected}, name
    for partition in outcome.partitions:
        assert not partition.notes
        for verdict, records in partition.verdicts.items():
            if verdict != v.SAME:  # records at which nobody looked are shown, too
                assert sum(one.records for one in partition.ranges if one.verdict == verdict) == records
                assert sum(partition.places[verdict]) == records
    empty = outcome.partitions[[*CASES].index("the target is empty")]
    assert [(one.source_offsets, one.timestamps_ms) for one in empty.ranges] == [
        ((0, RECORDS - 1), (EPOCH_MS, EPOCH_MS + RECORDS - 1))
    ]
    planned = {at.partition: spans for at, spans in missing.spans(findings, pairs).items()}
    assert planned.keys() == {2}, "nothing else is copied once more"
    assert [(span.first, span.end) for span in planned[2]] == [(1_150, 1_153)]


def test_what_an_operator_has_left_out_is_not_copied_with_its_neighbours(spark: SparkSession) -> None:
    """It isn't compared, so what stands before and behind it follows one another."""
    at = Partition("t", 0)
    pair = replace(drawn(0, next(iter(CASES.values()))).pair, source=at, signed_gaps=(SIGNED,))
    offsets = [*range(5, SIGNED.first), *range(SIGNED.end, SIGNED.end + 4)]
    rows = [("t", 0, v.MISSING, rank, offset, -1) for rank, offset in enumerate(offsets, 7)]
    names = (FINDING.verdict, FINDING.source_rank, FINDING.source_offset, FINDING.other_after)
    findings = spark.createDataFrame(rows, ["topic", "partition", *names])
    assert missing.spans(findings, [pair]) == {
        at: (Missing(5, SIGNED.first, 0), Missing(SIGNED.end, SIGNED.end + 4, len(offsets)))
    }
