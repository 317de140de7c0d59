"""The log of one partition, fetched from its leader batch by batch as it is stored: implements `holes.Log`.

Neither librdkafka nor Spark's connector shows batch headers and markers. `fetch` reads uncommitted: what is asked is
which offsets are taken, by whatever. Used by `log_evidence`, `map_log`; `fetch_committed` by `committed_log`.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from kafka_records.committed import Aborted
from replicator.backoff import Backoff
from replicator.config import Cluster, Flow
from replicator.kafka import failures
from replicator.model.errors import Incident, Retriable, TopicMissing
from replicator.model.partition import Partition
from replicator.wire.access import access
from replicator.wire.connection import Address, Connection, ConnectionLost, address_of
from replicator.wire.holes import OffsetOutOfRange
from replicator.wire.partition_requests import fetch_fields, metadata_fields, offset_fields

T = TypeVar("T")
LATEST, EARLIEST, EARLIEST_LOCAL = -1, -2, -4
_NONE, _OFFSET_OUT_OF_RANGE, _CORRUPT_MESSAGE, _REPLICA_NOT_AVAILABLE = 0, 1, 2, 9
_OTHER_TOPIC_ID = (100, 103)  # UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID
_URL_SAFE = str.maketrans("+/", "-_")  # librdkafka writes ids in the other alphabet of base64 than Kafka's Uuid
_BY_NAME_MAX = 12  # Fetch: from version 13 on by topic id (KIP-516)
_LOCAL_SINCE = 8  # ListOffsets: brokers before it know no tiered storage (KIP-405)
_UNCOMMITTED, _COMMITTED = 0, 1
_RESPONSE_BYTES_MIN, _OVERHEAD_BYTES = 2**24, 2**20
_AGAIN_FIRST_S, _AGAIN_MAX_S = 0.05, 1.0


class _Throttled(Exception):
    """The broker answers without data, because this client has had its quota, and is to wait so long (KIP-219)."""

    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s
        super().__init__()


class CommittedFetch(NamedTuple):
    """What the leader returned of a partition up to the last stable offset, and which transactions of that are aborted;
    without `records`: nothing, now."""

    records: bytes
    aborted: tuple[Aborted, ...] = ()


@dataclass(frozen=True, slots=True)
class _Leader:
    connection: Connection
    epoch: int


class PartitionLog:
    """Implements `holes.Log`. Used by one thread; a context manager that closes its connection.

    Raises, in every method: Unreachable, NotAllowed, Retriable (TopicMissing), Unsupported, ConfigError, or Incident.
    A leader that has changed, or a broker that went down, is looked for within the flow's request timeout.
    """

    def __init__(self, flow: Flow, cluster: Cluster, at: Partition, topic_id: str = "") -> None:
        """`topic_id` is the topic's as `TopicInfo` has it; empty: that of the first answer. Another one is another
        topic (Incident: topic_gone)."""
        limits = flow.limits
        self._cluster, self._at = cluster, at
        self._topic_id = topic_id.translate(_URL_SAFE)
        self._access = access(cluster)
        self._client_id = f"eos-replicate.{flow.name}.evidence"
        self._connect_s, self._request_s = limits.connect_timeout_ms / 1000, limits.request_timeout_ms / 1000
        self._response_bytes_max = max(_RESPONSE_BYTES_MIN, limits.record_bytes_max) + _OVERHEAD_BYTES
        self._bootstrap = [address_of(text) for text in cluster.bootstrap_servers]
        self._brokers: list[Address] = []
        self._current: _Leader | None = None
        self._end = 0

    def __enter__(self) -> PartitionLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def connect(self) -> None:
        """Connect to the leader, once, before the first question. Raises as that."""
        self._leader()

    def close(self) -> None:
        """Close the connection; a later question connects again."""
        if self._current is not None:
            self._current.connection.close()
            self._current = None

    def start(self) -> int:
        """See `holes.Log`."""
        return self._ask(lambda leader, deadline_s: self._offset(leader, EARLIEST, deadline_s))

    def end(self) -> int:
        """See `holes.Log`."""
        self._end = self._ask(lambda leader, deadline_s: self._offset(leader, LATEST, deadline_s))
        return self._end

    def stable_end(self) -> int:
        """Return the last stable offset: nothing of an open transaction is below it."""
        return self._ask(lambda leader, deadline_s: self._offset(leader, LATEST, deadline_s, _COMMITTED))

    def fetch(self, offset: int, bytes_max: int) -> bytes | None:
        """See `holes.Log`."""
        return self._ask(lambda leader, deadline_s: self._fetch(leader, offset, bytes_max, deadline_s))

    def fetch_committed(self, offset: int, bytes_max: int) -> CommittedFetch:
        """Fetch as `fetch` does, up to the last stable offset, with markers, and with what `kafka_records.committed`
        leaves out.

        Where that offset is reached, or a new leader doesn't know it yet, nothing is returned. Raises OffsetOutOfRange.
        """

        def fetched(leader: _Leader, deadline_s: float) -> CommittedFetch:
            found = self._fetched(leader, offset, bytes_max, deadline_s, _COMMITTED)
            aborted = tuple((int(one.producer_id), int(one.first_offset)) for one in found.aborted_transactions or ())
            return CommittedFetch(bytes(found.records or b""), aborted)

        return self._ask(fetched)

    def _ask(self, question: Callable[[_Leader, float], T]) -> T:
        """Return the leader's answer. It is asked again, with the leader looked up anew, while it is only a matter of
        time.
        """
        deadline_s = time.monotonic() + self._request_s
        backoff = Backoff(_AGAIN_FIRST_S, _AGAIN_MAX_S)
        while True:
            try:
                leader = self._leader()
                return question(leader, time.monotonic() + self._request_s)
            except OffsetOutOfRange:
                raise
            except _Throttled as throttled:
                time.sleep(throttled.pause_s)
                deadline_s += throttled.pause_s
            except (Retriable, ConnectionLost):
                self.close()
                pause_s = backoff.next_s()
                if time.monotonic() + pause_s >= deadline_s:
                    raise
                time.sleep(pause_s)
            except BaseException:
                self.close()
                raise

    def _leader(self) -> _Leader:
        if self._current is not None and self._current.connection.expired:
            self.close()
        if self._current is None:
            connection, address = self._any_broker()
            try:
                led_by, epoch = self._look_up(connection)
                if led_by != address:
                    connection.close()
                    connection = self._connect(led_by, time.monotonic() + self._connect_s)
            except BaseException:
                connection.close()
                raise
            self._current = _Leader(connection, epoch)
        return self._current

    def _any_broker(self) -> tuple[Connection, Address]:
        """Connect to the first that answers of the bootstrap servers and the brokers known since; each is given its
        share of the time for connecting."""
        deadline_s = time.monotonic() + self._connect_s
        addresses = list(dict.fromkeys([*self._bootstrap, *self._brokers]))
        for number, address in enumerate(addresses):
            now_s = time.monotonic()
            try:
                share_s = max(0.0, deadline_s - now_s) / (len(addresses) - number)
                return self._connect(address, now_s + share_s), address
            except ConnectionLost:
                if number == len(addresses) - 1:
                    raise
        raise ConnectionLost(f"cluster {self._cluster.name!r}: bootstrap.servers names no address")

    def _connect(self, address: Address, deadline_s: float) -> Connection:
        return Connection(
            address,
            self._access,
            self._client_id,
            deadline_s=deadline_s,
            response_bytes_max=self._response_bytes_max,
            response_setting="limits.record_bytes_max",
        )

    def _look_up(self, connection: Connection) -> tuple[Address, int]:
        """Return (address, epoch) of the partition's leader."""

        doing, right = f"find the leader of {self._at}", f"Describe on topic {self._at.topic!r}"
        answer = connection.ask(
            "metadata", partial(metadata_fields, self._at.topic), time.monotonic() + self._request_s
        )
        addresses = {each.node_id: (each.host, each.port) for each in answer.brokers}
        self._brokers = list(addresses.values()) or self._brokers
        topic = next((each for each in answer.topics if each.name == self._at.topic), None)
        if topic is None:
            raise Retriable(f"{connection.where}: cannot {doing}: it answers for other topics")
        self._check(topic.error_code, doing, right)
        self._check_id(getattr(topic, "topic_id", None))
        found = next((each for each in topic.partitions if each.partition_index == self._at.partition), None)
        if found is None:
            raise TopicMissing(f"cluster {self._cluster.name!r}: cannot {doing}: there is no such partition")
        if found.error_code != _REPLICA_NOT_AVAILABLE:
            self._check(found.error_code, doing, right)
        if found.leader_id not in addresses:
            raise Retriable(f"cluster {self._cluster.name!r}: cannot {doing}: it has none")
        return addresses[found.leader_id], getattr(found, "leader_epoch", -1)

    def _check_id(self, found: UUID | None) -> None:
        """Check the invariant that all that is read is of one topic, and not of another one created under its name."""
        if found is None or found.int == 0:
            return
        topic_id = base64.urlsafe_b64encode(found.bytes).decode().rstrip("=")
        if self._topic_id and topic_id != self._topic_id:
            detail = f"cluster {self._cluster.name!r} has another topic under this name: its id is {topic_id}"
            raise Incident("topic_gone", detail, topic=self._at.topic, partition=self._at.partition)
        self._topic_id = topic_id

    def _offset(self, leader: _Leader, timestamp: int, deadline_s: float, isolation: int = _UNCOMMITTED) -> int:
        """Return what ListOffsets says of one of the special timestamps."""

        fields = partial(offset_fields, self._at, leader.epoch, timestamp, isolation)
        answer = leader.connection.ask("list_offsets", fields, deadline_s)
        doing = f"ask for an offset of {self._at}"
        found = _only(answer.topics, leader, doing)
        self._check(found.error_code, doing, f"Describe on topic {self._at.topic!r}")
        return int(found.offset)

    def _fetch(self, leader: _Leader, offset: int, bytes_max: int, deadline_s: float) -> bytes | None:
        found = self._fetched(leader, offset, bytes_max, deadline_s, _UNCOMMITTED)
        if found.records:
            return bytes(found.records)
        if found.high_watermark < self._end:
            where, doing = leader.connection.where, f"fetch {self._at} from offset {offset}"
            raise Retriable(f"{where}: cannot {doing}: its high watermark is not yet known")
        return b"" if self._is_local(leader, offset, deadline_s) else None

    def _fetched(self, leader: _Leader, offset: int, bytes_max: int, deadline_s: float, isolation: int) -> Any:
        """Return what the leader says of the partition. Raises OffsetOutOfRange."""

        fields = partial(fetch_fields, (self._at, _uuid(self._topic_id)), leader.epoch, offset, bytes_max, isolation)
        highest = None if self._topic_id else _BY_NAME_MAX
        answer = leader.connection.ask("fetch", fields, deadline_s, highest=highest)
        doing, right = f"fetch {self._at} from offset {offset}", f"Read on topic {self._at.topic!r}"
        self._check(getattr(answer, "error_code", _NONE), doing, right)
        if not answer.responses and answer.throttle_time:
            raise _Throttled(answer.throttle_time.total_seconds())
        found = _only(answer.responses, leader, doing)
        if found.error_code == _OFFSET_OUT_OF_RANGE:
            raise OffsetOutOfRange
        if found.error_code == _CORRUPT_MESSAGE:
            at = self._at
            detail = "the broker finds a batch corrupt"
            raise Incident("batch_corrupt", detail, topic=at.topic, partition=at.partition, offset=offset)
        self._check(found.error_code, doing, right)
        return found

    def _is_local(self, leader: _Leader, offset: int, deadline_s: float) -> bool:
        """Return whether the broker has its log from `offset` on on its own disks: of what is tiered, Kafka may return
        nothing when reading it takes too long (DelayedRemoteFetch)."""
        if leader.connection.version("list_offsets") < _LOCAL_SINCE:
            return True
        return 0 <= self._offset(leader, EARLIEST_LOCAL, deadline_s) <= offset

    def _check(self, code: int, doing: str, right: str) -> None:
        if code in _OTHER_TOPIC_ID:
            raise TopicMissing(f"cluster {self._cluster.name!r}: cannot {doing}: the topic's id isn't known there")
        if code != _NONE:
            raise failures.classify_code(int(code), self._cluster.name, doing, right)


def _only(topics: Any, leader: _Leader, doing: str) -> Any:
    """Return what a response says of the one partition that was asked for."""
    found = [partition for topic in topics for partition in topic.partitions]
    if len(found) != 1:
        raise Retriable(f"{leader.connection.where}: cannot {doing}: it answers for {len(found)} partitions")
    return found[0]


def _uuid(topic_id: str) -> UUID | None:
    return UUID(bytes=base64.urlsafe_b64decode(f"{topic_id}==")) if topic_id else None
