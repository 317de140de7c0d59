"""The records of `demo-spark`, and a copy of them with planted damage that reconcile must find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from cli.demo import topic_reader
from cli.demo.compare import ReadRecord
from cli.demo.model import DemoFailed
from replicator import config
from replicator.flow.topics import ControlPlane
from replicator.model import checkpoint, names
from replicator.model.checkpoint import Evidence

EPOCH_MS = 1_700_000_000_000
ANSWER_S_MAX = 60.0
PAYLOAD = b"." * 180


class Damage(NamedTuple):
    """One difference that was made: its verdict, and where (the rank of the record in its partition)."""

    verdict: str
    partition: int
    rank: int


DAMAGE = (
    Damage("missing", 0, 1_111),
    Damage("doubled", 1, 2_222),
    Damage("altered", 2, 3_333),
    Damage("reordered", 3, 4_444),
)


def write(bootstrap: str, topic: str, partitions: int, first: int, last: int) -> None:
    """Write the records with numbers [first, last), spread over the partitions in turn."""
    producer, failed = _producer(bootstrap)
    for number in range(first, last):
        name = b"#%09d" % number
        _put(producer, topic, number % partitions, b"customer-%d" % (number % 997), name + PAYLOAD, EPOCH_MS + number)
    _finish(producer, failed)


def careless(source: str, target: str, topic: str, partitions: int, copy: str) -> dict[int, int]:
    """Copy a topic with one difference of each kind of `DAMAGE`; how many records each partition of the copy has."""
    records = topic_reader.read(source, {topic: partitions})
    topic_reader.create_topics(target, {copy: partitions})
    producer, failed = _producer(target)
    written: dict[int, int] = {}
    for (_, number), whole in sorted(records.items()):
        damaged = _damaged(whole, number)
        written[number] = len(damaged)
        for seen in damaged:
            _put(producer, copy, number, seen.key, seen.value, seen.timestamp_ms)
    _finish(producer, failed)
    return written


def _damaged(whole: Sequence[ReadRecord], partition: int) -> list[ReadRecord]:
    records = list(whole)
    for verdict, number, rank in DAMAGE:
        if number != partition:
            continue
        if verdict == "missing":
            del records[rank]
        elif verdict == "doubled":
            records.insert(rank, records[rank])
        elif verdict == "altered":
            records[rank] = records[rank]._replace(value=(records[rank].value or b"")[:-1] + b"!")
        else:
            records[rank], records[rank + 1] = records[rank + 1], records[rank]
    return records


def commit_positions(flow_file: Path, flow_name: str, topic: str, count: int, written: Mapping[int, int]) -> None:
    """Commit positions for the damaged copy, as if a flow had copied `count` records of each partition.

    `written`: how many each has.
    """
    flow = config.load(flow_file).flows[flow_name]
    with ControlPlane(flow) as clusters:
        here, _ = clusters.connect()
        source = clusters.list_source()[topic]
        (target,) = clusters.list_target([topic]).values()
    offsets = []
    for number, copied in written.items():
        evidence = Evidence(
            generation=1,
            owner="careless",
            source_topic=topic,
            source_cluster=here.cluster_id,
            source_topic_id=source.topic_id,
            target_topic_id=target.topic_id,
            log_start=0,
            next_target_offset=copied,
            count=count,
        )
        offsets.append(TopicPartition(target.name, number, count, metadata=checkpoint.encode(evidence)))
    address = flow.target.properties["bootstrap.servers"]
    client = Consumer({"bootstrap.servers": address, "group.id": names.position_group(flow.name), "log_level": 0})
    try:
        client.commit(offsets=offsets, asynchronous=False)
    finally:
        client.close()


def aborted(bootstrap: str, topic: str, partitions: int, records: int) -> int:
    """Count the offsets of a topic that are aborted records or markers, which no read_committed consumer gets."""
    reader = topic_reader.consumer(bootstrap, isolation="read_uncommitted")
    try:
        return sum(topic_reader.ends(reader, {topic: partitions}).values()) - records
    finally:
        reader.close()


def _producer(bootstrap: str) -> tuple[Producer, list[str]]:
    failed: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 20,
            "batch.size": 131_072,
            "queue.buffering.max.messages": 100_000,
            "error_cb": lambda error: failed.append(str(error)) if error.fatal() else None,
            "on_delivery": lambda error, message: _refused(failed, error, message),
        }
    )
    return producer, failed


def _refused(failed: list[str], error: KafkaError | None, message: Message) -> None:
    if error is not None:
        failed.append(f"{message.topic()}[{message.partition()}]: {error.str()}")


def _put(
    producer: Producer, topic: str, partition: int, key: bytes | None, value: bytes | None, timestamp_ms: int
) -> None:
    while True:
        try:
            producer.produce(topic, value, key, partition, timestamp=timestamp_ms)
            return
        except BufferError:
            producer.poll(0.1)


def _finish(producer: Producer, failed: Sequence[str]) -> None:
    if producer.flush(ANSWER_S_MAX) or failed:
        raise DemoFailed(f"the demo's own records were not written: {failed[:1]}")
