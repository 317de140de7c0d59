"""What the tests of a lane write to the source of a simulated pair of clusters, and do between its polls."""

from __future__ import annotations

from collections.abc import Callable

from replicator.model.partition import Partition
from tests.replicator.lane.fakes.world import World

ALL = A, B, U = Partition("t", 0), Partition("t", 1), Partition("u", 0)


def numbered(prefix: str, count: int) -> list[str]:
    """Values that tell where they were written."""
    return [f"{prefix}-{number}" for number in range(count)]


def filled(world: World, count: int = 8) -> dict[Partition, list[tuple[int, str]]]:
    """Write so many records to each partition; what each holds then, see `held`."""
    for at in ALL:
        world.source.log(at).put(*numbered(str(at), count))
    return held(world)


def held(world: World) -> dict[Partition, list[tuple[int, str]]]:
    """(offset, value) of the committed records of each source partition."""
    return {at: [(o, e.value) for o, e in world.source.log(at).committed()] for at in ALL}


def each_poll(world: World, then: Callable[[], bool]) -> None:
    """Do it before each poll, as long as it returns True."""

    def once() -> None:
        if then():
            world.on.append(("plane.poll", once))

    world.on.append(("plane.poll", once))


def more(world: World) -> None:
    """Write three records into each of `ALL`."""
    for at in ALL:
        world.source.log(at).put(*numbered("more", 3))
