"""What a batch may cost: in proportion to its bytes, and never at the expense of other clients."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cramjam
import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.produce import batch_checks
from embedded_broker.runtime.fair_share import FairShare
from embedded_broker.storage.log_config import LogConfig
from kafka_records import records
from kafka_records.batch import CorruptBatch, read_header
from kafka_records.varints import varint
from tests.embedded_broker.served import TIMEOUT_S, batch, change, fetch, produce, serving
from tests.kafka_records.sealed import seal

pytestmark = pytest.mark.tier("extended")

ZSTD = 4
HONEST = 100_000
MIB = 1024 * 1024


def _record(offset: int, value: bytes | None = None) -> bytes:
    field = varint(-1) if value is None else varint(len(value)) + value
    body = b"\0" + varint(0) + varint(offset) + varint(-1) + field + b"\0"
    return varint(len(body)) + body


def _compressed(body: bytes, count: int) -> bytes:
    packed = bytes(cramjam.zstd.compress(body, 19))
    return bytes(seal(packed, count=count, base_timestamp=0, max_timestamp=0, attributes=ZSTD))


def _small() -> bytes:
    """Small records of lengths that alternate, so that each is looked at by itself."""
    return b"".join(_record(offset, b"x" if offset % 2 else None) for offset in range(HONEST))


def _signal(monkeypatch: pytest.MonkeyPatch, hold: threading.Event | None = None) -> asyncio.Event:
    """Is set when a batch is decompressed; in a thread that waits until `hold` is set, if there is one."""
    called, loop, body_of = asyncio.Event(), asyncio.get_running_loop(), records.body_of

    def signal(*arguments: Any) -> Any:
        if hold is None or threading.current_thread() is not threading.main_thread():
            loop.call_soon_threadsafe(called.set)
            assert hold is None or hold.wait(TIMEOUT_S)
        return body_of(*arguments)

    monkeypatch.setattr(batch_checks, "body_of", signal)
    return called


async def _answer(client: Any, data: bytes) -> Any:
    return (await client.call("produce", 9, **produce("t", data))).responses[0].partition_responses[0]


def test_more_records_than_can_be_in_the_bytes_are_refused_before_anything_is_decompressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def decompress(codec: int, data: bytes, bytes_max: int) -> bytes:
        calls.append(len(data))
        return b"\x02\0" * MIB

    monkeypatch.setattr(records, "decompress", decompress)

    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            answer = await _answer(await served.client(), _compressed(b"\x02\0" * MIB, MIB))
            assert answer.error_code is ErrorCode.corrupt_message
            assert not calls

    asyncio.run(main())


@pytest.mark.parametrize("attributes", [0, ZSTD])
def test_records_too_short_to_be_any_are_refused_at_the_first(tmp_path: Path, attributes: int) -> None:
    body = (b"\x04" + b"\0" * 2) * 1_000
    data = _compressed(body, 1_000) if attributes else bytes(seal(body, count=1_000, base_timestamp=0, max_timestamp=0))

    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            answer = await _answer(await served.client(), data)
            assert answer.error_code in (ErrorCode.invalid_record, ErrorCode.corrupt_message)

    asyncio.run(main())


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_others_are_served_while_many_records_are_looked_at(
    tmp_path: Path, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while they are all decoded: in a compacted topic, which refuses them for want of keys."""

    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t", cleanup_policy=policy)
            large, other = await served.client(), await served.client()
            arrived = _signal(monkeypatch)
            answered = asyncio.create_task(_answer(large, _compressed(_small(), HONEST)))
            await arrived.wait()
            meanwhile = 0
            while not answered.done():
                await other.call("api_versions", 0)
                meanwhile += not answered.done()
            assert meanwhile > 3
            refused = policy == "compact"
            assert answered.result().error_code is (ErrorCode.invalid_record if refused else ErrorCode.none)

    asyncio.run(main())


def test_what_is_large_is_decompressed_in_a_thread_and_stays_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection's next batch is behind it; what the topic has become meanwhile counts."""
    large = _compressed(_record(0, bytes(8 * MIB)), 1)

    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            client = await served.client()
            for data in (large, batch(b"behind it")):
                client.send("produce", 9, **produce("t", data))
            offsets = [(await client.receive()).responses[0].partition_responses[0].base_offset for _ in range(2)]
            assert offsets == [0, 1]
            answer = await client.call("fetch", 12, **fetch("t", 0))
            assert answer.responses[0].partitions[0].high_watermark == 2

            topic = served.broker.topics.get("t")
            assert topic is not None
            deleted = threading.Event()
            arrived = _signal(monkeypatch, deleted)
            client.send("produce", 9, **produce("t", large))
            await arrived.wait()
            await change(served.broker, lambda: served.broker.topics.delete(topic))
            deleted.set()
            refused = (await client.receive()).responses[0].partition_responses[0]
            assert refused.error_code is ErrorCode.not_leader_or_follower

    asyncio.run(main())


CODECS: dict[int, Callable[[bytes], Any]] = {
    1: lambda plain: cramjam.gzip.compress(plain, 1),
    2: cramjam.snappy.compress_raw,
    3: cramjam.lz4.compress,
    ZSTD: lambda plain: cramjam.zstd.compress(plain, 1),
}
REFUSED = 4


@pytest.mark.tier("long")
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("why", ["too large", "no records"])
def test_what_has_come_out_of_a_refused_batch_is_free_at_once(codec: int, why: str) -> None:
    """And not when the next full collection of garbage comes by."""
    body = bytes((72 if why == "too large" else 48) * MIB)
    data = bytes(seal(bytes(CODECS[codec](body)), count=1, base_timestamp=0, max_timestamp=0, attributes=codec))
    del body
    config = LogConfig(message_bytes_max=8 * MIB)

    async def main() -> None:
        checks, share = batch_checks.BatchChecks(MIB), FairShare(500).request()

        async def refused() -> None:
            with pytest.raises(batch_checks.BatchRejected):
                await checks.check(read_header(data), data, config, 0, share)

        await refused()
        gc.collect()
        gc.disable()
        try:
            before_mib = _resident_mib()
            for _ in range(REFUSED):
                await refused()
            assert _resident_mib() - before_mib < 48
            assert not [
                each for each in gc.get_objects() if isinstance(each, batch_checks.BatchRejected | CorruptBatch)
            ]
        finally:
            gc.enable()
            checks.stop()

    asyncio.run(main())


def _resident_mib() -> int:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) // 1024
