"""The disk of a simulated broker, and the threads in which its syncs take time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from embedded_broker.simulation.disk import Disk
from embedded_broker.simulation.fibers import Mutex
from embedded_broker.simulation.loop import Process, SimulatedLoop

FILE = Path("/d/file")


@pytest.fixture
def loop() -> SimulatedLoop:
    return SimulatedLoop(Random(1), 0.0)


def slow_disk(loop: SimulatedLoop, monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.setattr("embedded_broker.simulation.disk.SYNCS_THAT_TAKE_TIME", 1.0)
    return Disk(loop, Random(1), 1.0, lambda: None, lambda: None)


def test_what_is_written_during_a_sync_is_not_secured_by_it(
    loop: SimulatedLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = slow_disk(loop, monkeypatch)
    file = disk.open(FILE)

    async def main() -> float:
        disk.sync_directory(FILE.parent)
        file.append(b"before")
        syncing = loop.run_in_executor(None, file.sync)
        loop.call_later(0.0001, file.append, b" during")
        await syncing
        return loop.now_s

    assert loop.run_until_complete(main()) > 0.0001
    assert disk.read_small(FILE) == b"before during"
    disk.crash()
    assert disk.read_small(FILE) == b"before"
    loop.close()


def test_a_name_that_is_given_during_a_sync_of_its_directory_is_not_secured_by_it(
    loop: SimulatedLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = slow_disk(loop, monkeypatch)
    disk.open(FILE)

    async def main() -> None:
        syncing = loop.run_in_executor(None, disk.sync_directory, FILE.parent)
        loop.call_later(0.0001, disk.open, FILE.with_name("late"))
        await syncing

    loop.run_until_complete(main())
    disk.crash()
    assert disk.names(FILE.parent) == [FILE.name]
    loop.close()


def test_a_sync_ends_where_it_is_when_its_process_is_killed(
    loop: SimulatedLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = slow_disk(loop, monkeypatch)
    file, process = disk.open(FILE), Process("p", lambda dead: None)
    disk.sync_directory(FILE.parent)
    file.append(b"lost")

    async def sync() -> None:
        await loop.run_in_executor(None, file.sync)

    async def main() -> None:
        loop.spawn(process, sync())
        loop.call_later(0.0001, loop.kill, process)
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    assert not process.fibers
    disk.crash()
    assert disk.read_small(FILE) == b""
    loop.discard_tasks(process)
    loop.close()


def test_a_mutex_lets_one_in_at_a_time_and_the_event_loop_waits_for_a_thread(loop: SimulatedLoop) -> None:
    events: list[str] = []
    mutex = Mutex(loop.fibers)

    def hold(name: str) -> None:
        with mutex:
            events.append(f"{name} in")
            loop.fibers.pause(0.5)
            events.append(f"{name} out")

    async def main() -> None:
        first, second = (loop.run_in_executor(None, hold, name) for name in ("a", "b"))
        await asyncio.sleep(0.1)
        with mutex:
            events.append("loop")
        await first
        await second

    loop.run_until_complete(main())
    assert events == ["a in", "a out", "loop", "b in", "b out"]
    loop.close()
