"""What a reconciliation found, as data for reports and machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from replicator.model.errors import Incident
from replicator.model.partition import Partition
from replicator.spark.reconcile.verdicts import LOSSES, REMOVED, SAME, UNPROVEN

Mode = Literal["quick", "full", "deep"]
DIFFERS = "differs"
"""Records of the source in chunks that differ; the quick pass does not say which of them."""
BUCKETS = 100
"""Parts of a partition that the report's chart tells apart."""


@dataclass(frozen=True, slots=True)
class Example:
    """One finding, for people. `key` is its beginning."""

    verdict: str
    fields: str
    source_offset: int | None
    target_offset: int | None
    timestamp_ms: int | None
    key: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOutcome:
    """One partition. `verdicts` counts records of the source (extra and doubled ones: of the target).

    `position_records` is what the position says; None where it says nothing about the compared range, or retention or
    compaction has taken records on both sides. `places` counts findings by verdict in BUCKETS parts of the partition.
    """

    source: Partition
    target: Partition
    source_offsets: tuple[int, int]
    target_offsets: tuple[int, int]
    source_records: int
    target_records: int
    position_records: int | None
    source_counts_agree: bool
    target_counts_agree: bool
    chunks: int
    chunks_differing: int
    verdicts: Mapping[str, int]
    places: Mapping[str, list[int]] = field(default_factory=dict)
    examples: tuple[Example, ...] = ()
    notes: tuple[str, ...] = ()

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
    def agrees(self) -> bool:
        """Whether both sides and the position say the same, and nothing is left unproven."""
        return not self.differs and not self.unproven

    @property
    def differs(self) -> bool:
        """Whether there is a difference for certain."""
        return bool(self.differences) or self.chunks_unexplained or not self.counts_agree

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
    topic. Times in ms since 1970. `repair`: see `missing`."""

    flow: str
    source: str
    target: str
    mode: Mode
    snapshot_ms: int
    finished_ms: int
    partitions: tuple[PartitionOutcome, ...]
    waiting: tuple[Partition, ...] = ()
    not_compared: tuple[Incident, ...] = ()
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

    def totals(self) -> dict[str, int]:
        """Records by verdict over all partitions."""
        found: dict[str, int] = {}
        for partition in self.partitions:
            for name, records in partition.verdicts.items():
                found[name] = found.get(name, 0) + records
        return found

    def notes_said(self) -> list[tuple[str, list[Partition]]]:
        """Each note once, with the source partitions of which it is true; none: of all."""
        found: dict[str, list[Partition]] = {note: [] for note in self.notes}
        found |= {str(incident): [Partition(incident.topic, incident.partition)] for incident in self.not_compared}
        for partition in self.partitions:
            for note in partition.notes:
                found.setdefault(note, []).append(partition.source)
        return [(note, [] if len(of) == len(self.partitions) else of) for note, of in found.items()]

    def as_json(self) -> dict[str, Any]:
        """The same for machines. Places are sparse (bucket → records); keys are text where they are UTF-8, else hex."""
        found = asdict(replace(self, not_compared=()))
        found["not_compared"] = [incident.facts for incident in self.not_compared]
        for partition, row in zip(self.partitions, found["partitions"], strict=True):
            row |= {"source": _named(partition.source), "target": _named(partition.target), "agrees": partition.agrees}
            row["places"] = {
                name: {str(bucket): records for bucket, records in enumerate(counts) if records}
                for name, counts in partition.places.items()
            }
            row["examples"] = [{**asdict(item), "key": key_text(item.key)} for item in partition.examples]
        waiting = [_named(at) for at in self.waiting]
        return {**found, "waiting": waiting, "agrees": self.agrees, "totals": self.totals()}


def key_text(key: bytes | None) -> str | None:
    """A key as people read it."""
    if key is None:
        return None
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return "0x" + key.hex()
    return text if text.isprintable() else "0x" + key.hex()


def _named(at: Partition) -> dict[str, Any]:
    return {"topic": at.topic, "partition": at.partition}
