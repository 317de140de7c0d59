"""What a lane asks of a data plane. Implementations: `records` (confluent-kafka).

A plane moves bytes and reports facts; it decides nothing about positions, owners or generations. All calls are
made by the one thread that owns the lane, and all may block up to the flow's named limits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from replicator.errors import Incident


class Partition(NamedTuple):
    """A topic's partition, on either cluster."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


Span = tuple[int, int]
"""Offsets [first, end)."""


class Committed(NamedTuple):
    """A committed offset of the position group: offset and metadata as they stand on the target."""

    offset: int
    metadata: str


class Seek(NamedTuple):
    """Where to read a source partition next; `leader_epoch` (-1: unknown) lets the broker see truncation (KIP-320)."""

    offset: int
    leader_epoch: int


@dataclass(slots=True)
class Copied:
    """What happened to one source partition in the open transaction.

    `next_offset` is the next source offset to read. `first_target`/`next_target` bound the acknowledged
    records on the target (-1 without records). `blocked` names the record that stops the partition: all before
    it belong to this transaction, it and all behind it do not. `runs`: the source offsets of the records, where only
    some were asked for.
    """

    next_offset: int
    leader_epoch: int = -1
    records: int = 0
    bytes: int = 0
    digest: str = ""
    first_target: int = -1
    next_target: int = -1
    blocked: Incident | None = None
    runs: list[Span] = field(default_factory=list)


@dataclass(slots=True)
class Polled:
    """One look at the source: how many records were handed to the writer, and what became of partitions.

    `drained` means that nothing more was waiting; `incidents` are errors of single partitions.
    """

    records: int = 0
    bytes: int = 0
    drained: bool = True
    incidents: list[Incident] = field(default_factory=list)


class Plane(Protocol):
    """One lane's source reader and target writer."""

    def fence(self) -> None:
        """Initialise the transactional id: ends the predecessor's open transaction and fences it.

        Raises Fenced, NotAllowed, Unreachable or Retriable.
        """

    def committed(self, partitions: Sequence[Partition]) -> dict[Partition, Committed | None]:
        """Stable committed offsets of the position group by *target* partition; None only for an explicit -1."""

    def seek(self, positions: Mapping[Partition, Seek], only: Mapping[Partition, Sequence[Span]] | None = None) -> None:
        """Read exactly these source partitions from these offsets on; everything buffered is thrown away.

        `only`: of a partition nothing else is copied than the records in these spans, which follow one another; its
        end (see `ends`) is that of the last one.
        """

    def begin(self) -> None:
        """Open a transaction on the target."""

    def poll(self, records_max: int, timeout_s: float) -> Polled:
        """Read up to `records_max` source records and hand them to the writer. Waits for the first only."""

    def serve(self) -> None:
        """Let the writers' callbacks run while nothing is written: errors, statistics. Raises what they found."""

    def pending(self) -> bool:
        """Whether records were read since the last commit or seek."""

    def first(self) -> tuple[Partition, int] | None:
        """Source partition and offset of the first record read since the last commit or seek."""

    def ends(self) -> Mapping[Partition, Seek]:
        """Partition ends seen since the last seek, by source partition: past markers and aborted tails."""

    def flush(self) -> dict[Partition, Copied]:
        """Wait until all handed-over records are acknowledged; what happened, by source partition.

        Raises Abortable when a record was refused, UnknownOutcome when an ack came without offset.
        """

    def send_positions(self, offsets: Mapping[Partition, Committed], entries: Sequence[tuple[bytes, bytes]]) -> None:
        """Add `offsets` (by target partition) and records of the flow's map (key, value), opening a transaction if
        needed."""

    def end(self) -> None:
        """Commit. When this returns, the transaction is committed and nothing broke on the way.

        Raises UnknownOutcome or Fenced; nothing is ever sent again.
        """

    def deliver(self) -> None:
        """Under at_most_once: write the records whose positions are committed, once and without retry."""

    def abort(self) -> None:
        """Abort the open transaction. Raises UnknownOutcome when that is not certain."""

    def close(self) -> None:
        """Let go of all connections without committing or aborting anything."""
