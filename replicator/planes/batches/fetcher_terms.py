"""What a fetcher keeps to, and what it tells. Used by `fetcher`, and by whoever does its I/O."""

from __future__ import annotations

from dataclasses import dataclass, field

from replicator.model.errors import ReplicatorError
from replicator.model.partition import Partition, Seek
from replicator.planes.batches.committed import Selected


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    """`cluster` is the source's name, `part_bytes_max` what a request wants of one partition. `nearer_s`: so long a
    replica that the leader has named is read (KIP-392); the Java client takes metadata.max.age.ms."""

    cluster: str
    part_bytes_max: int = 1 << 20
    patience_s: float = 30.0
    nearer_s: float = 300.0


@dataclass(slots=True)
class FetchedNews:
    """What is new: batches by partition, in order, of `bytes` in all; else as of `contract.PollResult`."""

    selected: dict[Partition, list[Selected]] = field(default_factory=dict)
    ends: dict[Partition, Seek] = field(default_factory=dict)
    failed: dict[Partition, ReplicatorError] = field(default_factory=dict)
    heard: set[Partition] = field(default_factory=set)
    bytes: int = 0
