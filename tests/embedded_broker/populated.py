"""A broker with much in it: what the largest requests can be about."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

import cramjam

from kafka_records.records import encode
from kafka_records.varints import field, varint
from tests.embedded_broker.largest import GROUP, TOPIC, TXN_ID
from tests.embedded_broker.leaving_behind import connect
from tests.kafka_records.sealed import seal

ZSTD, NO_KEY, SHORT_VALUE = 4, field(None), field(b"x" * 10)
LATE_MS = 1
"""Of the last record of a squeezed batch; all others have 0: who looks for this time has to look at every one."""
KEPT = {"name": "retention.ms", "value": "-1"}
"""Records are older than any retention."""


class Population(NamedTuple):
    """How much of everything."""

    topics: int = 400
    partitions: int = 2_000
    squeezed: int = 1
    """Partitions with a batch of many records."""
    producers: int = 2_000
    transactional_ids: int = 500
    fat_batches: int = 70


async def populate(port: int, much: Population) -> dict[str, UUID]:
    """A wide topic with producers, batches of many records, offsets and transactions; many small topics. Their ids."""
    client = await connect(port)
    topics = [{"name": TOPIC, "num_partitions": much.partitions, "replication_factor": 1, "configs": [KEPT]}]
    topics += [
        {"name": f"w{n}", "num_partitions": 1, "replication_factor": 1, "configs": [KEPT]} for n in range(much.topics)
    ]
    for first in range(0, len(topics), 50):
        made = await client.call("create_topics", 7, topics=topics[first : first + 50], timeout=60_000)
        assert all(each.error_code == 0 for each in made.topics)
    fat, small = bytes(encode([(None, bytes(900_000))], 1_000)), squeezed(100_000)
    for topic, index, data in (
        *[("w1", 0, fat)] * much.fat_batches,
        *[(TOPIC, 1 + n, small) for n in range(much.squeezed)],
    ):
        answer = await client.call("produce", 9, **one_produce(topic, index, data))
        assert answer.responses[0].partition_responses[0].error_code == 0
    client.writer.close()
    await write_as_producers(port, much.producers)
    await commit_and_begin(port, much.partitions, much.transactional_ids)
    named = await (await connect(port)).call("metadata", 12, topics=None)
    return {topic.name: topic.topic_id for topic in named.topics}


def one_produce(topic: str, index: int, records: bytes) -> dict[str, Any]:
    data = [{"name": topic, "partition_data": [{"index": index, "records": records}]}]
    return {"acks": -1, "timeout": 1_000, "topic_data": data}


def squeezed(count: int) -> bytes:
    """A small batch of many records."""
    out = bytearray()
    for delta in range(count):
        late_ms = LATE_MS if delta == count - 1 else 0
        body = b"\0" + varint(late_ms) + varint(delta) + NO_KEY + SHORT_VALUE + b"\0"
        out += varint(len(body)) + body
    body = bytes(cramjam.zstd.compress(bytes(out), 3))
    return bytes(seal(body, count=count, base_timestamp=0, max_timestamp=LATE_MS, attributes=ZSTD))


async def write_as_producers(port: int, count: int) -> None:
    """That many, of the first partition of the wide topic."""
    client = await connect(port)
    for first in range(0, count, 50):
        for producer in range(first, first + 50):
            header = {"producer_id": 10**6 + producer, "producer_epoch": 0, "base_sequence": 0}
            client.send("produce", 9, **one_produce(TOPIC, 0, bytes(encode([(None, b"v")], 1_000, **header))))
        for _ in range(50):
            answer = await client.receive()
            assert answer.responses[0].partition_responses[0].error_code == 0
    client.writer.close()


async def commit_and_begin(port: int, partitions: int, transactional_ids: int) -> None:
    """Offsets of a group on all partitions of the wide topic, and ids, one of them with all in its transaction."""
    client = await connect(port)
    for first in range(0, partitions, 500):
        offsets = [
            {"partition_index": n, "committed_offset": 1, "committed_metadata": "m" * 4_000}
            for n in range(first, min(first + 500, partitions))
        ]
        topics = [{"name": TOPIC, "partitions": offsets}]
        who = {"group_id": GROUP, "generation_id_or_member_epoch": -1}
        committed = await client.call("offset_commit", 8, **who, topics=topics)
        assert all(each.error_code == 0 for each in committed.topics[0].partitions)
    timeout = {"transaction_timeout": 900_000, "producer_id": -1, "producer_epoch": -1}
    for n in range(1, transactional_ids):
        await client.call("init_producer_id", 4, transactional_id=f"o{n}", **timeout)
    owner = await client.call("init_producer_id", 4, transactional_id=TXN_ID, **timeout)
    added = await client.call(
        "add_partitions_to_txn", 3, v3_and_below_transactional_id=TXN_ID,
        v3_and_below_producer_id=owner.producer_id, v3_and_below_producer_epoch=owner.producer_epoch,
        v3_and_below_topics=[{"name": TOPIC, "partitions": list(range(partitions))}])  # fmt: skip
    assert all(each.partition_error_code == 0 for each in added.results_by_topic_v3_and_below[0].results_by_partition)
    client.writer.close()
