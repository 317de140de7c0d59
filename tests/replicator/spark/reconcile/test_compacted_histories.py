"""What was lost, altered, moved or written by others stands beside what a cleaner has taken: no verdict says more than
content and empty offsets can tell, and a repair never buries what is newer."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from replicator.proof import verdicts
from replicator.proof.by_content.record_verdicts import Finding
from tests.budget import budget
from tests.replicator.spark.reconcile.cleaned_pipeline import reconciled, repaired
from tests.replicator.spark.reconcile.drawn import Content
from tests.replicator.spark.reconcile.histories import Cleaned, History, drawn_compacted
from tests.replicator.spark.reconcile.pipeline import counted

SEEDS, PARTS = budget(60, 10_000), budget(4, 100)
MEANS = (8, 512)
About = tuple[object, ...]
COMMON = {
    *(verdicts.SAME, verdicts.MISSING, verdicts.EXTRA),
    *(verdicts.COMPACTED, verdicts.COMPACTED_SOURCE, verdicts.UNPROVEN),
}
pytestmark = pytest.mark.tier("extended")


@pytest.mark.parametrize(
    "part", [pytest.param(it, marks=pytest.mark.tier("full") if it > 1 else ()) for it in range(PARTS)]
)
def test_no_verdict_says_more_than_the_logs_tell(part: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(part, SEEDS, PARTS):
        seen += check(seed, drawn_compacted(seed), random.Random(seed).choice(MEANS))
    assert seen.keys() >= COMMON


def check(seed: int, cleaned: Cleaned, mean: int) -> Counter[str]:
    """What the oracle says of one history; gives the verdicts that were found."""
    findings, divided = reconciled(cleaned, mean)
    counts: Counter[str] = Counter()
    for finding in findings:
        counts[finding.verdict] += finding.records
    about = seed, mean, cleaned.compacted, cleaned.history.acts, counts
    _each_record_has_one_verdict(about, cleaned, findings, counts)
    if divided or any(finding.guessed for finding in findings):
        return counts  # such a partition is not repaired
    _missing_is_only_what_was_lost(about, cleaned, findings)
    _compacted_is_nothing_whose_key_has_gone(about, cleaned, findings)
    _a_repair_leaves_the_newest(about, cleaned, repaired(cleaned, findings))
    return counts


def _each_record_has_one_verdict(
    about: About, cleaned: Cleaned, findings: Sequence[Finding], counts: Counter[str]
) -> None:
    here, there = counted(cleaned.history.source), counted(cleaned.history.target)
    unproven = [one.source_rank is not None for one in findings if one.verdict == verdicts.UNPROVEN]
    altered = counts[verdicts.ALTERED]
    assert counts[verdicts.SAME] + counts[verdicts.REORDERED] == (here & there).total(), about
    lacking = altered + counts[verdicts.MISSING] + counts[verdicts.COMPACTED] + unproven.count(True)
    assert lacking == (here - there).total(), about
    more = altered + sum(counts[name] for name in (verdicts.EXTRA, verdicts.DOUBLED, verdicts.COMPACTED_SOURCE))
    assert more + unproven.count(False) == (there - here).total(), about


def _missing_is_only_what_was_lost(about: About, cleaned: Cleaned, findings: Sequence[Finding]) -> None:
    """Not what a cleaner has taken from its place because the source has a later record of the key. The last one of a
    key may have been taken because of another's record, or an older one that was written behind it: it is missing.
    And nothing tells of what was written elsewhere, or seems to stand beside what was."""
    source = cleaned.history.source
    lost = counted(source) - counted(cleaned.written)
    astray = {
        offset
        for offset, one in zip(cleaned.offsets[1], cleaned.history.target, strict=True)
        if one.number in cleaned.history.astray
    }
    missing = Counter(
        source[one.source_rank or 0][1:]
        for one in findings
        if one.verdict == verdicts.MISSING and not astray & {one.other_after, one.other_before}
    )
    exempt = {one[1:] for one in source if one.number in cleaned.history.astray}
    if cleaned.compacted[1]:
        exempt.update({one.key: one[1:] for one in source}.values())
    wrong = {one for one in missing - lost if one not in exempt}
    assert not wrong, (*about, wrong)


def _compacted_is_nothing_whose_key_has_gone(about: About, cleaned: Cleaned, findings: Sequence[Finding]) -> None:
    """The last record of a key, of which the target has nothing at all: no cleaner takes that."""
    source, target = cleaned.history.source, cleaned.history.target
    last = {one.key: rank for rank, one in enumerate(source)}
    left = {one.key for one in target}
    said = [one.source_rank or 0 for one in findings if one.verdict == verdicts.COMPACTED]
    wrong = [
        source[rank]
        for rank in said
        if (key := source[rank].key) is not None
        and last[key] == rank
        and key not in left
        and source[rank].value is not None
    ]
    assert not wrong, (*about, wrong)


def _a_repair_leaves_the_newest(about: About, cleaned: Cleaned, after: Sequence[Content]) -> None:
    """Of a target that isn't compacted no record is there more often than before or on the source. In one that is, each
    key's last record is the one that stood last before, or the last one of the source."""
    source, before = cleaned.history.source, cleaned.history.target
    if not cleaned.compacted[1]:
        truth, was, now = counted(source), counted(before), counted(after)
        wrong = {one for one in now if not was[one] <= now[one] <= max(was[one], truth[one])}
        assert not wrong, (*about, wrong)
        return
    lasts = [{one.key: one[1:] for one in side} for side in (source, before, after)]
    wrong_keys = {
        key for key, now in lasts[2].items() if key is not None and now not in (lasts[1].get(key), lasts[0].get(key))
    }
    assert not wrong_keys, (*about, wrong_keys)


def test_a_match_that_may_be_another_one_bounds_no_place() -> None:
    """Of two equal records the second one is lost, and what stands between them was compacted. The first one's copy
    is taken for that of the second: then nothing is empty before it, and there what was compacted would be missing."""
    same, ms = Content(0, b"x", b"x", 1), 2
    old = [Content(1, b"a", b"old", ms), Content(2, b"b", b"old", ms)]
    new = [Content(4, b"a", b"new", ms), Content(5, b"b", b"new", ms)]
    source = [same, *old, same._replace(number=3), *new]
    written = [same, *old, *new]
    for mean in MEANS:
        cleaned = Cleaned(
            History(source, [same, *new]), ([*range(6)], [0, 3, 4]), (6, 5), written, compacted=(False, True)
        )
        findings, _ = reconciled(cleaned, mean)
        assert Counter(one.verdict for one in findings if one.verdict != verdicts.SAME) == {verdicts.UNPROVEN: 3}
        assert {one.reason for one in findings if one.verdict == verdicts.UNPROVEN} == {
            "compaction emptied 2 offsets where 3 records are missing, so that some of them may be lost"
        }
