"""What compaction leaves of a topic: the same records at the same offsets on both brokers."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import TopicPartition

from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.processes import wait_until

SEGMENT_MS = 60_000
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": str(SEGMENT_MS),
    "delete.retention.ms": "86400000",
}
WAIT_S = 60.0  # Kafka looks every 15 s for something to clean, the embedded broker every 10 s


def _wait_marker(bootstrap: str, topic: str) -> None:
    """Until nothing is open: the end of a transaction is answered before its marker is written."""
    everything = clients.consumer(bootstrap, isolation_level="read_uncommitted")
    end = everything.get_watermark_offsets(TopicPartition(topic, 0), timeout=clients.TIMEOUT_S, cached=False)[1]
    everything.close()
    wait_until(lambda: clients.stable_end(bootstrap, topic) >= end, "the marker is written", lambda: f"end {end}")


def _write(bootstrap: str, topic: str) -> int:
    """Plain, compressed, committed and aborted batches; returns the offset of the record that closes the segment."""
    now_ms = int(time.time() * 1000)
    plain = clients.producer(bootstrap)
    for key, value in ((b"a", b"1"), (b"b", b"1"), (b"a", b"2")):
        clients.put(plain, topic, value, key=key, timestamp=now_ms)
    packed = clients.producer(bootstrap, compression_type="lz4", linger_ms=200)
    for key, value in ((b"a", b"3"), (b"c", b"1"), (b"c", b"2" * 500)):
        packed.produce(topic, value, key, 0, timestamp=now_ms + 5)
    assert packed.flush(clients.TIMEOUT_S) == 0
    transactions = clients.transactional(bootstrap, f"{topic}-tx")
    for pairs, commit in (
        (((b"d", b"1"), (b"a", b"4")), True),
        (((b"a", b"aborted"), (b"e", b"aborted")), False),
        (((b"f", b"1"),), True),
    ):
        transactions.begin_transaction()
        for key, value in pairs:
            transactions.produce(topic, value, key, 0, timestamp=now_ms)
        transactions.flush(clients.TIMEOUT_S)
        if commit:
            transactions.commit_transaction(clients.TIMEOUT_S)
        else:
            transactions.abort_transaction(clients.TIMEOUT_S)
        _wait_marker(bootstrap, topic)
    clients.put(plain, topic, None, key=b"b", timestamp=now_ms)
    [report] = clients.put(plain, topic, b"last", key=b"a", timestamp=now_ms + SEGMENT_MS + 1)
    offset = report.offset()
    assert offset is not None
    return offset


def test_the_same_records_stay(target: BrokerHandle, unique: Callable[[str], str]) -> None:
    topic = unique("compacted")
    clients.create_topic(target.bootstrap, topic, configs=COMPACTED)
    end = _write(target.bootstrap, topic)
    deadline = time.monotonic() + WAIT_S
    found = clients.read(target.bootstrap, topic, isolation="read_uncommitted")
    while found[0].offset() == 0:
        assert time.monotonic() < deadline, "nothing is compacted"
        time.sleep(0.2)
        found = clients.read(target.bootstrap, topic, isolation="read_uncommitted")
    assert [(message.offset(), message.key(), message.value()) for message in found] == [
        (5, b"c", b"2" * 500),
        (6, b"d", b"1"),
        (7, b"a", b"4"),  # the last one in a closed segment
        (12, b"f", b"1"),
        (14, b"b", None),
        (end, b"a", b"last"),
    ]
    committed = clients.read(target.bootstrap, topic)
    assert [message.offset() for message in committed] == [message.offset() for message in found]
    assert clients.read(target.bootstrap, topic, offset=8)[0].offset() == 12
    assert [message.timestamp() for message in committed] == [message.timestamp() for message in found]
