"""What stands before the first record that both sides have, where logs were cut at their beginning."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from replicator.proof import verdicts as v
from tests.replicator.spark.reconcile.drawn import EPOCH_MS, Content, Drawn, Entry, of_cut_logs
from tests.replicator.spark.reconcile.read_lists import reconciled

FOREIGN = -1


class Case(NamedTuple):
    """A flow has copied a hundred records. `source`, `target`: the numbers of those that stand there; so many offsets
    are gone from either log."""

    source: Iterable[int]
    target: Iterable[int]
    source_gone: int
    target_gone: int
    expected: dict[str, int]


def entry(place: int, number: int) -> Entry:
    name = b"foreign-%d" % place if number == FOREIGN else b"%d" % number
    return Entry(place, Content(number, name, name, EPOCH_MS + (number if number != FOREIGN else -place - 1)))


def drawn(number: int, case: Case) -> Drawn:
    gone = case.source_gone, case.target_gone
    return of_cut_logs(number, (case.source, case.target), gone, 100, entry)


CASES = {
    "the target begins later": Case(range(100), range(40, 100), 0, 40, {v.SAME: 60, v.EXPIRED: 40}),
    "and one is missing behind": Case(
        range(100), [*range(40, 80), *range(81, 100)], 0, 41, {v.SAME: 59, v.EXPIRED: 40, v.MISSING: 1}
    ),
    # The source has its beginning: what the target has in front is not from before it.
    "and it has a foreign record in front": Case(
        range(100), [FOREIGN, *range(40, 100)], 0, 41, {v.SAME: 60, v.EXPIRED: 40, v.EXTRA: 1}
    ),
    "and a record of its prefix stands behind": Case(
        range(100), [*range(40, 80), 5, *range(80, 100)], 0, 41, {v.SAME: 60, v.EXPIRED: 39, v.REORDERED: 1}
    ),
    "and a later record stands in front": Case(
        range(100), [80, *range(40, 80), *range(81, 100)], 0, 40, {v.SAME: 59, v.EXPIRED: 40, v.REORDERED: 1}
    ),
    "the source begins later": Case(range(40, 100), range(100), 40, 0, {v.SAME: 60, v.NEVER_MINE: 40}),
    "and a later record stands first on the target": Case(
        range(40, 100), [80, *range(80), *range(81, 100)], 40, 0, {v.SAME: 59, v.NEVER_MINE: 40, v.REORDERED: 1}
    ),
    "both begin later, and the target more so": Case(
        range(20, 100), range(40, 100), 20, 40, {v.SAME: 60, v.EXPIRED: 20}
    ),
    # Among the offsets that are gone was no room for all: something was lost, and it may have been older than all.
    "and offsets had no room for all": Case(range(20, 100), range(40, 100), 20, 39, {v.SAME: 60, v.UNPROVEN: 20}),
    # Either the first of the target is older than the source, and all before the common ones were lost; or it is
    # nobody's, and they have expired.
    "and nothing tells which of them begins later": Case(
        range(20, 100), [FOREIGN, *range(40, 100)], 20, 40, {v.SAME: 60, v.UNPROVEN: 21}
    ),
}


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> dict[str, dict[str, int]]:
    """All cases, compared at once."""
    with pytest.MonkeyPatch.context() as patched:
        outcome = reconciled(spark, patched, [drawn(number, case) for number, case in enumerate(CASES.values())])
    return {name: dict(outcome.partitions[number].verdicts) for number, name in enumerate(CASES)}


@pytest.mark.tier("full")
@pytest.mark.parametrize("name", CASES)
def test_a_head_is_explained_by_what_is_gone_and_by_nothing_else(found: dict[str, dict[str, int]], name: str) -> None:
    assert found[name] == CASES[name].expected
