"""The largest request of each API, of one name repeated and of distinct names, costs others little: time and memory."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kafka_records.records import encode
from tests.embedded_broker import largest, served
from tests.embedded_broker.leaving_behind import connect
from tests.embedded_broker.populated import Population, commit_and_begin, one_produce, populate, write_as_producers
from tests.embedded_broker.served import serving
from tests.embedded_broker.watched import WatchedBroker

STALL_S_MAX, MIB_MAX = 0.2, 64
FIXED_BYTES, TIMES = 512 * 1024, 10
"""An answer has some bytes for what is there, and for each byte of the request no more than `TIMES`."""
NOT_LOGGED_IN = frozenset({"sasl_handshake", "sasl_authenticate"})
ANSWER_S = 300.0
LARGEST_MIB = 95
"""Of a Produce request: nearly all that `socket.request.max.bytes` allows."""
FEW = 1_000
"""Items of a request where its answer is only counted."""


async def _send(port: int, frame: bytes) -> int:
    """Send one request, and read its answer: the bytes of it, 0 if the connection is closed instead."""
    client = await connect(port)
    try:
        client.send_bytes(frame)
        async with asyncio.timeout(ANSWER_S):
            left = size = int.from_bytes(await client.reader.readexactly(4), "big")
            while left and (got := await client.reader.read(min(left, 1 << 20))):
                left -= len(got)
            return 0 if left else size
    except (asyncio.IncompleteReadError, ConnectionError):
        return 0
    finally:
        client.writer.close()


@pytest.mark.tier("full")
def test_an_answer_is_not_many_times_as_long_as_its_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "TIMEOUT_S", ANSWER_S)

    async def main() -> None:
        async with serving(tmp_path) as broker:
            await broker.topic(largest.TOPIC, 50)
            await write_as_producers(broker.broker.port, 100)
            await commit_and_begin(broker.broker.port, 50, 5)
            for n in range(20):
                await broker.topic(f"w{n}")
            ids = {topic.name: topic.topic_id for topic in broker.broker.topics.all()}
            tried, too_long = 0, []
            for each in largest.all_of(ids, NOT_LOGGED_IN, FEW):
                size = await _send(broker.broker.port, each.frame)
                tried += 1
                if size > FIXED_BYTES + TIMES * len(each.frame):
                    too_long.append(f"{each}: {len(each.frame)} bytes, {size} bytes of answer")
            assert tried > 150
            assert too_long == []

    asyncio.run(main())


@pytest.mark.tier("long")
@pytest.mark.parametrize("of", [largest.all_of, largest.longest_of], ids=["items", "bytes"])
def test_the_largest_requests_hold_nobody_up(of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is the CPU time of one iteration of the event loop, so it means the same on a busy machine."""
    monkeypatch.setattr(served, "TIMEOUT_S", ANSWER_S)

    async def main() -> None:
        broker = await asyncio.to_thread(WatchedBroker, tmp_path, subprocess.DEVNULL)
        try:
            ids = await populate(broker.port, Population())
            costly = []
            broker.read()
            for each in of(ids, NOT_LOGGED_IN):
                before = broker.read()
                await _send(broker.port, each.frame)
                seen = broker.read()
                more_mib = seen.peak_mib - before.now_mib
                if max(seen.stall_s, before.stall_s) > STALL_S_MAX or more_mib > MIB_MAX:
                    costly.append(f"{each}: {max(seen.stall_s, before.stall_s):.3f} s, {more_mib:.0f} MiB: {seen.what}")
            assert costly == []
        finally:
            await asyncio.to_thread(broker.stop)

    asyncio.run(main())


@pytest.mark.tier("long")
@pytest.mark.parametrize("partitions", [95, 1])
def test_records_are_in_memory_once(partitions: int, tmp_path: Path) -> None:
    """While they are received, checked, given their offsets and written; and not once they are answered."""
    data = bytes(encode([(None, bytes((LARGEST_MIB << 20) // partitions - 1_000))], 1_000))
    fields = one_produce("t", 0, data)
    fields["topic_data"][0]["partition_data"] = [{"index": n, "records": data} for n in range(partitions)]

    async def main() -> None:
        broker = await asyncio.to_thread(WatchedBroker, tmp_path, subprocess.DEVNULL)
        try:
            client = await connect(broker.port)
            configs = [{"name": "max.message.bytes", "value": str(100 << 20)}]
            topic = {"name": "t", "num_partitions": partitions, "replication_factor": 1, "configs": configs}
            await client.call("create_topics", 7, topics=[topic], timeout=60_000)
            broker.read()
            before = broker.read()
            for offset in range(3):
                answer = await client.call("produce", 9, **fields)
                found = [(each.error_code, each.base_offset) for each in answer.responses[0].partition_responses]
                assert found == [(0, offset)] * partitions
                after = broker.read()
                assert after.peak_mib - before.now_mib <= LARGEST_MIB + MIB_MAX
                assert after.now_mib - before.now_mib <= MIB_MAX
        finally:
            await asyncio.to_thread(broker.stop)

    asyncio.run(main())
