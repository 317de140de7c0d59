"""Processes on the simulated loop."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Coroutine
from random import Random
from typing import Any

from embedded_broker.simulation.loop import Process, SimulatedLoop


async def _never_awaited() -> None:
    """Carried by a task that is killed before it begins."""


async def _carry(answers: list[Coroutine[Any, Any, None]]) -> None:
    await answers.pop()


def test_tasks_of_a_killed_process_that_had_not_begun_are_discarded_without_warnings() -> None:
    loop = SimulatedLoop(Random(1), 0.01)
    process = Process("p", lambda dead: None)

    async def main() -> None:
        async def begin() -> None:
            asyncio.get_running_loop().create_task(_carry([_never_awaited()]))
            loop.kill(process)

        loop.spawn(process, begin())
        await asyncio.sleep(1)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loop.run_until_complete(main())
        loop.discard_tasks(process)
        loop.close()
        gc.collect()
    assert [str(each.message) for each in caught] == []


def test_a_step_of_the_clock_on_the_wall_changes_no_timer() -> None:
    loop = SimulatedLoop(Random(1), 0.01)

    async def main() -> None:
        began_ms = loop.now_ms()
        loop.set_wall_clock(-5_000)
        await asyncio.sleep(1)
        assert loop.time() == 1.0
        assert loop.now_ms() == began_ms - 4_000
        assert loop.now_max_ms() == began_ms

    loop.run_until_complete(main())
    loop.close()


def test_timers_come_between_the_steps_of_who_takes_several() -> None:
    loop = SimulatedLoop(Random(1), 0.0, step_s_max=0.001)

    async def main() -> int:
        due = loop.create_future()
        loop.call_later(0.005, due.set_result, None)
        steps = 0
        while not due.done():
            await asyncio.sleep(0)
            steps += 1
        return steps

    assert loop.run_until_complete(main()) > 5
    loop.close()
