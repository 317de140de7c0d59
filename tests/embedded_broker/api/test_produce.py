"""What Produce takes and what it refuses, byte by byte."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kafka_records.batch import CONTROL, HEADER_BYTES, TRANSACTIONAL, iter_batches, read_header
from kafka_records.rebuild import recompressed
from kafka_records.records import decode, encode
from tests.embedded_broker.served import Served, batch, fetch, produce, serving
from tests.kafka_records.sealed import seal

NOW_MS = time.time_ns() // 1_000_000
HOUR_MS = 3_600_000


def _with(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


GOOD = batch(b"a", b"b")
REFUSED: dict[str, tuple[bytes, ErrorCode]] = {
    "nothing": (b"", ErrorCode.invalid_record),
    "too short for a header": (GOOD[:40], ErrorCode.invalid_record),
    "cut off": (GOOD[:-1], ErrorCode.invalid_record),
    "two batches": (GOOD + GOOD, ErrorCode.invalid_record),
    "one bit wrong": (_with(GOOD, 65, bytes([GOOD[65] ^ 1])), ErrorCode.corrupt_message),
    "old format": (_with(GOOD, 16, b"\1"), ErrorCode.invalid_record),
    "unknown format": (_with(GOOD, 16, b"\3"), ErrorCode.corrupt_message),
    "base offset": (_with(GOOD, 0, (5).to_bytes(8, "big")), ErrorCode.invalid_record),
    "no records": (bytes(seal(b"", count=0, base_timestamp=0, max_timestamp=0)), ErrorCode.invalid_record),
    "control batch": (batch(b"a", attributes=CONTROL | TRANSACTIONAL, producer_id=1), ErrorCode.invalid_record),
    "transactional without an id": (
        batch(b"a", attributes=TRANSACTIONAL, producer_id=1, producer_epoch=0, base_sequence=0),
        ErrorCode.transactional_id_authorization_failed,
    ),
    "compression 7": (batch(b"a", attributes=7), ErrorCode.unsupported_compression_type),
    "too large": (batch(b"x" * 2_000_000), ErrorCode.message_too_large),
    "two hours ahead": (batch(b"a", timestamp_ms=NOW_MS + 2 * HOUR_MS), ErrorCode.invalid_timestamp),
}


async def _one(served: Served, request: dict[str, Any], version: int = 9) -> Any:
    client = await served.client()
    response = await client.call("produce", version, **request)
    return response.responses[0].partition_responses[0]


@pytest.mark.parametrize(("records", "error_code"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_batches_leave_nothing_behind(tmp_path: Path, records: bytes, error_code: ErrorCode) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            answer = await _one(served, produce("t", records))
            assert answer.error_code is error_code
            assert answer.base_offset == -1
            assert answer.error_message
            partition = served.broker.topics.partition("t", 0)
            assert partition is not None
            assert partition.log_end == 0
            assert (await _one(served, produce("t", GOOD))).base_offset == 0

    asyncio.run(main())


def test_every_version_appends_and_answers(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            topic = served.broker.topics.get("t")
            assert topic is not None
            for number, version in enumerate(range(3, 14)):
                request = produce("t", GOOD)
                if version >= 13:
                    request["topic_data"][0]["topic_id"] = topic.topic_id
                answer = await _one(served, request, version)
                assert answer.error_code is ErrorCode.none
                assert answer.base_offset == 2 * number

    asyncio.run(main())


def test_partitions_of_one_request_fail_independently(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t", 2)
            response = await (await served.client()).call("produce", 9, **produce("t", GOOD, GOOD[:-1], GOOD))
            codes = [each.error_code for each in response.responses[0].partition_responses]
            assert codes == [ErrorCode.none, ErrorCode.invalid_record, ErrorCode.unknown_topic_or_partition]

    asyncio.run(main())


def test_internal_topics_and_invalid_acks_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            answer = await _one(served, produce("__consumer_offsets", GOOD))
            assert answer.error_code is ErrorCode.invalid_topic_exception
            assert (await _one(served, produce("t", GOOD, acks=2))).error_code is ErrorCode.invalid_required_acks

    asyncio.run(main())


def test_acks_0_is_not_answered_and_an_error_closes(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            client = await served.client()
            client.send("produce", 9, **produce("t", GOOD, acks=0))
            client.send("fetch", 12, **fetch("t", 0, max_wait=5_000))
            frame = await client.frame()
            assert int.from_bytes(frame[:4], "big") == 1, "the answer is the second request's"
            client.send("produce", 9, **produce("t", GOOD[:-1], acks=0))
            assert await client.closed()

    asyncio.run(main())


def test_an_idempotent_duplicate_gets_its_first_offset_and_a_gap_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            for sequence in (0, 1, 2):
                await _one(served, produce("t", batch(b"x", producer_id=7, producer_epoch=0, base_sequence=sequence)))
            again = await _one(served, produce("t", batch(b"x", producer_id=7, producer_epoch=0, base_sequence=1)))
            assert (again.error_code, again.base_offset) == (ErrorCode.none, 1)
            gap = await _one(served, produce("t", batch(b"x", producer_id=7, producer_epoch=0, base_sequence=4)))
            assert gap.error_code is ErrorCode.out_of_order_sequence_number
            partition = served.broker.topics.partition("t", 0)
            assert partition is not None
            assert partition.log_end == 3

    asyncio.run(main())


def test_log_append_time_rewrites_the_time_and_nothing_else(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t", message_timestamp_type="LogAppendTime")
            before_ms = served.broker.clock.now_ms()
            answer = await _one(served, produce("t", batch(b"a", b"b", timestamp_ms=NOW_MS + 5 * HOUR_MS)))
            assert answer.error_code is ErrorCode.none
            partition = served.broker.topics.partition("t", 0)
            assert partition is not None
            records = decode(partition.log.read(0, 1, 2))
            assert [record.value for record in records] == [b"a", b"b"]
            assert all(before_ms <= record.timestamp_ms < before_ms + HOUR_MS for record in records)
            assert answer.log_append_time.timestamp() * 1000 == pytest.approx(records[0].timestamp_ms)

    asyncio.run(main())


def test_a_compacted_topic_takes_no_null_keys_and_old_records_can_be_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("compacted", cleanup_policy="compact")
            await served.topic("fresh", message_timestamp_before_max_ms=str(HOUR_MS))
            keyless = bytes(encode([(b"k", b"v"), (None, b"v")], NOW_MS))
            assert (await _one(served, produce("compacted", keyless))).error_code is ErrorCode.invalid_record
            assert (await _one(served, produce("compacted", batch(None)))).error_code is ErrorCode.none
            old = batch(b"v", timestamp_ms=NOW_MS - 2 * HOUR_MS)
            assert (await _one(served, produce("fresh", old))).error_code is ErrorCode.invalid_timestamp
            assert (await _one(served, produce("fresh", batch(b"v", timestamp_ms=NOW_MS)))).error_code is ErrorCode.none

    asyncio.run(main())


@pytest.mark.parametrize("acks", [-1, 1, 0])
def test_a_topic_that_wants_two_replicas_gets_none_with_all_acks(tmp_path: Path, acks: int) -> None:
    """There is one broker, so min.insync.replicas=2 can't be had; only acks=-1 asks for it."""

    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t", min_insync_replicas="2")
            partition = served.broker.topics.partition("t", 0)
            assert partition is not None
            if acks != 0:
                answer = await _one(served, produce("t", GOOD, acks=acks))
                expected = ErrorCode.not_enough_replicas if acks == -1 else ErrorCode.none
                assert (answer.error_code, partition.log_end) == (expected, 0 if acks == -1 else 2)
                return
            client = await served.client()
            client.send("produce", 9, **produce("t", GOOD, acks=0))
            await client.call("api_versions", 0)
            assert partition.log_end == 2

    asyncio.run(main())


@pytest.mark.parametrize(("name", "codec"), [("uncompressed", 0), ("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)])
def test_a_topic_has_its_own_compression(tmp_path: Path, name: str, codec: int) -> None:
    """Whatever the client's is; records, times and the producer's sequence stay as they came."""

    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t", compression_type=name)
            client = await served.client()
            ids = {"producer_id": 7, "producer_epoch": 0}
            plain = batch(b"a" * 100, b"b" * 100, base_sequence=0, **ids)
            header = read_header(batch(b"c" * 100, base_sequence=2, **ids))
            body = batch(b"c" * 100, base_sequence=2, **ids)[HEADER_BYTES:]
            for sent in (plain, recompressed(header, body, 1), plain):
                assert (await _one(served, produce("t", sent))).error_code is ErrorCode.none
            answer = await client.call("fetch", 11, **fetch("t", 0))
            stored = list(iter_batches(answer.responses[0].partitions[0].records))
            assert [each.compression for each, _ in stored] == [codec, codec]
            records = [record for _, view in stored for record in decode(view)]
            expected = [(0, b"a" * 100), (1, b"b" * 100), (2, b"c" * 100)]
            assert [(record.offset, record.value) for record in records] == expected

    asyncio.run(main())
