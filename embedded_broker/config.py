"""What a broker is started with. Names follow Kafka's broker settings where one exists."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

MIB = 1024 * 1024


class Fsync(StrEnum):
    """When appended data becomes visible and acknowledged.

    `always`: after its fsync. `interval`: at once; fsync follows within `fsync_interval_ms`. `never`: at once;
    the operating system writes when it likes. The last two survive a kill of the process, not of the machine.
    """

    ALWAYS = "always"
    INTERVAL = "interval"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Settings of one broker process."""

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 9092
    """0: the operating system chooses; `Broker.port` is the real one."""
    advertised_host: str | None = None
    """What clients are told; `host` by default, or localhost when that is a wildcard."""
    node_id: int = 1
    fsync: Fsync = Fsync.ALWAYS
    fsync_interval_ms: int = 200
    auto_create_topics: bool = False
    partitions_default: int = 1
    partitions_max: int = 10_000
    """Of all topics together: each holds an open file."""
    frame_bytes_max: int = 100 * MIB
    buffered_bytes_max: int = 256 * MIB
    """Of requests not yet answered, over all connections."""
    frame_deadline_ms: int = 60_000
    """From a frame's first byte to its last."""
    requests_pending_max: int = 64
    """Of one connection; more stay in the socket."""
    connections_max: int = 4_096
    fetch_bytes_max: int = 55 * MIB
    retention_check_interval_ms: int = 10_000
    transaction_timeout_ms_max: int = 900_000
    producer_id_expiration_ms: int = 86_400_000
    transactional_id_expiration_ms: int = 604_800_000
    offsets_retention_ms: int = 604_800_000
    offset_metadata_bytes_max: int = 4_096
    group_session_timeout_ms_min: int = 6_000
    group_session_timeout_ms_max: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 0
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000

    @property
    def host_for_clients(self) -> str:
        """The host that Metadata and FindCoordinator give."""
        if self.advertised_host is not None:
            return self.advertised_host
        return "localhost" if self.host in ("0.0.0.0", "::", "") else self.host
