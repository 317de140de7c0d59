"""Whatever was done to a copy: no verdict is wrong, as far as content can tell, and a repair never makes it worse."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection

import pytest

from replicator.proof import verdicts
from replicator.proof.by_content.record_verdicts import Finding
from tests.budget import budget
from tests.replicator.spark.reconcile.histories import History, drawn_history, wrongly_counted
from tests.replicator.spark.reconcile.pipeline import counted, reconciled, repaired

SEEDS, PARTS = budget(100, 10_000), budget(20, 200)
MEANS = (8, 512)
Said = tuple[bytes | None, bytes | None, int]
"""Key, value and time of a record."""
pytestmark = pytest.mark.tier("default")


@pytest.mark.parametrize("part", range(PARTS))
def test_no_verdict_is_wrong_and_no_repair_does_harm(part: int) -> None:
    for seed in range(part, SEEDS, PARTS):
        check(seed, drawn_history(seed), random.Random(seed).choice(MEANS))


def check(seed: int, history: History, mean: int) -> None:
    """What the oracle says of one history."""
    findings, divided = reconciled(history, mean)
    counts: Counter[str] = Counter()
    for finding in findings:
        counts[finding.verdict] += finding.records
    wrong = wrongly_counted(counts, counted(history.source), counted(history.target))
    assert not wrong, (seed, history.acts, wrong, counts)
    there = counted(history.target)
    for finding in findings:
        if finding.verdict == verdicts.ALTERED:
            check_altered(seed, history, finding, there)
    if divided or any(finding.guessed for finding in findings):
        return  # such a partition is not repaired
    before, after, truth = counted(history.target), counted(repaired(history, findings)), counted(history.source)
    missing = Counter(history.source[one.source_rank or 0][1:] for one in findings if one.verdict == verdicts.MISSING)
    for content in before.keys() | after.keys():
        assert before[content] <= after[content] <= max(before[content], truth[content]), (seed, content)
        assert after[content] - before[content] == missing[content], (seed, content, "all that was lost is copied")


def check_altered(seed: int, history: History, finding: Finding, there: Collection[Said]) -> None:
    """A key or a value is always in common. Unless the finding says that it is a guess, two of three fields are, and it
    is this record that was altered, or one that was equal to it. An altered copy of a record that the target has
    besides may stand where another one was lost, and share as much with that one: no content tells.

    Args:
        there: what the records of the target say.
    """
    assert finding.source_rank is not None
    assert finding.target_rank is not None
    was, now = history.source[finding.source_rank], history.target[finding.target_rank]
    assert (was.key is not None and was.key == now.key) or (was.value is not None and was.value == now.value), seed
    if not finding.guessed:
        common = sum(one is not None and one == other for one, other in zip(was[1:], now[1:], strict=True))
        assert common == 2, (seed, was, now)
        assert now.number < -1, (seed, was, now)
        original = history.source[-2 - now.number][1:]
        assert original == was[1:] or original in there, (seed, was, now)
