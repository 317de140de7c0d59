"""Large requests and responses are coded in a thread, and are the same bytes as small ones."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest
from kio.serial import entity_writer

from embedded_broker.api.api_versions import _answer
from embedded_broker.api.registry import load_all
from embedded_broker.net.coding import Coding, encode
from embedded_broker.wire import schema
from embedded_broker.wire.request_limits import ITEMS_MAX, BadRequest

AT_ONCE_MAX = 20
load_all()


class CountedThreads:
    """Runs work at once, and counts it."""

    def __init__(self, count: int, name: str) -> None:
        self.jobs = 0

    def all(self, work: Sequence[Callable[[], Any]]) -> asyncio.Future[list[Any]]:
        self.jobs += len(work)
        ended = asyncio.get_running_loop().create_future()
        found: list[Any] = []
        for each in work:
            try:
                found.append(each())
            except BaseException as error:  # noqa: BLE001 - as threads do
                found.append(error)
        ended.set_result(found)
        return ended

    def stop(self) -> None:
        pass


def coding() -> tuple[Coding, CountedThreads]:
    threads = CountedThreads(1, "")
    return Coding(AT_ONCE_MAX, lambda count, name: threads), threads


def request(partitions: int) -> bytes:
    kind = schema.entity("list_offsets", 7, "request")
    topics = [{"name": "t", "partitions": [{"partition_index": index, "timestamp": -1} for index in range(partitions)]}]
    out = io.BytesIO()
    header = kind.__header_schema__(request_api_key=2, request_api_version=7, correlation_id=5, client_id="somebody")
    entity_writer(type(header))(out, header)
    entity_writer(kind)(out, schema.builder(kind)({"topics": topics}))
    return out.getvalue()


def produce_request(version: int, *records: bytes | None) -> bytes:
    """Of two topics, with the same records for the partitions of both."""
    kind = schema.entity("produce", version, "request")
    data = [{"index": index, "records": each} for index, each in enumerate(records)]
    topics = [{"name": name, "topic_id": UUID(int=n), "partition_data": data} for n, name in enumerate("tu")]
    out = io.BytesIO()
    header = kind.__header_schema__(request_api_key=0, request_api_version=version, correlation_id=5, client_id="raw")
    entity_writer(type(header))(out, header)
    entity_writer(kind)(out, schema.builder(kind)({"acks": -1, "timeout": 1, "topic_data": topics}))
    return out.getvalue()


@pytest.mark.parametrize("version", [3, 8, 9, 12, 13])
def test_records_of_a_long_produce_request_are_those_in_its_frame(version: int) -> None:
    short = produce_request(version, b"r" * 70_000, None, b"", b"x")
    long = bytearray(short)

    async def main() -> None:
        plain, seen = [await coding()[0].decode("produce", version, each) for each in (short, long)]
        assert seen == plain
        found = [each.records for topic in seen.request.topic_data for each in topic.partition_data]
        assert [each is None for each in found] == [False, True, False, False] * 2
        found[0][:] = b"s" * 70_000
        assert long.count(b"s" * 70_000) == 1, "they are in the frame"

    asyncio.run(main())


@pytest.mark.parametrize("records", [(), (None, None)])
@pytest.mark.parametrize("version", [3, 13])
def test_a_long_produce_request_may_be_without_records(version: int, records: tuple[None, ...]) -> None:
    frame = produce_request(version, *records)

    async def main() -> None:
        plain, seen = [await coding()[0].decode("produce", version, each) for each in (frame, bytearray(frame))]
        assert seen == plain

    asyncio.run(main())


def answer(partitions: int) -> dict[str, Any]:
    found = [{"partition_index": index, "offset": 7} for index in range(partitions)]
    return {"topics": [{"name": "t", "partitions": found}]}


@pytest.mark.parametrize(("partitions", "jobs"), [(1, 0), (AT_ONCE_MAX - 1, 0), (AT_ONCE_MAX, 1), (1_000, 1)])
def test_only_what_is_large_is_coded_in_a_thread(partitions: int, jobs: int) -> None:
    async def main() -> None:
        coder, threads = coding()
        client_id, decoded, items = await coder.decode("list_offsets", 7, request(partitions))
        assert (client_id, items) == ("somebody", partitions + 1)
        assert [each.partition_index for each in decoded.topics[0].partitions] == list(range(partitions))
        assert threads.jobs == jobs
        codec = schema.load("list_offsets", 7)
        assert await coder.encode(codec, 3, answer(partitions)) == encode(codec, 3, answer(partitions))
        assert threads.jobs == 2 * jobs

    asyncio.run(main())


def test_what_a_thread_raises_is_raised() -> None:
    async def main() -> None:
        coder, threads = coding()
        with pytest.raises(BadRequest, match="too many items"):
            await coder.decode("list_offsets", 7, request(ITEMS_MAX))
        with pytest.raises(BadRequest):
            await coder.decode("list_offsets", 7, request(1_000)[:-1])
        assert threads.jobs == 2

    asyncio.run(main())


def test_an_answer_that_never_changes_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        coder, _ = coding()
        codec = schema.load("api_versions", 4)
        first = await coder.encode(codec, 1, _answer(4))
        built = []
        counting = schema.ApiCodec(codec.read, codec.write, lambda fields: built.append(fields), codec.write_header)
        second = await coder.encode(counting, 2, _answer(4))
        assert built == []
        assert first == encode(codec, 1, dict(_answer(4)))
        assert second == encode(codec, 2, dict(_answer(4)))
        assert await coder.encode(schema.load("api_versions", 0), 3, _answer(0)) != first

    asyncio.run(main())
