"""The outcome of a reconciliation as data. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from replicator.model.errors import Incident
from replicator.model.partition import Partition
from replicator.proof.excerpts import FieldPair
from replicator.proof.pairs import WaitingPair
from replicator.proof.verdicts import ALTERED, LOSSES, MISSING, REMOVED, SAME, UNPROVEN
from replicator.state.signed_gaps import SignedGap

Mode = Literal["quick", "full", "deep", "local"]
"""`local`: by the offset map, in one process; the others are passes on Spark."""
OutcomeVerdict = Literal["differs", "unproven", "no_difference", "agrees"]
"""On a partition or on all of them. `no_difference`: none was found, but some records could not be compared, because
retention or compaction removed them, an operator has decided to leave them out, or they are not copied yet; or there
were none at all."""
DIFFERS = "differs"
"""Records of the source in chunks that differ; the quick pass does not say which of them."""
BY_CONTENT = "compared by content, not by the offset map: {}"
BUCKETS = 100
"""Parts of a partition that the report's chart tells apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Findings of one kind on records that follow one another without a gap.

    Offsets are those of the first and of the last record, on the side or sides that have them. `timestamps_ms`: the
    earliest and the latest one. `key`: of the first record, its beginning. `reason`: why they are unproven.
    `fields_of_first`: of altered records, the first one's fields side by side.
    """

    verdict: str
    records: int
    fields: str = ""
    reason: str = ""
    source_offsets: tuple[int, int] | None = None
    target_offsets: tuple[int, int] | None = None
    timestamps_ms: tuple[int, int] | None = None
    key: bytes | None = None
    fields_of_first: tuple[FieldPair, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """A cluster by its name in the flow file, its own id, and the addresses at which it was asked."""

    name: str
    id: str = ""
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOutcome:
    """One partition. `verdicts` counts records of the source (extra and doubled ones: of the target).

    `position_records` is what the position says; None where it says nothing about the compared range, or retention or
    compaction has taken records on both sides. `position` is the source offset up to which the flow has copied, `lag`
    how many committed source offsets stood behind it. `opened`: records of both sides that were read again and compared
    one by one. `reasons` counts unproven records by why they are. `places` counts findings by verdict in BUCKETS parts
    of the partition. `ranges` are the first findings of each verdict, `ranges_found` says how many there are.
    `signed_gaps`: what was not compared, because an operator has decided to leave it out. `adopted`: the source offset
    before which nothing was compared, because an operator has decided to go on there. `provable`: the source offset
    from which on the offset map is whole, and since when (ms since 1970), where it was compared by that. `by_content`:
    why it wasn't, on Spark: there contents say which records belong together.
    """

    source: Partition
    target: Partition
    source_offsets: tuple[int, int]
    target_offsets: tuple[int, int]
    source_records: int
    target_records: int
    position_records: int | None
    position: int = 0
    lag: int = 0
    source_counts_agree: bool
    target_counts_agree: bool
    chunks: int
    chunks_differing: int
    verdicts: Mapping[str, int]
    opened: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    places: Mapping[str, list[int]] = field(default_factory=dict)
    ranges: tuple[OffsetRange, ...] = ()
    ranges_found: Mapping[str, int] = field(default_factory=dict)
    signed_gaps: tuple[SignedGap, ...] = ()
    adopted: int | None = None
    notes: tuple[str, ...] = ()
    provable: tuple[int, int] | None = None
    by_content: str = ""

    @property
    def same(self) -> int:
        """Records that both sides have alike."""
        return self.verdicts.get(SAME, 0)

    @property
    def differences(self) -> int:
        """Records on which the sides disagree."""
        return sum(self.verdicts.get(name, 0) for name in (*LOSSES, DIFFERS))

    @property
    def unproven(self) -> int:
        """Records of which neither cluster tells whether they are lost."""
        return self.verdicts.get(UNPROVEN, 0)

    @property
    def removed(self) -> int:
        """Records that retention or compaction took away on one side."""
        return sum(self.verdicts.get(name, 0) for name in REMOVED)

    @property
    def lacks_nothing(self) -> bool:
        """Whether each record of the source has its copy for certain, wherever that stands and whatever else does."""
        lacking = any(self.verdicts.get(name) for name in (MISSING, ALTERED, DIFFERS, UNPROVEN))
        return not lacking and not self.chunks_unexplained

    @property
    def agrees(self) -> bool:
        """Whether both sides and the position say the same, and nothing is left unproven."""
        return not self.differs and not self.unproven

    @property
    def differs(self) -> bool:
        """Whether there is a difference for certain."""
        return bool(self.differences) or self.chunks_unexplained or not self.counts_agree

    @property
    def verdict(self) -> OutcomeVerdict:
        """In one word."""
        if self.differs or self.unproven:
            return "differs" if self.differs else "unproven"
        return "no_difference" if self.removed or self.signed_gaps or not self.same else "agrees"

    @property
    def counts_agree(self) -> bool:
        """Whether the position counted as many records as either side has."""
        return self.source_counts_agree and self.target_counts_agree

    @property
    def chunks_unexplained(self) -> bool:
        """Chunks differ although no record was found that does: never, unless the two reads saw different data."""
        return bool(self.chunks_differing) and not (self.differences or self.removed or self.unproven)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """All partitions. `waiting` has none of its records copied yet; of `not_compared` the position belongs to another
    topic. Times in ms since 1970; `window`: only records from the first time to before the second one. `tool_version`,
    `spark_version`: what has compared; the second one is empty where that was done without Spark. `values`: whether
    fields of altered records may be shown. `repair`: see `spark.reconcile.missing`."""

    flow: str
    source: ClusterFacts
    target: ClusterFacts
    mode: Mode
    snapshot_ms: int
    finished_ms: int
    partitions: tuple[PartitionOutcome, ...]
    waiting: tuple[WaitingPair, ...] = ()
    not_compared: tuple[Incident, ...] = ()
    window: tuple[int | None, int | None] = (None, None)
    tool_version: str = ""
    spark_version: str = ""
    values: bool = True
    notes: tuple[str, ...] = ()
    repair: Mapping[str, Any] | None = None

    @property
    def agrees(self) -> bool:
        """Whether all that was compared agrees, and nothing is left unproven or could not be compared."""
        return not self.differs and not self.unproven

    @property
    def differs(self) -> bool:
        """Whether there is a difference for certain."""
        return any(partition.differs for partition in self.partitions)

    @property
    def unproven(self) -> bool:
        """Whether it isn't known of records, or of whole partitions, that they agree."""
        return bool(self.not_compared) or any(partition.unproven for partition in self.partitions)

    @property
    def verdict(self) -> OutcomeVerdict:
        """In one word; `agrees` only where every record of both sides was compared."""
        if self.differs or self.unproven:
            return "differs" if self.differs else "unproven"
        removed = any(partition.removed or partition.signed_gaps for partition in self.partitions)
        whole = self.same and not self.to_begin and not removed
        return "agrees" if whole else "no_difference"

    @property
    def same(self) -> int:
        """Records that both sides have alike."""
        return sum(partition.same for partition in self.partitions)

    @property
    def windowed(self) -> bool:
        """Whether only a window of time was compared."""
        return self.window != (None, None)

    @property
    def to_begin(self) -> tuple[WaitingPair, ...]:
        """Those of `waiting` that have something to copy."""
        return tuple(item for item in self.waiting if item.offsets[0] < item.offsets[1])

    @property
    def lag(self) -> int:
        """Source offsets behind the positions."""
        return sum(partition.lag for partition in self.partitions)

    @property
    def records_read(self) -> int:
        """Records of both sides, each counted once."""
        return sum(partition.source_records + partition.target_records for partition in self.partitions)

    @property
    def duration_ms(self) -> int:
        """From the snapshot to the last finding."""
        return max(0, self.finished_ms - self.snapshot_ms)

    def totals(self) -> dict[str, int]:
        """Count records by verdict over all partitions."""
        found: dict[str, int] = {}
        for partition in self.partitions:
            for name, records in partition.verdicts.items():
                found[name] = found.get(name, 0) + records
        return found

    def notes_said(self) -> list[tuple[str, list[Partition]]]:
        """Return each note once, with the source partitions of which it is true; none: of all."""
        found: dict[str, list[Partition]] = {note: [] for note in self.notes}
        for partition in self.partitions:
            for note in partition.notes:
                found.setdefault(note, []).append(partition.source)
            if partition.by_content:
                found.setdefault(BY_CONTENT.format(partition.by_content), []).append(partition.source)
        return [(note, [] if len(of) == len(self.partitions) else of) for note, of in found.items()]


def key_text(key: bytes | None) -> str | None:
    """Write a key for machines: text where it is printable UTF-8, else hexadecimal."""
    if key is None:
        return None
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return "0x" + key.hex()
    return text if text.isprintable() else "0x" + key.hex()
