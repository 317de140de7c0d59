"""What the coordinators need from the broker, as protocols. `Broker` is a `CoordinatorHost`, as is one in tests."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from embedded_broker.config.thresholds import Thresholds
from embedded_broker.runtime.clock import Clock
from embedded_broker.runtime.fair_share import FairShare
from embedded_broker.state.consumer_types import ConsumerGroupConfig
from embedded_broker.state.producers import PartitionProducers


class Partition(Protocol):
    """A partition's log with its producer state."""

    @property
    def producers(self) -> PartitionProducers: ...
    @property
    def log_start(self) -> int: ...
    @property
    def log_end(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def stopped(self) -> str | None: ...

    def append(self, batch: bytes | bytearray, *, now_ms: int | None = None) -> int:
        """Stamp the batch, append it and apply it to `producers`; returns its base offset. Not durable yet."""
        ...


class Topic(Protocol):
    """A topic's partitions, by index."""

    @property
    def topic_id(self) -> UUID: ...
    @property
    def partitions(self) -> Sequence[Partition]: ...


class Topics(Protocol):
    """The topics by name, internal ones included. `version` grows when one comes, goes, or gets partitions."""

    @property
    def version(self) -> int: ...
    def names(self) -> Collection[str]: ...
    def get(self, name: str) -> Topic | None: ...


class CoordinatorHost(Protocol):
    """The broker around a coordinator."""

    @property
    def clock(self) -> Clock: ...
    @property
    def topics(self) -> Topics: ...
    @property
    def thresholds(self) -> Thresholds: ...
    @property
    def fair_share(self) -> FairShare: ...

    def new_uuid(self) -> UUID:
        """Make a random one."""
        ...

    def internal_log(self, name: str) -> Partition:
        """Return the only partition of an internal topic."""
        ...

    @property
    def has_disk_space(self) -> bool:
        """Whether the disk isn't full. While it is, what is not urgent must wait."""
        ...

    async def durable(self, partition: Partition) -> None:
        """Return only once everything appended so far is on disk. Raises if it can't be."""
        ...

    async def trim(self, partition: Partition, offset: int) -> None:
        """Raise the partition's log start, durably."""
        ...

    def fail(self, error: BaseException) -> None:
        """Stop the broker: a coordinator has failed. Durable decisions are completed at the next start."""
        ...


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Named as in Kafka's broker configuration, where it has them."""

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 7 * 24 * 3_600_000
    ids_max_bytes: int = 32 * 1024 * 1024
    aborts_hanging: bool = False
    """Whether a start aborts hanging transactions (see `hanging_transactions`); otherwise it only logs them."""


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Named as in Kafka's broker configuration."""

    initial_rebalance_delay_ms: int = 0
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    new_member_join_timeout_ms: int = 300_000
    members_max_bytes: int = 64 * 1024 * 1024
    """What members of groups may hold in memory, all together."""
    offsets_max_bytes: int = 64 * 1024 * 1024
    """What committed offsets may take in memory, of all groups together."""
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    consumer: ConsumerGroupConfig = field(default_factory=ConsumerGroupConfig)


def find_partition(topics: Topics, name: str, index: int) -> Partition | None:
    """Find a partition by name and index, or None."""
    topic = topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        return None
    return topic.partitions[index]
