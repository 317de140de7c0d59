"""What `verify` has found, as data. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from replicator.model.counting import counted
from replicator.model.errors import Incident
from replicator.model.partition import Partition, Span
from replicator.proof.last_block import BlockCheck

VerifiedVerdict = Literal["differs", "unproven", "stands"]
UNSEEN = (
    "Not looked at: the contents of copies before each position's last block, and source records that the map says "
    "nothing of, such as one that was skipped. eos-replicate reconcile --local reads both sides."
)
WITHOUT_SOURCE = (
    "The source was not asked: what it has that was not copied is not known, nor is anything looked at on the target "
    "behind the last copy of each partition."
)
SPANS_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedPartition:
    """One partition.

    Attributes:
        source_span: source offsets from where the map begins to where it ends; None: it has nothing of the partition.
        sections, copies: how many the map has; copies that were looked for on the target, `standing` of them are there.
        expired: copies that stood below the target's log start.
        empty, emptied: target offsets without a record where a copy should be; of a compacted topic `emptied` are
            those that nothing stands at any more, which log compaction may have taken.
        foreign: records that no section claims, where the map covers all; `uncovered`: where it doesn't.
        contradictions: what can't be: broken order, counts, an end that isn't the position's.
        gaps: source offsets that the map doesn't cover, each with why.
        digests: sections with a digest, which was not compared.
        last_block: what its digest says, see `last_block`; None: the position has none.
        voided, restarts: see `MapChain`.
        notes: what a reader should know, such as what operators have decided of the partition.
    """

    source: Partition
    target: Partition
    source_span: Span | None
    sections: int = 0
    copies: int = 0
    standing: int = 0
    expired: int = 0
    empty: Sequence[Span] = ()
    empty_offsets: int = 0
    emptied: int = 0
    foreign: Sequence[Span] = ()
    foreign_records: int = 0
    uncovered: int = 0
    contradictions: Sequence[str] = ()
    gaps: Sequence[str] = ()
    digests: int = 0
    last_block: BlockCheck | None = None
    voided: int = 0
    restarts: int = 0
    records_read: int = 0
    notes: Sequence[str] = ()

    @property
    def verdict(self) -> VerifiedVerdict:
        """In one word."""
        block_differs = self.last_block is not None and self.last_block.verdict == "differs"
        if self.contradictions or self.empty_offsets or self.foreign_records or block_differs:
            return "differs"
        open_ = self.gaps or self.uncovered or self.emptied or self.voided or self.source_span is None
        return "unproven" if open_ else "stands"

    def said(self) -> list[str]:
        """Say what isn't as it should be, or isn't known, in sentences."""
        found = [*self.contradictions, *self.gaps]
        if self.empty_offsets:
            found.append(
                f"{counted(self.empty_offsets, 'target offset')} of copies without a record: {_spans(self.empty)}"
            )
        if self.emptied:
            places = counted(self.emptied, "target offset")
            why = "log compaction may have taken them, and the map doesn't say their keys"
            found.append(f"{places} of copies without a record: {why}")
        if self.foreign_records:
            found.append(
                f"{counted(self.foreign_records, 'record')} on the target that no section of the map claims: "
                f"{_spans(self.foreign)}"
            )
        if self.uncovered:
            found.append(f"{counted(self.uncovered, 'record')} on the target where the map doesn't cover it")
        if self.voided:
            lost = counted(self.voided, "copy", "copies")
            found.append(f"by the map the target has lost {lost}; whether they were copied again isn't looked at")
        if self.last_block is not None and self.last_block.verdict != "equal":
            found.append(self.last_block.said())
        if self.restarts:
            times = counted(self.restarts, "time")
            found.append(f"the map begins again below {times}: a cut source, or an adoption")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """All partitions. `sample`: which share of the copies was looked for; `since_ms`: only those since then.
    `source_asked`: see `target_snapshot`."""

    flow: str
    snapshot_ms: int
    finished_ms: int
    partitions: Sequence[VerifiedPartition]
    not_compared: Sequence[Incident] = ()
    waiting: Sequence[Partition] = ()
    sample: float = 1.0
    since_ms: int | None = None
    source_asked: bool = True
    notes: Sequence[str] = ()

    @property
    def verdict(self) -> VerifiedVerdict:
        """In one word."""
        said = {it.verdict for it in self.partitions}
        if "differs" in said:
            return "differs"
        nothing = not self.partitions or (self.partial and not self.standing)
        return "unproven" if "unproven" in said or self.not_compared or nothing else "stands"

    @property
    def partial(self) -> bool:
        """Whether not all copies were looked for."""
        return self.sample < 1 or self.since_ms is not None

    @property
    def standing(self) -> int:
        """Copies that stand where the map says."""
        return sum(it.standing for it in self.partitions)

    @property
    def headline(self) -> str:
        """One or two sentences, of what was proven and no more."""
        which = f" of a sample of {100 * self.sample:g} %" if self.sample < 1 else ""
        since = " since the time given" if self.since_ms is not None else ""
        copies = f"{counted(self.standing, 'copy', 'copies')}{which}{since}"
        if self.verdict == "differs":
            return f"The target isn't what the map says; {copies} {_are(self.standing)} at the place that it names."
        if self.verdict == "unproven":
            stand = f"{copies} {_are(self.standing)} at the place that the map names"
            return f"Not proven: {stand}, and it doesn't tell of all."
        more = "" if self.partial else ", and no other record among them"
        said = f"A committed record stands at each place that the map names: {copies}{more}."
        return f"{said} The map's chain has no gap, and its counts are those of the positions."

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON, for machines."""
        return {
            "verdict": self.verdict,
            "headline": self.headline,
            "unseen": UNSEEN,
            "flow": self.flow,
            "sample": self.sample,
            "since_ms": self.since_ms,
            "source_asked": self.source_asked,
            "snapshot_ms": self.snapshot_ms,
            "finished_ms": self.finished_ms,
            "partitions": [_partition(it) for it in self.partitions],
            "waiting": [{"topic": at.topic, "partition": at.partition} for at in self.waiting],
            "not_compared": [incident.facts for incident in self.not_compared],
            "notes": list(self.notes),
        }


def _partition(it: VerifiedPartition) -> dict[str, Any]:
    return {
        "source": {"topic": it.source.topic, "partition": it.source.partition},
        "target": {"topic": it.target.topic, "partition": it.target.partition},
        "verdict": it.verdict,
        "source_offsets": None if it.source_span is None else list(it.source_span),
        "sections": it.sections,
        "sections_with_digest": it.digests,
        "last_block": None if it.last_block is None else it.last_block._asdict(),
        "copies": it.copies,
        "standing": it.standing,
        "expired": it.expired,
        "empty": it.empty_offsets,
        "empty_offsets": [list(span) for span in it.empty[:SPANS_SHOWN]],
        "emptied": it.emptied,
        "foreign": it.foreign_records,
        "foreign_offsets": [list(span) for span in it.foreign[:SPANS_SHOWN]],
        "uncovered": it.uncovered,
        "voided": it.voided,
        "records_read": it.records_read,
        "said": it.said(),
        "notes": list(it.notes),
    }


def _spans(spans: Sequence[Span]) -> str:
    shown = [str(first) if end == first + 1 else f"{first} to {end - 1}" for first, end in spans[:3]]
    return ", ".join(shown) + (" and others" if len(spans) > 3 else "")


def _are(number: int) -> str:
    return "stands" if number == 1 else "stand"
