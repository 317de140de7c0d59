"""The result in one or two sentences that are true, for a reader who reads nothing else. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from replicator.model.counting import counted
from replicator.proof import verdicts
from replicator.proof.outcome import DIFFERS, Outcome, PartitionOutcome

TITLES = {
    "differs": "the sides differ",
    "unproven": "not proven",
    "no_difference": "no difference found",
    "agrees": "both sides agree",
}
"""Verdict → in two or three words."""
MEANINGS = {
    verdicts.MISSING: "on the source, not on the target",
    verdicts.ALTERED: "on both sides, with different fields",
    verdicts.EXTRA: "on the target, not on the source",
    verdicts.DOUBLED: "once more on the target than on the source",
    verdicts.REORDERED: "on both sides, in another order",
    DIFFERS: "in chunks that differ (the quick pass does not say which records)",
    verdicts.UNPROVEN: "on one side only; nothing that the clusters still have tells whether it is lost",
    verdicts.EXPIRED: "copied, then removed from the target by retention; no difference",
    verdicts.NEVER_MINE: "copied, then removed from the source by retention; no difference",
    verdicts.COMPACTED: "removed from the target by compaction; no difference",
    verdicts.COMPACTED_SOURCE: "removed from the source by compaction; no difference",
}
"""Verdict → what it says of a record, in the order in which reports show them."""


def headline(outcome: Outcome) -> str:
    """Say it in one or two sentences. They say that the sides agree only where every record of both was compared."""
    said = [_result(outcome)]
    if outcome.differs and outcome.unproven:
        said.append(f"No evidence decides on {_open(outcome)}.")
    if outcome.repair is not None and outcome.repair["applied"]:
        said.append(_repaired(outcome.repair["partitions"]))
    signed = [gap for partition in outcome.partitions for gap in partition.signed_gaps]
    if signed:
        said.append(
            f"By decisions of operators {counted(len(signed), 'range')} of source offsets {are(len(signed))} left out."
        )
    adopted = sum(partition.adopted is not None for partition in outcome.partitions)
    if adopted:
        said.append(
            f"In {counted(adopted, 'partition')} nothing was compared before the offset where operators had it go on."
        )
    if outcome.to_begin:
        partitions = counted(len(outcome.to_begin), "partition")
        said.append(f"The flow has not begun to copy {partitions}.")
    if outcome.lag:
        said.append(f"{counted(outcome.lag, 'source offset')} after the positions {are(outcome.lag)} not copied yet.")
    return " ".join(said)


def _repaired(rows: Collection[Mapping[str, Any]]) -> str:
    """Say what a repair has made of what the rest of the headline says."""
    missing, copied, standing, superseded = (
        sum(row[name] or 0 for row in rows) for name in ("missing", "copied", "standing", "superseded")
    )
    said = (
        f"Since then {copied:,} of {counted(missing, 'missing record')} {'was' if copied == 1 else 'were'} copied again"
    )
    if standing:
        said += f", {standing:,} stood on the target by then"
    if superseded:
        said += f", {superseded:,} {are(superseded)} superseded by a later record of the key"
    left = max(0, missing - copied - standing - superseded - sum(row["copied_before"] or 0 for row in rows))
    return f"{said}; {f'{left:,} {are(left)} still missing' if left else 'none of them is missing any more'}."


def _result(outcome: Outcome) -> str:
    totals, only = outcome.totals(), " in the window of time" if outcome.windowed else ""
    same = counted(outcome.same, "record")
    if outcome.verdict == "differs":
        found = words(totals, (*verdicts.LOSSES, DIFFERS))
        return f"The sides differ{only}: {found or _counts(outcome)}."
    if outcome.verdict == "unproven":
        return f"Not proven: {same} {are(outcome.same)} the same{only}, but no evidence decides on {_open(outcome)}."
    if outcome.verdict == "agrees":
        return f"Both sides agree{only}{' up to the positions' if outcome.lag else ''}: {same}."
    removed = sum(partition.removed for partition in outcome.partitions)
    if removed:
        by = f"retention or compaction removed {counted(removed, 'record')} from one side"
        both = f"the {same} that both sides still have" if outcome.same else "what is left: no record is on both sides"
        return f"No difference was found{only} in {both}; {by}."
    return f"No difference was found{only} in {same}." if outcome.same else f"There was no record to compare{only}."


def _counts(outcome: Outcome) -> str:
    """Say what differs where no record does."""
    found = []
    if counts := sum(not partition.counts_agree for partition in outcome.partitions):
        found.append(f"in {counted(counts, 'partition')} the position counts other records than there are")
    if chunks := sum(partition.chunks_unexplained for partition in outcome.partitions):
        found.append(f"in {counted(chunks, 'partition')} chunks differ, and no record was found that does")
    return " and ".join(found)


def _open(outcome: Outcome) -> str:
    """Say what nothing decides on."""
    records = outcome.totals().get(verdicts.UNPROVEN, 0)
    found = [counted(records, "record")] if records else []
    if outcome.not_compared:
        found.append(f"{counted(len(outcome.not_compared), 'partition')} that can't be compared")
    return " and ".join(found)


def words(counts: Mapping[str, int], names: Collection[str] = tuple(MEANINGS)) -> str:
    """Count in words, such as `6 missing, 1 altered`: those of `names` that there are."""
    return ", ".join(f"{counts[name]:,} {label(name)}" for name in MEANINGS if name in names and counts.get(name))


def label(verdict: str) -> str:
    """Write a verdict as it is written for people. In chunks that differ most records may be the same."""
    return "in chunks that differ" if verdict == DIFFERS else verdict.replace("_", " ")


def are(number: int) -> str:
    """Return the verb for so many."""
    return "is" if number == 1 else "are"


def findings(partition: PartitionOutcome) -> str:
    """Say what was found of a partition, in words; empty where nothing was."""
    found = [said] if (said := words(partition.verdicts)) else []
    if not partition.counts_agree:
        found.append("counts")
    if partition.chunks_unexplained:
        found.append(f"{counted(partition.chunks_differing, 'chunk')} without a record that differs")
    return ", ".join(found)
