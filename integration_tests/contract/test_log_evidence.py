"""What a log's batches show of log compaction: the same on both brokers, whatever they are asked over."""

from __future__ import annotations

import base64
import itertools
import time
from collections.abc import Callable, Collection
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.processes import wait_until
from integration_tests.harness.secured import USERS, Secured
from replicator.config import Cluster, Flow, Limits, Properties
from replicator.model.errors import Incident, NotAllowed, TopicMissing, Unreachable
from replicator.model.partition import Partition
from replicator.wire import log_evidence
from replicator.wire.holes import BELOW_START, IntervalHoles, Unknown
from tests.replicator.wire.logs import ranges

SEGMENT_MS = 60_000
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": str(SEGMENT_MS),
    "delete.retention.ms": "86400000",
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KEYS = 40
CLEANED_S = 240.0  # Kafka looks every 15 s for something to clean, the embedded broker every 10 s
SMALL_FETCHES = 7


def flow_of(properties: dict[str, Any], **limits: int) -> Flow:
    """A flow whose source is this cluster."""
    given = {name: str(value) for name, value in properties.items()}
    cluster = Cluster(name="here", properties=Properties(given))
    return Flow(name="evidence", topics=("t",), source=cluster, target=cluster, limits=Limits(**limits))


def holes(
    bootstrap: str, topic: str, *intervals: tuple[int, int], partition: int = 0, **how: Any
) -> list[IntervalHoles]:
    flow = flow_of({"bootstrap.servers": bootstrap})
    return log_evidence.holes(flow, flow.source, Partition(topic, partition), intervals, **how)


def all_ends(bootstrap: str, topic: str, partition: int = 0) -> int:
    """The high watermark."""
    client = clients.consumer(bootstrap, isolation_level="read_uncommitted")
    try:
        at = TopicPartition(topic, partition)
        return int(client.get_watermark_offsets(at, timeout=clients.TIMEOUT_S, cached=False)[1])
    finally:
        client.close()


def visible(bootstrap: str, topic: str, partition: int = 0) -> set[int]:
    """Offsets of the records that a read_uncommitted consumer gets, aborted ones among them."""
    found = set[int]()
    for message in clients.read(bootstrap, topic, partition, isolation="read_uncommitted"):
        offset = message.offset()
        assert offset is not None
        found.add(offset)
    return found


def transact(
    bootstrap: str, topic: str, partition: int, values: Collection[bytes], *, commit: bool, writer: Producer
) -> None:
    """One transaction; returns once its marker is written, which comes after the answer."""
    writer.begin_transaction()
    for number, value in enumerate(values):
        writer.produce(topic, value, b"key %d" % (number % KEYS), partition)
    writer.flush(clients.TIMEOUT_S)
    before = all_ends(bootstrap, topic, partition)
    if commit:
        writer.commit_transaction(clients.TIMEOUT_S)
    else:
        writer.abort_transaction(clients.TIMEOUT_S)
    wait_until(lambda: all_ends(bootstrap, topic, partition) > before, "the marker is written", lambda: f"{before}")


