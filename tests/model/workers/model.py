"""The workers' model put together."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.explore import Step
from tests.model.workers import world as w
from tests.model.workers.change_steps import ChangeSteps
from tests.model.workers.group_steps import GroupSteps
from tests.model.workers.lane_steps import LaneSteps
from tests.model.workers.rules import WorkerRules
from tests.model.workers.world import GenerationRecord, Id, Item, World

KINDS = frozenset({"kill", "freeze", "leave", "coordinator", "clusters", "broken", "reply", "early"})
OPENED = GenerationRecord(1, "open", 2, 0)


def first(workers: int = 2, generations: int = 1, log: tuple[GenerationRecord, ...] = (OPENED,)) -> World:
    """No worker runs; generation 1 is open, with two lanes and the file of worker 0."""
    return World(
        workers=(w.Worker(),) * workers,
        log=log,
        ids=(Id(),) * (2 * generations),
        owners=(w.NOBODY,) * 3,
        members=(False,) * workers,
    )


def running() -> World:
    """Worker 0 is a member and runs both lanes; the record is not copied yet."""
    world = first()
    lanes = (w.Lane(w.RUNNING), w.Lane(w.RUNNING, session=w.COPYING, position=0))
    one = w.Worker(process=w.UP, joined=True, generation=1, lanes=lanes)
    return world._replace(
        workers=(one, w.Worker()), members=(True, False), owners=(0, 0, w.NOBODY), ids=(Id(), Id(holder=0))
    )


class WorkersModel(GroupSteps, LaneSteps, ChangeSteps):
    """The step function under some rules."""

    def __init__(
        self,
        rules: WorkerRules | None = None,
        kinds: frozenset[str] = KINDS,
        files: tuple[int, ...] = (0, 0),
        takeovers_max: int = 3,
    ) -> None:
        super().__init__(rules or WorkerRules(), kinds, files, takeovers_max)

    def steps(self, world: World) -> Iterator[Step[World]]:
        """Every step that can be the next, with the world after it. Raises Bad where a property breaks."""
        for label, after in self._all(world):
            yield label, self._same(after)

    def _same(self, world: World) -> World:
        """Workers with the same file differ in nothing but their place: of equal worlds take one."""
        workers, files = world.workers, self.files
        if len(workers) == 2 and (files[0] != files[1] or workers[0] < workers[1]):
            return world
        alike = [number for number in range(len(workers)) if files[number] == files[-1]]
        order = sorted(alike, key=lambda number: (workers[number], _marks(world, number)))
        if order == alike:
            return world
        place = dict(zip(order, alike, strict=True))
        return world._replace(
            workers=_moved(world.workers, place),
            members=_moved(world.members, place),
            owners=tuple(place.get(owner, owner) for owner in world.owners),
            ids=tuple(it._replace(holder=place.get(it.holder, it.holder)) for it in world.ids),
            control=place.get(world.control, world.control),
        )

    def _all(self, world: World) -> Iterator[Step[World]]:
        yield from self.coordinator_steps(world)
        yield from self.broker_steps(world)
        yield from self.job_steps(world)
        for number in range(len(world.workers)):
            yield from self.member_steps(world, number)
            yield from self.early_steps(world, number)
            yield from self.lane_steps(world, number)
            yield from self.leaving_steps(world, number)
            yield from self.change_steps(world, number)
        yield from self.recoveries(world)
        yield from self.disturbances(world)

    def held(self, world: World) -> bool:
        """The goal: every lane of the open generation runs, assigned, and the record is copied; or nobody could."""
        if not any(it.process in (w.UP, w.FROZEN, w.AWAY) and not it.broken >= 0 for it in world.workers):
            return True
        newest = world.log[-1]
        if newest.phase != "open" or newest.job:
            return False
        runs = set()
        for number, worker in enumerate(world.workers):
            if worker.process == w.UP and worker.generation == newest.number:
                for lane, state in enumerate(worker.lanes):
                    mine = world.ids[self.id_of(newest.number, lane)].holder == number
                    copying = state.session == w.COPYING and mine
                    if state.stage == w.RUNNING and (copying or not self.whole(world, number, lane)):
                        runs.add(lane)
        return len(runs) == newest.lanes and world.copied == w.RECORDS


def _marks(world: World, number: int) -> tuple[object, ...]:
    owns = tuple(owner == number for owner in world.owners)
    holds = tuple(it.holder == number for it in world.ids)
    return (world.members[number], owns, holds, world.control == number)


def _moved(items: tuple[Item, ...], place: dict[int, int]) -> tuple[Item, ...]:
    moved = list(items)
    for before, after in place.items():
        moved[after] = items[before]
    return tuple(moved)
