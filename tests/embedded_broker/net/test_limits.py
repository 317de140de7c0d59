"""What many clients, slow ones and greedy ones may cost: memory stays bounded and the others are served."""

from __future__ import annotations

import asyncio
import resource
import socket
import subprocess
import time
from pathlib import Path

import pytest

from embedded_broker.net.budget import Budget, TooLarge
from embedded_broker.net.connection import Connection
from tests.embedded_broker.process import BrokerProcess
from tests.embedded_broker.served import Client, Served, batch, fetch, produce, serving
from tests.embedded_broker.simulated import simulated

pytestmark = pytest.mark.tier("default")  # waits for limits of time

API_VERSIONS_V0 = b"\0\0\0\x0a" + b"\0\x12\0\0" + b"\0\0\0\x07" + b"\xff\xff"
FOUR_BILLION_TOPICS = b"\0\x03\0\x09" + b"\0\0\0\1" + b"\xff\xff" + b"\0" + b"\xff\xff\xff\xff\x0f"
IDLE, IDLE_KIB_MAX = 1_000, 40


class Holding:
    """A holder in memory."""

    def __init__(self) -> None:
        self.shed_for = ""
        self.bytes = 0
        self.budget: Budget[Holding] | None = None

    def granted(self, more_bytes: int) -> None:
        """See `budget.Holder`."""
        assert self.budget is not None
        self.bytes += more_bytes
        self.budget.held(self, self.bytes)

    def shed(self, what: str) -> None:
        """See `budget.Holder`."""
        self.shed_for = what
        self.bytes = 0
        assert self.budget is not None
        self.budget.held(self, 0)


def test_a_budget_sheds_the_largest_until_half_is_free_but_nobody_when_it_gets_less_by_itself() -> None:
    async def main() -> None:
        changes: list[bool] = []
        budget = Budget[Holding]("things", 100, changes.append, patience_s=0.02)
        small, large, larger = Holding(), Holding(), Holding()
        for each, size in ((small, 30), (large, 45), (larger, 60)):
            each.budget = budget
            budget.held(each, size)
        assert changes == [True]
        await asyncio.sleep(0.01)
        budget.held(large, 38)
        await asyncio.sleep(0.02)
        assert not larger.shed_for
        await asyncio.sleep(0.04)
        assert "60 bytes" in larger.shed_for
        assert "38 bytes" in large.shed_for
        assert not small.shed_for
        assert changes == [True, False]
        assert budget.total_bytes == 30

    simulated(main())


def test_a_budget_sheds_at_once_at_twice_its_limit() -> None:
    async def main() -> None:
        budget = Budget[Holding]("things", 100, lambda full: None, patience_s=60)
        small, large = Holding(), Holding()
        small.budget = large.budget = budget
        budget.held(small, 30)
        budget.held(large, 180)
        assert large.shed_for
        assert not small.shed_for
        assert budget.total_bytes == 30

    asyncio.run(main())


@pytest.mark.parametrize("whole", [False, True])
def test_reservations_wait_until_they_fit_and_small_ones_find_space_beside_large_ones(whole: bool) -> None:
    limit = 100 << 20

    async def main() -> None:
        budget = Budget[Holding]("things", limit, lambda full: None, patience_s=60)
        small, large, larger = holders = Holding(), Holding(), Holding()
        for each in holders:
            each.budget = budget
        await budget.reserve(large, 50 << 20)
        await budget.reserve(large, 25 << 20)
        assert not budget.fits(larger, 2 << 20)
        waiting = asyncio.create_task(budget.reserve(larger, 90 << 20, whole))
        await budget.reserve(small, 1 << 20)
        assert (small.bytes, budget.total_bytes) == (1 << 20, 76 << 20)
        assert not waiting.done()
        large.bytes = 24 << 20
        budget.held(large, large.bytes)
        await waiting
        assert larger.bytes == 90 << 20
        with pytest.raises(TooLarge):
            await budget.reserve(small, limit)
        left = asyncio.create_task(budget.reserve(large, 50 << 20))
        await asyncio.sleep(0)
        left.cancel()
        await asyncio.wait([left])
        budget.held(larger, 0)
        assert large.bytes == 24 << 20

    asyncio.run(main())