@pytest.mark.tier(kafka="full")
def test_a_log_that_was_never_cleaned_has_no_holes(target: BrokerHandle, unique: Callable[[str], str]) -> None:
    topic = unique("whole")
    clients.create_topic(target.bootstrap, topic)
    for codec in CODECS:
        packed = clients.producer(target.bootstrap, compression_type=codec, linger_ms=50)
        clients.put(packed, topic, *(b"v" * 200 for _ in range(500)))
        writer = clients.transactional(target.bootstrap, f"{topic}-{codec}", compression_type=codec, linger_ms=20)
        for commit in (True, False):
            transact(target.bootstrap, topic, 0, [b"w" * 50] * 30, commit=commit, writer=writer)
    clients.put(clients.producer(target.bootstrap), topic, *(b"x" for _ in range(200)))
    end = all_ends(target.bootstrap, topic)
    assert end > len(visible(target.bootstrap, topic))  # there are markers, which are no holes
    told: list[int] = []
    assert holes(target.bootstrap, topic, (0, end), told=told.append) == [IntervalHoles()]
    assert told
    spread = [(at, at + 3) for at in range(0, end - 3, end // 50)]
    assert holes(target.bootstrap, topic, *spread) == [IntervalHoles()] * len(spread)


def _write(bootstrap: str, topic: str, partition: int, codec: str) -> set[int]:
    """Batches in which compaction leaves something, nothing and all; the offsets of the markers. What the last batch
    stands in is never compacted."""
    now_ms = int(time.time() * 1000)
    how = {"compression_type": codec, "linger_ms": 100}
    packed = clients.producer(bootstrap, **how)
    for step in (1, 2, 3, 1):
        for number in range(0, KEYS, step):
            packed.produce(topic, b"%d" % number * 20, b"key %d" % number, partition, timestamp=now_ms)
        assert packed.flush(clients.TIMEOUT_S) == 0
    writer = clients.transactional(bootstrap, f"{topic}-{partition}", **how)
    transact(bootstrap, topic, partition, [b"committed"] * 10, commit=True, writer=writer)
    transact(bootstrap, topic, partition, [b"aborted"] * 10, commit=False, writer=writer)
    for number in range(5, 9):
        packed.produce(topic, b"late", b"key %d" % number, partition, timestamp=now_ms)
    assert packed.flush(clients.TIMEOUT_S) == 0
    markers = set(range(all_ends(bootstrap, topic, partition))) - visible(bootstrap, topic, partition)
    assert len(markers) == 2
    clients.put(packed, topic, b"last", partition=partition, key=b"key 0", timestamp=now_ms + 2 * SEGMENT_MS)
    return markers


def _wait_cleaned(bootstrap: str, topic: str, partition: int) -> set[int]:
    """The offsets that are visible once the first batch has lost what it can."""
    deadline = time.monotonic() + CLEANED_S
    while min(found := visible(bootstrap, topic, partition)) < KEYS:
        assert time.monotonic() < deadline, f"partition {partition} is not compacted: {sorted(found)[:10]}"
        time.sleep(0.3)
    return found


@pytest.mark.tier("full", kafka="full")
def test_what_compaction_took_are_the_holes(target: BrokerHandle, unique: Callable[[str], str]) -> None:
    topic = unique("compacted")
    clients.create_topic(target.bootstrap, topic, len(CODECS), COMPACTED)
    markers = [_write(target.bootstrap, topic, partition, codec) for partition, codec in enumerate(CODECS)]
    for partition, codec in enumerate(CODECS):
        seen = _wait_cleaned(target.bootstrap, topic, partition)
        end = all_ends(target.bootstrap, topic, partition)
        gone = set(range(end)) - seen - markers[partition]
        assert len(gone) > KEYS, codec
        assert gone & set(range(min(seen), max(seen))), codec  # inside batches too
        (found,) = holes(target.bootstrap, topic, (0, end), partition=partition)
        assert found == IntervalHoles(tuple(ranges(gone))), codec
        edges = [*range(0, end, SMALL_FETCHES), end]
        parts = list(itertools.pairwise(edges))
        for (low, high), part in zip(parts, holes(target.bootstrap, topic, *parts, partition=partition), strict=True):
            assert list(part.holes) == ranges(gone & set(range(low, high)))


@pytest.mark.tier("full", kafka="long")
def test_markers_that_compaction_took_are_holes_too(target: BrokerHandle, unique: Callable[[str], str]) -> None:
    """A marker goes when none of its transaction's records is left, at the second cleaning after that."""
    bootstrap, topic = target.bootstrap, unique("markers")
    clients.create_topic(bootstrap, topic, 1, {**COMPACTED, "delete.retention.ms": "0", "segment.ms": "1000"})
    writer = clients.transactional(bootstrap, topic)
    for commit in (True, False, True):  # the last marker of a producer stays, for its epoch
        transact(bootstrap, topic, 0, [b"v"] * 3, commit=commit, writer=writer)
    markers = set(range(all_ends(bootstrap, topic))) - visible(bootstrap, topic)
    plain = clients.producer(bootstrap)
    deadline = time.monotonic() + 3 * CLEANED_S
    taken = set[int]()
    while not taken & markers:
        assert time.monotonic() < deadline, f"the markers {markers} are still there: {sorted(taken)}"
        for number in range(4):
            clients.put(plain, topic, b"v", key=b"key %d" % number)
        before, end = visible(bootstrap, topic), all_ends(bootstrap, topic)
        (found,) = holes(bootstrap, topic, (0, end))
        after = visible(bootstrap, topic)
        taken = {offset for first, last in found.holes for offset in range(first, last)}
        assert not taken & after  # what is read later was there all the time
        assert taken >= set(range(end)) - before - markers  # what was not read before was gone by then
        assert not found.unknown
        time.sleep(1.1)  # the next record closes the segment


def test_what_was_deleted_is_unknown_and_no_hole(target: BrokerHandle, unique: Callable[[str], str]) -> None:
    topic = unique("deleted")
    clients.create_topic(target.bootstrap, topic)
    clients.put(clients.producer(target.bootstrap, linger_ms=50), topic, *(b"v" for _ in range(100)))
    clients.delete_records(target.bootstrap, topic, 0, 37)
    below = IntervalHoles((), (Unknown(10, 37, BELOW_START),))
    assert holes(target.bootstrap, topic, (10, 100)) == [below]
    flow = flow_of({"bootstrap.servers": target.bootstrap}, request_timeout_ms=1_000)
    with pytest.raises(TopicMissing, match="no such partition"):
        log_evidence.holes(flow, flow.source, Partition(topic, 1), [(0, 1)])


def test_another_topic_of_its_name_is_told_apart(target: BrokerHandle, unique: Callable[[str], str]) -> None:
    topic = unique("again")
    clients.create_topic(target.bootstrap, topic)
    clients.put(clients.producer(target.bootstrap), topic, b"v")
    first = base64.urlsafe_b64encode(clients.topic_id(target.bootstrap, topic).bytes).decode().rstrip("=")
    assert holes(target.bootstrap, topic, (0, 1), topic_id=first) == [IntervalHoles()]
    clients.recreate_topic(target.bootstrap, topic)
    with pytest.raises(Incident, match="topic_gone"):
        holes(target.bootstrap, topic, (0, 1), topic_id=first)


def _asked(properties: dict[str, Any], topic: str) -> list[IntervalHoles]:
    flow = flow_of(properties)
    return log_evidence.holes(flow, flow.source, Partition(topic, 0), [(0, 3)])


@pytest.mark.parametrize("tls", [True, False], ids=["SASL_SSL", "SASL_PLAINTEXT"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_every_login(secured: Secured, mechanism: str, tls: bool, unique: Callable[[str], str]) -> None:
    topic, name, password = unique("secret"), unique("eve"), "eve, s3cret=1"
    secured.create_topic(topic)
    clients.put(clients.producer(secured.bootstrap), topic, b"a", b"b", b"c")
    if mechanism == "PLAIN":
        name, password = "bob", USERS["bob"]
    else:
        secured.add_scram_user(name, mechanism, password)
    properties = secured.config(name, mechanism, tls=tls, password=password)
    with pytest.raises(NotAllowed, match=f"cluster 'here': .*the user needs Describe on topic '{topic}'"):
        _asked(properties, topic)
    secured.allow(name, "TOPIC", topic, "DESCRIBE")
    with pytest.raises(NotAllowed, match=f"cluster 'here': .*the user needs Read on topic '{topic}'"):
        _asked(properties, topic)
    secured.allow(name, "TOPIC", topic, "READ")
    assert _asked(properties, topic) == [IntervalHoles()]
    began_s = time.monotonic()
    with pytest.raises(Unreachable, match="cluster 'here' refused the credentials"):
        _asked({**properties, "sasl.password": "wrong"}, topic)
    assert time.monotonic() - began_s < 10


def test_a_certificate(secured: Secured) -> None:
    topic = "evidence-by-certificate"
    secured.create_topic(topic)
    clients.put(clients.producer(secured.bootstrap), topic, b"a", b"b", b"c")
    properties = secured.with_certificate()
    with pytest.raises(NotAllowed):
        _asked(properties, topic)
    with pytest.raises(Unreachable, match="certificate verify failed"):
        _asked({**properties, "ssl.ca.location": str(secured.client_pair.certificate)}, topic)
