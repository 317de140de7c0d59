"""Threads that wait for the disk: all results in their order, one wake-up, nothing lost at the end."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import pytest

from embedded_broker.runtime.workers import OneByOne, Threads

PATIENCE_S = 20


@pytest.mark.parametrize("count", [1, 2, 4])
def test_results_and_errors_come_back_in_order(count: int) -> None:
    failure = OSError("no")

    def fail() -> int:
        raise failure

    async def main() -> None:
        threads = Threads(count, "t")
        assert await threads.all([lambda: 1, fail, lambda: 3]) == [1, failure, 3]
        assert await threads.all([]) == []
        assert await threads.all([lambda: 4]) == [4]
        threads.stop()

    asyncio.run(main())


def test_they_run_side_by_side() -> None:
    async def main() -> None:
        threads, together = Threads(4, "t"), threading.Barrier(4, timeout=PATIENCE_S)
        assert set(await threads.all([together.wait] * 4)) == {0, 1, 2, 3}
        threads.stop()

    asyncio.run(main())


def test_the_loop_is_woken_once_and_by_the_last() -> None:
    async def main() -> None:
        threads, go, loop = Threads(3, "t"), threading.Event(), asyncio.get_running_loop()
        woken: list[object] = []
        wake = loop.call_soon_threadsafe

        def counted(*args: Any, **kwargs: Any) -> Any:
            woken.append(args)
            return wake(*args, **kwargs)

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign, assignment]
        ended = threads.all([lambda: go.wait(PATIENCE_S), lambda: False, lambda: False])
        asyncio.get_running_loop().call_later(0.05, go.set)
        assert await ended == [True, False, False]
        assert len(woken) == 1
        threads.stop()

    asyncio.run(main())


def test_stopping_waits_for_what_was_begun_and_refuses_more() -> None:
    async def main() -> None:
        threads, done = Threads(1, "t"), []
        gate = threading.Event()
        ended = threads.all([lambda: gate.wait(PATIENCE_S), lambda: done.append(1)])
        gate.set()
        threads.stop()
        assert done == [1]
        assert await ended == [True, None]
        with pytest.raises(RuntimeError, match="stopped"):
            threads.all([lambda: 1])
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("t ")]

    asyncio.run(main())


def test_one_thread_does_all_work_if_no_other_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        start, threads = threading.Thread.start, Threads(3, "t")
        left = 0

        def limited(thread: threading.Thread) -> None:
            nonlocal left
            if left == 0:
                raise RuntimeError("can't start new thread")
            left -= 1
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", limited)
        with pytest.raises(RuntimeError, match="can't start"):
            threads.all([lambda: 1])
        left = 1
        assert await asyncio.wait_for(threads.all([lambda: 1, lambda: 2, lambda: 3]), PATIENCE_S) == [1, 2, 3]
        threads.stop()

    asyncio.run(main())


def test_results_for_a_closed_loop_are_dropped() -> None:
    threads, gate, said = Threads(1, "t"), threading.Event(), list[object]()
    excepthook, threading.excepthook = threading.excepthook, said.append

    async def main() -> None:
        threads.all([lambda: gate.wait(PATIENCE_S)])

    try:
        asyncio.run(main())
        gate.set()
        threads.stop()
    finally:
        threading.excepthook = excepthook
    assert said == []


def test_results_for_a_cancelled_caller_are_dropped() -> None:
    async def main() -> None:
        threads, gate = Threads(1, "t"), threading.Event()
        ended = threads.all([lambda: gate.wait(PATIENCE_S)])
        ended.cancel()
        gate.set()
        assert await threads.all([lambda: 2]) == [2]
        threads.stop()

    asyncio.run(main())


def test_a_large_call_is_handed_over_when_the_last_one_has_ended_whoever_has_left_meanwhile() -> None:
    async def main() -> None:
        began, gate = list[int](), threading.Event()

        def call(number: int) -> int:
            began.append(number)
            gate.wait(PATIENCE_S)
            return number

        calls = OneByOne(Threads, "t")
        waiting = [asyncio.create_task(calls.run(partial(call, number))) for number in range(20)]
        while not began:  # noqa: ASYNC110 - of a thread
            await asyncio.sleep(0.001)
        for task in waiting[:19]:  # one of them is under way
            task.cancel()
        await asyncio.wait(waiting[:19])
        assert began == [0]
        gate.set()
        assert await asyncio.wait_for(waiting[19], PATIENCE_S) == 19
        assert began == [0, 19]
        with pytest.raises(ZeroDivisionError):
            await calls.run(lambda: 1 // 0)
        assert await calls.run(lambda: 2) == 2
        calls.stop()
        with pytest.raises(RuntimeError, match="stopped"):
            await calls.run(lambda: 3)
        with pytest.raises(RuntimeError, match="stopped"):  # and nobody waits for ever
            await asyncio.wait_for(calls.run(lambda: 3), PATIENCE_S)

    asyncio.run(main())