def test_who_frees_nothing_while_others_wait_is_shed_also_if_it_drips() -> None:
    async def main() -> None:
        emptied: list[int] = []
        budget = Budget[Holding](
            "things", 64 << 20, lambda full: None, patience_s=1.0, emptied=lambda: emptied.append(budget.total_bytes)
        )
        deaf, honest = Holding(), Holding()
        deaf.budget = honest.budget = budget
        await budget.reserve(deaf, 48 << 20)

        async def drip() -> None:
            while not deaf.shed_for:
                budget.held(deaf, budget.total_bytes - 1)
                await asyncio.sleep(0.1)

        dripping = asyncio.create_task(drip())
        async with asyncio.timeout(5):
            await budget.reserve(honest, 20 << 20)
        assert deaf.shed_for
        await dripping
        assert not emptied
        budget.held(honest, 0)
        assert emptied == [0]

    simulated(main())


def _rss_kib(process: subprocess.Popen[str]) -> int:
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


def _connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), 10)


def _asks(connection: socket.socket) -> bool:
    """Whether a request is answered."""
    try:
        connection.sendall(API_VERSIONS_V0)
        return connection.recv(4) != b""
    except ConnectionError:
        return False


def test_a_thousand_idle_connections_cost_little_and_a_claim_of_32_gib_nothing(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    idle: list[socket.socket] = []
    try:
        assert _asks(_connect(broker.address))
        before = _rss_kib(broker.process)
        idle = [_connect(broker.address) for _ in range(IDLE)]
        assert all(_asks(connection) for connection in idle[::50])
        assert _rss_kib(broker.process) - before < IDLE * IDLE_KIB_MAX
        with _connect(broker.address) as liar:
            liar.sendall(len(FOUR_BILLION_TOPICS).to_bytes(4, "big") + FOUR_BILLION_TOPICS)
            assert liar.recv(1) == b""
        assert _rss_kib(broker.process) - before < IDLE * IDLE_KIB_MAX
        assert _asks(idle[0])
    finally:
        for connection in idle:
            connection.close()
        broker.kill()


def test_connections_leave_half_of_the_open_files_to_the_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(resource, "getrlimit", lambda which: (64, 64))
        async with serving(tmp_path) as served:
            clients = [await served.client() for _ in range(33)]
            assert (await clients[0].call("api_versions", 0)).error_code == 0
            assert await clients[32].closed()

    asyncio.run(main())


async def _is_quick(served: Served, seconds_max: float = 5.0) -> None:
    """Somebody else can write and read."""
    other = await served.client()
    began = time.monotonic()
    assert (await other.call("produce", 9, **produce("t", batch(b"v")))).responses[0].partition_responses[
        0
    ].error_code == 0
    assert (await other.call("fetch", 12, **fetch("t", 0))).error_code == 0
    assert time.monotonic() - began < seconds_max


class _Peak:
    """The most that a budget has held at any time, in bytes."""

    def __init__(self, budget: Budget[Connection], monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        held = budget.held

        def noted(holder: Connection, now_bytes: int, read_bytes: int = 0) -> None:
            held(holder, now_bytes, read_bytes)
            self.bytes = max(self.bytes, budget.total_bytes)

        monkeypatch.setattr(budget, "held", noted)


def _begun(size: int, held_bytes: int) -> bytes:
    """Of a Produce of so many bytes."""
    return size.to_bytes(4, "big") + bytes(held_bytes - 4)


@pytest.mark.tier("long")
def test_who_holds_little_goes_on_while_others_have_filled_the_limit(tmp_path: Path) -> None:
    limit = 4 << 20

    async def main() -> None:
        async with serving(tmp_path, buffered_bytes_max=limit) as served:
            await served.topic("t")
            requests = served.server.requests
            requests._patience_s = 600.0
            before, hoarders = await served.client(), [await served.client() for _ in range(6)]
            for each in hoarders:
                each.send_bytes(_begun(20 << 20, 3 << 20))
            async with asyncio.timeout(10):
                while not requests.full:  # noqa: ASYNC110 - only sockets tell
                    await asyncio.sleep(0.01)
            for client in (before, await served.client()):
                async with asyncio.timeout(5):
                    answer = await client.call("produce", 9, **produce("t", batch(bytes(3_000))))
                    assert answer.responses[0].partition_responses[0].error_code == 0
                    assert (await client.call("fetch", 12, **fetch("t", 0))).error_code == 0
            held_bytes = requests.total_bytes
            assert requests.full
            await asyncio.sleep(0.2)
            assert requests.total_bytes == held_bytes <= 2 * limit, "the hoarders are not read"

    asyncio.run(main())


@pytest.mark.tier("long")
def test_many_that_hold_little_each_are_bounded_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit, count = 1 << 20, 320

    async def main() -> None:
        async with serving(tmp_path, buffered_bytes_max=limit) as served:
            requests = served.server.requests
            requests._patience_s = 600.0
            peak = _Peak(requests, monkeypatch)
            honest = await served.client()
            for each in [await served.client() for _ in range(count)]:
                each.send_bytes(_begun(100_000, requests.little_bytes - 100))
            async with asyncio.timeout(10):
                while len(served.server._connections) > count:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert limit < peak.bytes <= 2 * limit
            assert requests.total_bytes < limit
            assert (await honest.call("api_versions", 0)).error_code == 0

    asyncio.run(main())


def test_slow_frames_are_closed_at_the_deadline_from_their_first_byte(tmp_path: Path) -> None:
    async def drip(client: Client) -> None:
        client.send_bytes(b"\0\0\1\0")
        while not client.reader.at_eof() and not client.writer.is_closing():
            client.send_bytes(b"x")
            await asyncio.sleep(0.05)

    async def main() -> None:
        async with serving(tmp_path, frame_deadline_ms=400) as served:
            await served.topic("t")
            lorises = [await served.client() for _ in range(100)]
            drips = [asyncio.create_task(drip(client)) for client in lorises]
            await _is_quick(served)
            for client in lorises:
                assert await client.closed()
            await asyncio.wait(drips, timeout=5)
            assert served.server.requests.total_bytes == 0

    asyncio.run(main())


def test_clients_that_never_read_hold_little_and_lose_their_connection_only_when_it_gets_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 6 << 20

    async def main() -> None:
        async with serving(tmp_path, answers_bytes_max=limit) as served:
            await served.topic("t")
            client = await served.client()
            for _ in range(4):
                await client.call("produce", 9, **produce("t", batch(bytes(900_000))))
            deaf = [await served.client() for _ in range(6)]
            answers = served.server.answers
            peak = _Peak(answers, monkeypatch)
            for each in deaf:
                each.writer.transport.pause_reading()  # type: ignore[attr-defined]
                for _ in range(40):
                    each.send("fetch", 12, **fetch("t", 0, partition_max_bytes=4 << 20, max_bytes=4 << 20))
            async with asyncio.timeout(10):
                while answers.full or len(served.server._connections) == 1 + len(deaf):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert limit // 2 < peak.bytes <= limit, "40 answers for each would be 900 MiB"
            await _is_quick(served)
            assert 0 < len(served.server._connections) < 8

    asyncio.run(main())


def test_requests_wait_while_their_client_does_not_read_responses(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            client = await served.client()
            for _ in range(4):
                await client.call("produce", 9, **produce("t", batch(bytes(900_000))))
            deaf = await served.client()
            for _ in range(60):
                deaf.send("fetch", 12, **fetch("t", 0, partition_max_bytes=4 << 20, max_bytes=4 << 20))
            await asyncio.sleep(0.5)
            assert served.server.answers.total_bytes < 8 << 20
            await _is_quick(served)
            for _ in range(60):
                assert len((await deaf.receive()).responses[0].partitions[0].records) > 3_600_000

    asyncio.run(main())


def test_silent_connections_are_closed_after_the_idle_time_and_busy_ones_stay(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, connections_idle_ms=400) as served:
            silent, busy = await served.client(), await served.client()
            assert (await silent.call("api_versions", 0)).error_code == 0
            for _ in range(8):
                assert (await busy.call("api_versions", 0)).error_code == 0
                await asyncio.sleep(0.1)
            assert await silent.closed()
            assert (await busy.call("api_versions", 0)).error_code == 0

    asyncio.run(main())


def test_small_requests_cost_more_than_their_bytes(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            client = await served.client()
            client.send("fetch", 12, **fetch("t", 0, max_wait=2_000))
            client.send_bytes(API_VERSIONS_V0 * 1_000)
            await asyncio.sleep(0.2)
            assert served.server.requests.total_bytes > 60 * 200
            client.writer.close()

    asyncio.run(main())
