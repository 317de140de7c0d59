"""Logs of a simulated cluster: topics with ids, partitions with transactions and markers."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from replicator.model.partition import LogEnds


class Fate(Enum):
    """What has become of a record's transaction."""

    OPEN = auto()
    COMMITTED = auto()
    ABORTED = auto()
    MARKER = auto()


@dataclass(slots=True)
class FakeEntry:
    """One offset of a log: a record with its transaction's fate, or a marker."""

    value: str
    fate: Fate
    origin: int = -1  # the source offset that it was copied from, on the target
    epoch: int = 0
    at_ms: int = 0
    producer: tuple[str, int] = ("", -1)  # transactional id and epoch
    block: bytes = b""  # of the offset map


@dataclass(slots=True)
class FakeLog:
    """One partition: `entries[0]` stands at offset `start`."""

    start: int = 0
    entries: list[FakeEntry] = field(default_factory=list)
    leaderless: bool = False  # nobody answers for it, and who reads it is told nothing
    not_ready: str = ""  # why it takes neither records nor markers
    damaged: bool = (
        False  # the disk of its leader has failed: it is neither read nor written, and metadata says nothing
    )
    unreachable: bool = False  # who asks its leader has no answer; metadata says nothing
    stuck: bool = False  # whoever reads or writes is told nothing, and all else is answered
    drops_markers: bool = False  # as Kafka 4.3 does of a partition without a leader: nobody will write them

    @property
    def end(self) -> int:
        """High watermark."""
        return self.start + len(self.entries)

    @property
    def stable(self) -> int:
        """Last stable offset."""
        for offset, entry in self.all():
            if entry.fate is Fate.OPEN:
                return offset
        return self.end

    def all(self) -> list[tuple[int, FakeEntry]]:
        """Offsets and entries."""
        return list(enumerate(self.entries, self.start))

    def put(self, *values: str, fate: Fate = Fate.COMMITTED, epoch: int = 0, at_ms: int = 0) -> None:
        """Append records."""
        self.entries += [FakeEntry(value, fate, epoch=epoch, at_ms=at_ms) for value in values]

    def end_open(self, transactional_id: str, fate: Fate) -> None:
        """Append a producer's marker: whatever it has open here ends so."""
        self.entries.append(FakeEntry("", Fate.MARKER, producer=(transactional_id, int(fate is Fate.COMMITTED))))
        for entry in self.entries:
            if entry.fate is Fate.OPEN and entry.producer[0] == transactional_id:
                entry.fate = fate

    def marker(self) -> None:
        """Append a transaction's marker, which takes an offset."""
        self.entries.append(FakeEntry("", Fate.MARKER))

    def delete_before(self, offset: int) -> None:
        """DeleteRecords or retention."""
        del self.entries[: max(0, offset - self.start)]
        self.start = max(self.start, offset)

    def truncate(self, offset: int) -> None:
        """An unclean election: the log ends at `offset` now."""
        del self.entries[offset - self.start :]

    def committed(self) -> list[tuple[int, FakeEntry]]:
        """What a read_committed reader sees."""
        stable = self.stable
        return [(offset, e) for offset, e in self.all() if offset < stable and e.fate is Fate.COMMITTED]


@dataclass(slots=True)
class FakeTopic:
    """A topic with its id: a new one of the same name is another object."""

    topic_id: str
    logs: list[FakeLog]
    refuses: frozenset[str] = frozenset()  # values of records that this topic doesn't take
    for_timestamp: bool = False  # it is their timestamps that it doesn't take
    names_refused: bool = True  # the answer names them (KIP-467)
    compacted: bool = False
    configs: dict[str, str] = field(default_factory=dict)  # that were set, by a test
    stamps: bool = False  # it replaces the timestamps of records
    resent: bool = False  # its acknowledgements are those of batches that had been appended before
    silent: bool = False  # the client ignores it: its metadata has a lower leader epoch than that of its predecessor

    @property
    def seems_stamped(self) -> bool:
        """What acknowledgements say of the timestamps."""
        return self.stamps or self.resent

    def ends(self, partition: int) -> LogEnds:
        """As `ClusterQuestions.log_ends` answers."""
        log = self.logs[partition]
        return LogEnds(self.topic_id, log.start, log.stable, log.end)
