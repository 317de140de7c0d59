"""Logs that were cut by more records than are ever looked for: those in front are not opened, and still none of them
is called anything else than what it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from replicator.proof import verdicts as v
from replicator.proof.outcome import PartitionOutcome
from replicator.spark.reconcile.reconcile import PREFIX_RECORDS
from tests.replicator.spark.reconcile.drawn import Drawn, of_cut_logs
from tests.replicator.spark.reconcile.read_lists import reconciled
from tests.replicator.spark.reconcile.test_retained_prefix import FOREIGN, entry

ALL, GONE = 12_000, 10_000
REST = ALL - GONE


class Case(NamedTuple):
    """A flow has copied ALL records. `source`, `target`: the numbers of those that stand there; so many offsets are
    gone from either log."""

    source: Iterable[int]
    target: Iterable[int]
    source_gone: int
    target_gone: int
    expected: dict[str, int]


CASES = {
    "the target begins later": Case(range(ALL), range(GONE, ALL), 0, GONE, {v.SAME: REST, v.EXPIRED: GONE}),
    "and one is missing behind": Case(
        range(ALL),
        [*range(GONE, 11_000), *range(11_001, ALL)],
        0,
        GONE + 1,
        {v.SAME: REST - 1, v.EXPIRED: GONE, v.MISSING: 1},
    ),
    "and the first ones of the prefix stand behind": Case(
        range(ALL), [*range(GONE, ALL), 3, 5], 0, GONE, {v.SAME: REST, v.EXPIRED: GONE - 2, v.REORDERED: 2}
    ),
    "and a foreign record stands in front": Case(
        range(ALL), [FOREIGN, *range(GONE, ALL)], 0, GONE, {v.SAME: REST, v.EXPIRED: GONE, v.EXTRA: 1}
    ),
    "the source begins later": Case(range(GONE, ALL), range(ALL), GONE, 0, {v.SAME: REST, v.NEVER_MINE: GONE}),
    "and one is missing behind the first common one": Case(
        range(GONE, ALL),
        [n for n in range(ALL) if n != 11_000],
        GONE,
        0,
        {v.SAME: REST - 1, v.NEVER_MINE: GONE, v.MISSING: 1},
    ),
}


def drawn(number: int, case: Case) -> Drawn:
    gone = case.source_gone, case.target_gone
    return of_cut_logs(number, (case.source, case.target), gone, ALL, entry)


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> dict[str, PartitionOutcome]:
    """All cases, compared at once."""
    with pytest.MonkeyPatch.context() as patched:
        outcome = reconciled(spark, patched, [drawn(number, case) for number, case in enumerate(CASES.values())])
    return {name: outcome.partitions[number] for number, name in enumerate(CASES)}


@pytest.mark.tier("long")
@pytest.mark.parametrize("name", CASES)
def test_more_than_is_ever_looked_for_is_explained_all_the_same(found: dict[str, PartitionOutcome], name: str) -> None:
    assert GONE > 2 * PREFIX_RECORDS
    assert dict(found[name].verdicts) == CASES[name].expected
    assert found[name].opened < GONE, "most of the prefix is not opened"
