"""What a plane of either engine is told when it is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from replicator.config import Flow
from replicator.kafka.coordinator_patience import CoordinatorPatience
from replicator.kafka.fetch_size import FetchSize
from replicator.model.partition import Partition
from replicator.model.timestamps import TimestampBounds


@dataclass(frozen=True, slots=True)
class PlaneSettings:
    """What a plane is to do.

    `claim_partition` is the one of the claims topic that this lane writes, `routes` maps source to target partitions.
    `batch_bytes_max` and `record_bytes_max` are as of `LanePlan`, `compress` too, `timestamps` and `compression` by
    source partition as of `Route`. `bulk`: single partitions are copied in large transactions, where latency does not
    matter. `patience` is what the flow knows of its coordinator, None: nothing. `fetch_size` is what it knows of the
    line to its source.
    """

    flow: Flow
    transactional_id: str
    claim_partition: int
    routes: Mapping[Partition, Partition]
    batch_bytes_max: int
    record_bytes_max: int
    bulk: bool = False
    compress: bool = False
    patience: CoordinatorPatience | None = None
    fetch_size: FetchSize = field(default_factory=FetchSize)
    timestamps: Mapping[Partition, TimestampBounds] = field(default_factory=dict)
    compression: Mapping[Partition, str] = field(default_factory=dict)
