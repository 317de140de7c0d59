"""Batches made by other people's code: aiokafka's record builder, and librdkafka through its mock cluster."""

from __future__ import annotations

import io
import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from confluent_kafka import Producer
from crc32c import crc32c
from kio.index import load_payload_module
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from kafka_records.batch import iter_batches, stamp
from kafka_records.compression import LZ4
from kafka_records.fetched import FetchedBatch
from kafka_records.records import Record

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
FETCH, VERSION = 1, 11
TIMEOUT_S = 10.0


def by_aiokafka(records: Sequence[Record], codec: int = 0, **producer: int) -> bytearray:
    """One batch; offsets are 0, 1, 2 … whatever the records say."""
    fields = {"is_transactional": 0, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1, **producer}
    builder = DefaultRecordBatchBuilder(magic=2, compression_type=codec, batch_size=1 << 30, **fields)
    for offset, record in enumerate(records):
        headers: list[tuple[str, str | bytes | None]] = [(key.decode(), value) for key, value in record.headers]
        assert builder.append(offset, record.timestamp_ms, record.key, record.value, headers) is not None
    return bytearray(builder.build())


def fetched(*parts: Sequence[Record], codec: int = LZ4, first: int = 40) -> list[FetchedBatch]:
    """Batches as they are fetched, one of each part, one behind the other from offset `first` on."""
    data = b""
    for records in parts:
        batch = by_aiokafka(records, codec)
        stamp(batch, first, 1)
        first += len(records)
        data += bytes(batch)
    return [FetchedBatch(header, view) for header, view in iter_batches(data)]


def by_librdkafka(records: Sequence[Record], codec: str) -> bytes:
    """All batches that librdkafka's producer makes of the records, as the broker got them."""
    # No batch leaves before the flush, which doesn't linger: a busy machine makes the same batches as an idle one.
    settings = {
        "test.mock.num.brokers": 1,
        "compression.type": codec,
        "linger.ms": int(TIMEOUT_S * 1000),
        "log_level": 0,
    }
    producer = Producer(settings)
    # Else records go to the partition one by one once it is known, and a flush that has begun sends what is there.
    producer.list_topics("t", timeout=TIMEOUT_S)
    for record in records:
        headers: list[tuple[str, str | bytes | None]] = [(key.decode(), value) for key, value in record.headers]
        producer.produce("t", record.value, record.key, partition=0, headers=headers, timestamp=record.timestamp_ms)
    assert producer.flush(TIMEOUT_S) == 0
    (broker,) = producer.list_topics(timeout=TIMEOUT_S).brokers.values()
    data, offset = b"", 0
    while offset < len(records):
        data += _fetch(broker.host, broker.port, offset)
        offset = [header.last_offset for header, _ in iter_batches(data)][-1] + 1
    return data


def _fetch(host: str, port: int, offset: int) -> bytes:
    """Some batches of t[0] from an offset, raw."""
    module: Any = load_payload_module(FETCH, VERSION, EntityType.request)
    partition = module.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 30)
    body = module.FetchRequest(
        max_wait=timedelta(seconds=1),
        min_bytes=1,
        topics=(module.FetchTopic(topic="t", partitions=(partition,)),),
        forgotten_topics_data=(),
    )
    header_type = type(body).__header_schema__
    header = header_type(request_api_key=FETCH, request_api_version=VERSION, correlation_id=1, client_id="raw")
    out = io.BytesIO()
    entity_writer(header_type)(out, header)
    entity_writer(type(body))(out, body)
    with socket.create_connection((host, port), TIMEOUT_S) as connection:
        connection.sendall(len(out.getvalue()).to_bytes(4, "big") + out.getvalue())
        stream = connection.makefile("rb")
        frame = stream.read(int.from_bytes(stream.read(4), "big"))
    response: Any = load_payload_module(FETCH, VERSION, EntityType.response)
    reply: Any = entity_reader(response.FetchResponse)(frame, 4)[0]
    return bytes(reply.responses[0].partitions[0].records or b"")


def with_right_crcs(data: bytes) -> bytes:
    """The same with the CRC of each batch put right, so that more than the CRC is tried."""
    made, at = bytearray(data), 0
    while at + 61 <= len(made):
        end = at + 12 + int.from_bytes(made[at + 8 : at + 12], "big", signed=True)
        if not at + 61 <= end <= len(made):
            break
        made[at + 17 : at + 21] = crc32c(bytes(made[at + 21 : end])).to_bytes(4, "big")
        at = end
    return bytes(made)
