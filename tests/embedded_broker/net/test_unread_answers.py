"""Answers that nobody reads: what is in memory of them counts, and no more is in memory than the setting allows."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import cast

import pytest

from embedded_broker.net.unread_answers import CHUNK_BYTES, STEP_BYTES, UnreadAnswers
from embedded_broker.runtime.fair_share import FairShare
from kafka_records.records import encode
from tests.embedded_broker.leaving_behind import connect
from tests.embedded_broker.served import Client, fetch, produce
from tests.embedded_broker.watched import WatchedBroker

pytestmark = pytest.mark.tier("default")  # real sockets and a broker of its own
MIB = 1 << 20
DEAF, ANSWER_MIB, LIMIT_MIB, OTHER_MIB = 100, 5, 64, 24
"""`OTHER_MIB`: of connections, codecs and what the C library keeps."""
GIVEN_BACK_S, RECEIVED_BYTES = 10.0, 64 * 1024


class _Transport:
    """Has room for so many bytes, and keeps what it gets beyond."""

    def __init__(self, room_bytes: int) -> None:
        self.room_bytes, self.written = room_bytes, bytearray()
        self.answers: UnreadAnswers

    def write(self, data: bytes | memoryview) -> None:
        self.written += data
        if self.get_write_buffer_size():
            self.answers.pause()

    def get_write_buffer_size(self) -> int:
        return max(len(self.written) - self.room_bytes, 0)


def _answers(transport: _Transport, held: list[int]) -> UnreadAnswers:
    answers = UnreadAnswers(None, lambda now, _: held.append(now), asyncio.Event(), FairShare(500).next_turn)
    transport.answers = answers
    answers.begin(cast(asyncio.Transport, transport))
    return answers


@pytest.mark.parametrize(
    ("size", "taken", "kept"),
    [(10, 3, 10), (10, 5, 5), (10, 8, 2), (80, 70, 80), (80, 72, 8)],
    ids=["less than half", "half", "most", "most of much", "little is left of much"],
)
def test_what_is_written_of_a_part_counts_until_it_is_freed(size: int, taken: int, kept: int) -> None:
    """In chunks; beside what is kept of the part the transport has one that it isn't rid of."""

    async def main() -> None:
        held: list[int] = []
        transport = _Transport((taken - 1) * CHUNK_BYTES)
        answers, part = _answers(transport, held), os.urandom(size * CHUNK_BYTES)
        references = sys.getrefcount(part)
        answers.account(len(part))
        writing = asyncio.create_task(answers.write(part, True))
        while transport.get_write_buffer_size() == 0:  # noqa: ASYNC110 - until it waits
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert held[-1] == (kept + 1) * CHUNK_BYTES
        assert (sys.getrefcount(part) == references) is (kept < size), "the part is there, too, if it counts"
        transport.room_bytes = len(part)
        answers.resume()
        await writing
        assert transport.written == part
        assert (held[-1], sys.getrefcount(part)) == (0, references)

    asyncio.run(main())


async def _deaf(port: int) -> Client:
    """A client that reads nothing, and whose socket takes little."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED_BYTES)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
    client = Client(*await asyncio.open_connection(sock=connection))
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    return client


@pytest.mark.tier("full")
def test_clients_that_read_nothing_hold_no_more_than_the_setting(tmp_path: Path) -> None:
    """A hundred connections with one Fetch each."""

    async def main() -> None:
        log_path = tmp_path / "log"
        with log_path.open("wb") as log:
            broker = await asyncio.to_thread(WatchedBroker, tmp_path / "data", log, answers_bytes_max=LIMIT_MIB * MIB)
        try:
            honest = await connect(broker.port)
            configs = [{"name": "retention.ms", "value": "-1"}]
            topic = {"name": "t", "num_partitions": 1, "replication_factor": 1, "configs": configs}
            await honest.call("create_topics", 7, topics=[topic], timeout=60_000)
            for _ in range(2 * ANSWER_MIB):
                await honest.call("produce", 9, **produce("t", bytes(encode([(b"k", bytes(MIB // 2 - 200))], 1_000))))
            wanted = fetch("t", 0, max_bytes=50 * MIB, partition_max_bytes=50 * MIB)
            await honest.call("fetch", 12, **wanted)
            before = broker.read()
            broker.read()
            deaf = [await _deaf(broker.port) for _ in range(DEAF)]
            for each in deaf:
                each.send("fetch", 12, **wanted)
            # Its turn comes behind all that asked before.
            answer = await honest.call("fetch", 12, **wanted)
            assert len(answer.responses[0].partitions[0].records) > ANSWER_MIB * MIB * 0.99
            assert broker.read().peak_mib - before.now_mib <= LIMIT_MIB + OTHER_MIB
            for each in deaf:
                each.writer.transport.abort()
            async with asyncio.timeout(GIVEN_BACK_S):
                while broker.read().now_mib - before.now_mib > OTHER_MIB:  # noqa: ASYNC110 - in a process of its own
                    await asyncio.sleep(0.05)
            assert b"too many unread answers" in log_path.read_bytes()
        finally:
            await asyncio.to_thread(broker.stop)

    asyncio.run(main())


def test_others_have_their_turn_while_a_large_answer_is_written_and_no_further_request_begins() -> None:
    async def main() -> None:
        held: list[int] = []
        transport, rested, turns = _Transport(1 << 30), list[bool](), list[int]()
        go = asyncio.Event()

        async def next_turn() -> None:
            turns.append(len(transport.written))
            rested.append(answers.rests)
            go.clear()

        answers = UnreadAnswers(None, lambda now, _: held.append(now), go, next_turn)
        answers.begin(cast(asyncio.Transport, transport))
        part = os.urandom(3 * STEP_BYTES + CHUNK_BYTES)
        answers.account(len(part))
        await answers.write(part, True)
        assert transport.written == part
        assert turns == [STEP_BYTES, 2 * STEP_BYTES, 3 * STEP_BYTES]
        assert rested == [True] * 3, "what was written isn't freed then, and the next answer would come on top of it"
        assert not answers.rests
        assert go.is_set(), "who has waited for it looks again"

    asyncio.run(main())


def test_each_byte_that_the_transport_takes_is_told_once_before_or_when_it_is_freed() -> None:
    """Else whoever reads one large part looks as if it read nothing, and is closed for it when others wait."""

    async def main() -> None:
        told: list[tuple[int, int]] = []
        transport, part = _Transport(1 << 30), os.urandom(3 * CHUNK_BYTES + 1)
        go = asyncio.Event()
        answers = UnreadAnswers(None, lambda now, taken: told.append((now, taken)), go, FairShare(500).next_turn)
        answers.begin(cast(asyncio.Transport, transport))
        answers.account(len(part))
        await answers.write(part, True)
        assert told == [(len(part), 0)] + [(len(part), CHUNK_BYTES)] * 3 + [(0, 0)]

    asyncio.run(main())
