"""What stands elsewhere, or was altered, is not called missing, and so is not copied again. Without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from replicator.proof import verdicts
from replicator.proof.by_content import alterations
from replicator.proof.by_content.record_verdicts import Finding, compare
from tests.replicator.spark.reconcile.drawn import EPOCH_MS, Content
from tests.replicator.spark.reconcile.histories import History
from tests.replicator.spark.reconcile.pipeline import counted, reconciled, records, repaired

pytestmark = pytest.mark.tier("extended")
MEANS = (8, 512)
"""Many gaps, and one: what moves does so from one into another, or within it."""


def of_few_keys(count: int) -> list[Content]:
    """Any two of them a hundred apart have their key in common, and five in a row their time."""
    return [Content(n, b"k%d" % (n % 100), b"v%d" % n, EPOCH_MS + n // 5) for n in range(count)]


def of_own_keys(count: int) -> list[Content]:
    return [Content(n, b"k%d" % n, b"v%d" % n, EPOCH_MS + n) for n in range(count)]


def counts(findings: Sequence[Finding]) -> dict[str, int]:
    found = Counter[str]()
    for one in findings:
        found[one.verdict] += one.records
    return dict(found)


def either(history: History) -> tuple[list[Finding], bool]:
    """What is found with chunks of either size: as many records of each verdict, by other gaps."""
    many, one = (reconciled(history, mean) for mean in MEANS)
    assert (counts(many[0]), many[1]) == (counts(one[0]), one[1])
    assert ranks(many[0], verdicts.MISSING) == ranks(one[0], verdicts.MISSING)
    return many


def ranks(findings: Sequence[Finding], verdict: str) -> set[int | None]:
    return {one.source_rank for one in findings if one.verdict == verdict}


@pytest.mark.parametrize("moved_from", [340, 600, 960])
def test_a_block_that_moved_to_where_others_were_lost_is_no_alteration(moved_from: int) -> None:
    source = of_few_keys(1_000)
    block, lost = source[moved_from : moved_from + 40], source[300:340]
    history = History(source, [*source[:300], *block, *source[340:moved_from], *source[moved_from + 40 :]])
    findings, divided = either(history)
    moved = 0 if moved_from == 340 else 40  # right behind what was lost it stands where it did
    expected = {verdicts.SAME: 960 - moved, verdicts.REORDERED: moved, verdicts.MISSING: 40}
    assert counts(findings) == {name: number for name, number in expected.items() if number}
    assert (divided, any(one.guessed for one in findings)) == (False, False)
    assert ranks(findings, verdicts.MISSING) == {*range(300, 340)}
    assert repaired(history, findings) == [*history.target, *lost]


def test_within_one_range_too_equal_records_are_found_before_altered_ones() -> None:
    source = of_few_keys(200)
    target = [*source[:60], *source[120:160], *source[100:120], *source[160:]]
    findings = compare(records(source), records(target))
    open_ = [one for one in findings if one.verdict in (verdicts.MISSING, verdicts.EXTRA)]
    assert {one.verdict for one in findings} == {verdicts.SAME, verdicts.REORDERED, verdicts.MISSING}
    assert alterations.altered(open_) == open_
    assert ranks(open_, verdicts.MISSING) == {*range(60, 100)}


@pytest.mark.parametrize("identical", [True, False])
@pytest.mark.parametrize(("was", "now"), [(200, 700), (700, 200), (200, 205), (0, 999), (999, 0)])
def test_a_heartbeat_that_moved_is_not_doubled(was: int, now: int, identical: bool) -> None:
    source = of_few_keys(1_000)
    for n in {*range(0, 1_000, 50), was}:
        source[n] = Content(n, b"heartbeat", b"up", EPOCH_MS if identical else EPOCH_MS + n)
    target = list(source)
    target.insert(now, target.pop(was))
    history = History(source, target)
    findings, _ = either(history)
    assert counts(findings).keys() <= {verdicts.SAME, verdicts.REORDERED}
    assert repaired(history, findings) == target
    misled = [*findings, Finding(verdicts.MISSING, 1, source_rank=was)]
    assert repaired(history, misled) == target, "a list that is wrong copies nothing that stands there"


Alter = Callable[[Content], Content]
ALTERED: dict[str, Alter] = {
    "value": lambda one: one._replace(value=b"altered"),
    "each value": lambda one: one._replace(value=b"altered%d" % one.number),
    "key": lambda one: one._replace(key=b"altered"),
    "time": lambda one: one._replace(ms=one.ms + 1_000_000),
    "value and time": lambda one: one._replace(value=b"altered%d" % one.number, ms=one.ms + 1_000_000),
}


@pytest.mark.parametrize("kind", [of_own_keys, of_few_keys])
@pytest.mark.parametrize("how", ALTERED)
def test_one_that_is_lost_before_many_that_were_altered_is_the_only_one_that_may_be_copied(
    how: str, kind: Callable[[int], list[Content]]
) -> None:
    """Or the partition is refused as guessed: see `missing.unsure`."""
    source = kind(1_000)
    target = [*source[:199], *map(ALTERED[how], source[200:800]), *source[800:]]
    history = History(source, [one._replace(number=-1) for one in target])
    findings, divided = either(history)
    missing = counts(findings).get(verdicts.MISSING, 0)
    guessed = divided or any(one.guessed for one in findings)
    if kind is of_own_keys and how != "value and time":
        assert (counts(findings)[verdicts.ALTERED], guessed) == (600, False)
    assert missing == 1 or (guessed and missing < 601)
    if not guessed:
        assert ranks(findings, verdicts.MISSING) == {199}
        assert counted(repaired(history, findings)) == counted(target) + counted(source[199:200])


@pytest.mark.parametrize("lost", [0, 250, 501])
def test_more_altered_records_than_any_window_are_altered_ones(lost: int) -> None:
    """And not as many missing and as many extra ones."""
    source = of_own_keys(502)
    target = [ALTERED["each value"](one) for one in source if one.number != lost]
    findings, divided = either(History(source, target))
    assert counts(findings) == {verdicts.ALTERED: 501, verdicts.MISSING: 1}
    assert (ranks(findings, verdicts.MISSING), divided) == ({lost}, False)
