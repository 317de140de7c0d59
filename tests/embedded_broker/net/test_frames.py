"""What comes in over the socket: bad sizes, slow frames, unknown APIs, too many bytes, order of answers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from embedded_broker.wire.framing import BadFrame, Framer, WithoutRecords
from tests.embedded_broker.served import Client, batch, fetch, produce, serving

UNSUPPORTED_VERSION = 35


def test_frames_are_cut_wherever_the_stream_is_torn() -> None:
    frames = [os.urandom(size) for size in (8, 9, 300, 70_000)]
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    for step in (1, 3, 7, 4096, len(stream)):
        framer = Framer(100_000)
        found = [frame for at in range(0, len(stream), step) for frame in framer.feed(stream[at : at + step])]
        assert found == frames
        assert framer.partial_bytes == 0


@pytest.mark.parametrize("step", [999, 70_000, 1 << 20])
def test_long_requests_are_handed_out_as_they_were_put_together(step: int) -> None:
    sizes = 8, 200_000, 9, 70_000, 300_000, 65_536, 65_537
    frames = [bytes(2) + os.urandom(size - 2) for size in sizes] + [b"\0\x01" + os.urandom(70_000)]
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    framer = Framer(1_000_000)
    framer.without_records = WithoutRecords(1_000_000, {})
    found = [frame for at in range(0, len(stream), step) for frame in framer.feed(stream[at : at + step])]
    assert found == frames
    assert [isinstance(frame, bytearray) for frame in found] == [size > 65_536 for size in sizes] + [True]
    for frame in found:
        if isinstance(frame, bytearray):
            frame[:] = bytes(len(frame))
    assert framer.partial_bytes == 0
    assert found[0] == frames[0]
    assert found[2] == frames[2]


def test_frames_beyond_what_is_wanted_at_once_are_held() -> None:
    frames = [os.urandom(10) for _ in range(25)]
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    framer = Framer(100)
    found = list(framer.feed(stream[:-1], 10))
    assert (len(found), framer.holds_whole) == (10, True)
    found += framer.feed(b"", 10)
    found += framer.feed(b"", 10)
    assert (len(found), framer.holds_whole, framer.partial_bytes) == (24, False, 13)
    found += framer.feed(stream[-1:], 10)
    assert (found, framer.holds_whole) == (frames, False)


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 7, 101])
def test_a_size_out_of_bounds_is_refused_before_anything_is_held(size: int) -> None:
    framer = Framer(100)
    with pytest.raises(BadFrame):
        list(framer.feed(size.to_bytes(4, "big", signed=True)))


def test_requests_without_records_are_refused_as_soon_as_their_size_and_api_are_known() -> None:
    framer = Framer(100)
    framer.without_records = WithoutRecords(50, {14: "sync_group"})
    assert list(framer.feed((50).to_bytes(4, "big") + b"\0\x0e" + bytes(48))) == [b"\0\x0e" + bytes(48)]
    assert list(framer.feed((100).to_bytes(4, "big") + bytes(100))) == [bytes(100)], "Produce"
    assert not list(framer.feed((51).to_bytes(4, "big") + b"\0")), "half of the key"
    with pytest.raises(BadFrame, match="sync_group: frame of 51 bytes; without records allowed are 50"):
        list(framer.feed(b"\x0e"))
    with pytest.raises(BadFrame, match="101"):
        list(Framer(100).feed((101).to_bytes(4, "big") + b"\0\0"))


def test_a_large_request_without_records_closes_its_connection_and_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        async with serving(tmp_path, frame_without_records_bytes_max=1 << 20) as served:
            await served.topic("t", max_message_bytes="4000000")
            client, other = await served.client(), await served.client()
            answer = await client.call("produce", 9, **produce("t", batch(bytes(3 << 20))))
            assert answer.responses[0].partition_responses[0].error_code == 0
            client.send_bytes(((1 << 20) + 1).to_bytes(4, "big") + b"\0\x0e")
            assert await client.closed()
            assert served.server.requests.total_bytes == 0
            assert (await other.call("api_versions", 0)).error_code == 0

    asyncio.run(main())
    assert "sync_group: frame of 1048577 bytes; without records allowed are 1048576" in capfd.readouterr().err


async def _refused(directory: Path, data: bytes) -> None:
    async with serving(directory) as served:
        client = await served.client()
        client.send_bytes(data)
        assert await client.closed()
        other = await served.client()
        assert (await other.call("api_versions", 0)).error_code == 0


BAD = {
    "size -1": b"\xff\xff\xff\xff",
    "size 2 GiB": b"\x7f\xff\xff\xff",
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "no such API": b"\0\0\0\x08" + b"\x7f\x00" + b"\0\0" + b"\0\0\0\1",
    "Metadata v99": b"\0\0\0\x08" + b"\0\x03" + b"\0\x63" + b"\0\0\0\1",
    "header that ends early": b"\0\0\0\x09" + b"\0\x03" + b"\0\x01" + b"\0\0\0\1" + b"\x7f",
    "two billion topics": b"\0\0\0\x0e" + b"\0\x03\0\x01\0\0\0\1\0\0" + b"\x7f\xff\xff\xff",
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD.keys())
def test_an_invalid_request_closes_only_its_connection(tmp_path: Path, data: bytes) -> None:
    asyncio.run(_refused(tmp_path, data))


def test_random_bytes_never_stop_the_broker(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            for number in range(300):
                client = await served.client()
                key = number % 62
                body = key.to_bytes(2, "big") + (number % 14).to_bytes(2, "big") + os.urandom(number % 90 + 4)
                client.send_bytes(len(body).to_bytes(4, "big") + body)
                client.writer.write_eof()
                await client.reader.read()
                client.writer.close()
            assert not served.broker.failed.done()
            assert (await (await served.client()).call("api_versions", 0)).error_code == 0

    asyncio.run(main())


def test_an_incomplete_frame_is_closed_at_the_deadline(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, frame_deadline_ms=100) as served:
            client = await served.client()
            assert (await client.call("api_versions", 0)).error_code == 0
            client.send_bytes(b"\0\0\1\0begun")
            assert await client.closed()

    asyncio.run(main())


def test_too_new_api_versions_are_answered_in_version_0(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            client = await served.client()
            client.send_bytes(b"\0\0\0\x0a" + b"\0\x12\0\x63" + b"\0\0\0\x07" + b"\xff\xff")
            frame = await client.frame()
            assert frame[:6] == b"\0\0\0\x07" + UNSUPPORTED_VERSION.to_bytes(2, "big")
            assert frame[6:] == b"\0\0\0\1" + b"\0\x12\0\0\0\x04"

    asyncio.run(main())


@pytest.mark.tier("default")
def test_held_bytes_are_bounded_and_the_rest_stays_in_the_sockets(tmp_path: Path) -> None:
    async def main() -> None:
        limit, size = 4 << 20, 3 << 20
        async with serving(tmp_path, buffered_bytes_max=limit, frame_deadline_ms=2_000) as served:
            clients = [await served.client() for _ in range(6)]
            for client in clients:
                client.send_bytes((size + 1).to_bytes(4, "big") + bytes(size))
            await asyncio.sleep(0.3)
            assert served.server.requests.full
            assert served.server.requests.total_bytes <= limit + 6 * (256 << 10)
            for client in clients:
                assert await client.closed(), "none of them ever became whole"
            assert not served.server.requests.full
            assert served.server.requests.total_bytes == 0
            assert (await (await served.client()).call("api_versions", 0)).error_code == 0

    asyncio.run(main())


def test_pipelined_requests_are_appended_and_answered_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            client = await served.client()
            for number in range(200):
                client.send("produce", 9, **produce("t", batch(b"%d" % number)))
            client.send("fetch", 12, **fetch("t", 0))
            rounds = served.broker.flush_scheduler.rounds
            offsets = [(await client.receive()).responses[0].partition_responses[0].base_offset for _ in range(200)]
            assert offsets == list(range(200))
            assert served.broker.flush_scheduler.rounds - rounds < 150, "each had an fsync of its own"
            assert (await client.receive()).responses[0].partitions[0].error_code == 0

    asyncio.run(main())


def test_a_waiting_fetch_blocks_no_other_client_and_ends_with_its_connection(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            waiting, other = await served.client(), await served.client()
            waiting.send("fetch", 12, **fetch("t", 0, max_wait=60_000))
            await asyncio.sleep(0.05)
            assert (await other.call("metadata", 9, topics=None)).topics
            partition = served.broker.topics.partition("t", 0)
            assert partition is not None
            assert len(partition._waiters) == 1
            waiting.writer.close()
            await _until(lambda: not partition._waiters)

    asyncio.run(main())


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - the condition has no event
            await asyncio.sleep(0.01)


def test_connections_beyond_the_limit_are_closed(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, connections_max=2) as served:
            first, second = await served.client(), await served.client()
            assert (await first.call("api_versions", 0)).error_code == 0
            assert (await second.call("api_versions", 0)).error_code == 0
            third: Client = await served.client()
            assert await third.closed()
            first.writer.close()
            await _until(lambda: len(served.server._connections) == 1)
            assert (await (await served.client()).call("api_versions", 0)).error_code == 0

    asyncio.run(main())
