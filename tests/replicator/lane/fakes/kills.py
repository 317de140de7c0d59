"""A lane's process that dies at each of its calls, one after the other, and another one that goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.replicator.lane.fakes.world import World

KILLED = 1_000


def killed_at_each_call(made: Callable[[], World]) -> Iterator[World]:
    """Yield what comes of it, each time of a new world; the last time there were no more calls to die at.

    A process dies before a call, or (`end_answered`) after it took effect.
    """
    for call in range(1, KILLED):
        world = made()
        died: list[str] = []

        def die(name: str, died: list[str] = died) -> None:
            died.append(name)
            raise KeyboardInterrupt

        world.faults[world.calls + call] = die
        lane, _ = world.lane("one that dies")
        try:
            lane.drive()
        except KeyboardInterrupt:
            assert died
        world.faults.clear()
        world.run("the next one")
        yield world
        if not died:
            return
    raise AssertionError("it never ends")
