"""OffsetFetch: the committed offsets of a group, stable ones (KIP-447). Sans-I/O; over kio's codecs, version 7 (Kafka
2.5; later ones ask for several groups)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from replicator.model.partition import Committed, Partition
from replicator.wire import protocol
from replicator.wire.protocol import made
from replicator.wire.transaction_requests import METADATA_END

API, VERSION = "offset_fetch", 7


class FetchedOffsets(NamedTuple):
    """A response: an error of its own, or each partition's error and committed offset (-1: none)."""

    code: int
    by_partition: Mapping[Partition, tuple[int, Committed]]
    throttled_s: float


def request(client_id: str, group: str, partitions: Iterable[Partition], *, stable: bool = True) -> bytes:
    """Make a request without its size, as `Connection.send` takes it. `stable`: an offset that an open transaction may
    replace isn't told, but an error."""
    exchange = protocol.exchange(API, VERSION)
    topics: dict[str, list[int]] = {}
    for at in partitions:
        topics.setdefault(at.topic, []).append(at.partition)
    rows = tuple(
        made(exchange.types.OffsetFetchRequestTopic, name=topic, partition_indexes=tuple(numbers))
        for topic, numbers in topics.items()
    )
    return exchange.write(0, client_id, {"group_id": group, "topics": rows, "require_stable": stable})


def read(data: bytes) -> FetchedOffsets:
    """Read a response, behind its correlation id. Raises BadResponse."""
    _, answer = protocol.exchange(API, VERSION).read(bytes(4) + data)
    found = {
        Partition(topic.name, each.partition_index): (
            int(each.error_code),
            Committed(each.committed_offset, (each.metadata or "").removesuffix(METADATA_END)),
        )
        for topic in answer.topics
        for each in topic.partitions
    }
    return FetchedOffsets(int(answer.error_code), found, answer.throttle_time.total_seconds())
