"""`BrokerConfig`, the settings of one broker process. Names follow Kafka's broker settings where one exists."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from embedded_broker.config.listeners import MECHANISMS, Listener, OAuth, TlsFiles
from embedded_broker.config.thresholds import DEFAULTS, Thresholds

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
    listeners: tuple[Listener, ...] = ()
    """Instead of one in plain text on `host` and `port`. `Broker.port` is the real port of the first."""
    allow_plain_text: bool = False
    """Listen without TLS where others than this machine can listen in."""
    tls: TlsFiles | None = None
    sasl_mechanisms: tuple[str, ...] = MECHANISMS
    """Besides those, OAUTHBEARER can be offered."""
    oauth: OAuth = field(default_factory=OAuth)
    users_file: Path | None = None
    """Lines of `name:password`: who may log in by any mechanism."""
    authorizer: bool = False
    """Whether ACLs are enforced."""
    super_users: frozenset[str] = frozenset()
    """Principals (`User:name`) that may do everything."""
    allow_everyone_if_no_acl_found: bool = False
    node_id: int = 1
    fsync: Fsync = Fsync.ALWAYS
    fsync_interval_ms: int = 200
    scan_bytes_max: int = 128 * MIB
    """What a start after a kill may have to go through, over all partitions together; it takes about a quarter of a
    second."""
    auto_create_topics: bool = False
    partitions_default: int = 1
    partitions_max: int = 10_000
    """Partitions of all topics together: each holds an open file."""
    frame_bytes_max: int = 100 * MIB
    frame_without_records_bytes_max: int = 16 * MIB
    """Of all requests but Produce. Five are a CreateTopics of 20,000 names of 249 bytes, fifteen a commit of 20,000
    offsets in one topic with 700 bytes of metadata each, of which `offsets_bytes_max` takes the first."""
    buffered_bytes_max: int = 128 * MIB
    """Bytes of requests not yet handled, over all connections."""
    answers_bytes_max: int = 64 * MIB
    """Bytes of responses not yet read by the clients, over all connections."""
    frame_deadline_ms: int = 60_000
    """From a frame's first byte to its last."""
    requests_pending_max: int = 64
    """Pending requests of one connection; more stay in the socket."""
    connections_max: int = 4_096
    connections_per_ip_max: int = 0
    """Those of one address. 0: three quarters of all, so that there are some for others."""
    connections_per_ip_overrides: str = ""
    """Other numbers for some addresses: `address:number`, with commas between."""
    connection_creation_rate_max: int = 2**31 - 1
    """New connections in a second, over ten seconds. Those beyond wait for their turn."""
    first_request_deadline_ms: int = 30_000
    """From the connection, or the end of its TLS handshake, to its first whole request; where clients log in by SASL,
    `login_deadline_ms` counts."""
    connections_idle_ms: int = 600_000
    """Those on which nothing moves for so long are closed."""
    connections_reauth_ms_max: int = 0
    """For how long a login by SASL holds; then the client must log in again, on the same connection. 0: for ever."""
    login_deadline_ms: int = 30_000
    """From the connection to the end of the login, the TLS handshake included."""
    handshake_deadline_ms: int = 10_000
    """From the connection to the end of the TLS handshake."""
    unfinished_logins_max: int = 384
    """Connections in a TLS handshake or a login, and at most three quarters of all connections. A newcomer takes the
    place of the oldest one, see `net.unfinished_logins`."""
    unfinished_logins_per_ip_max: int = 0
    """Those of one address. 0: half of all."""
    login_frame_bytes_max: int = 64 * 1024
    login_requests_pending_max: int = 4
    login_failed_delay_ms: int = 100
    """How long a failed login waits for its answer."""
    fetch_bytes_max: int = 16 * MIB
    """Of one answer to Fetch, however much the client would take; a quarter of all answers."""
    retention_check_interval_ms: int = 10_000
    transaction_timeout_ms_max: int = 900_000
    producer_id_expiration_ms: int = 86_400_000
    producers_max: int = 40_000
    """What partitions remember of producers, some 400 bytes each: one that has written to two counts twice. Those of
    one address are three quarters of it at most, of one connection a quarter; from three quarters of such a part on
    the longest idle ones go sooner, after an hour, and then ten minutes. Batches of more are refused:
    THROTTLING_QUOTA_EXCEEDED."""
    transactional_id_expiration_ms: int = 604_800_000
    offsets_retention_ms: int = 604_800_000
    offset_metadata_bytes_max: int = 4_096
    offsets_bytes_max: int = 28 * MIB
    """What committed offsets take in memory, of all groups together; those of one address three quarters of it, and of
    one connection a quarter. One without metadata takes 450 bytes, a group 2,000. Above it OffsetCommit refuses new
    ones: INVALID_COMMIT_OFFSET_SIZE."""
    transactional_ids_bytes_max: int = 10 * MIB
    """What transactional ids and the partitions of their open transactions take in memory, of one address three
    quarters of it, and of one connection a quarter. Above it new ones are refused: POLICY_VIOLATION."""
    metadata_bytes_max: int = 64 * MIB
    """What topics, their configs, ACLs, users, quotas and configs of groups take in memory, some 2,500 bytes each and
    their texts. Above it new ones are refused: POLICY_VIOLATION."""
    group_session_timeout_ms_min: int = 6_000
    group_session_timeout_ms_max: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 0
    group_members_bytes_max: int = 12 * MIB
    """What members of groups take in memory, all together, those of one address three quarters of it. For a new one
    members of the connection that holds most leave, if that is more than 1/128 of it and more than the new one's holds;
    else it is refused: GROUP_MAX_SIZE_REACHED."""
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    thresholds: Thresholds = DEFAULTS

    @property
    def listening(self) -> tuple[Listener, ...]:
        """At least one listener."""
        return self.listeners or (Listener(self.host, self.port),)

    def connections_of_one_ip(self, connections_max: int) -> int:
        """Return how many of `connections_max` one address may have."""
        return self.connections_per_ip_max or connections_max - connections_max // 4
