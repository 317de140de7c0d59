"""The generation model put together: two workers, two changers, up to three generations, one broker, any order."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model import world as w
from tests.model.broker_steps import HOSTS, IDS, control_steps, fence, late_steps, name
from tests.model.changer_steps import ChangerSteps
from tests.model.explore import Step
from tests.model.rules import Rules
from tests.model.worker_steps import WorkerSteps
from tests.model.world import Changer, Record, Txn, Worker, World

OPENED: tuple[Record, ...] = ((1, "preparing", 2, -1), (1, "open", 2, 0))


def first(log: tuple[Record, ...] = ()) -> World:
    """Nothing is copied, nobody runs; by default not even a first generation is open."""
    return World(
        copied=0,
        position=(0, 0),
        txns=(Txn(),) * (HOSTS + 2),
        opens=(),
        workers=(Worker(),) * 2,
        changers=(Changer(),) * 2,
        log=log,
        stable=len(log),
        control=w.NONE,
        notes=((), ()),
        air=None,
    )


def growing() -> World:
    """The source is empty, and grows at any time: before the flow is opened with `start: latest`, and after that."""
    return first()._replace(copied=-1, end=0, owed=-1)


def copied_all(world: World) -> bool:
    """The goal that must stay within reach."""
    return w.RECORDS in (world.copied, world.owed)


class Model:
    """The step function under some rules."""

    def __init__(self, rules: Rules, generations: int = 3, *, one_lane: bool = False) -> None:
        self._rules = rules
        self._workers = WorkerSteps(rules)
        self._changers = ChangerSteps(rules, generations, one_lane=one_lane)

    def steps(self, world: World) -> Iterator[Step[World]]:
        """Every step that can be the next, with the world after it. Raises Bad where a property breaks."""
        for label, after in self._all(world):
            yield label, self._same(after)

    def _same(self, world: World) -> World:
        """Workers differ in nothing but their place here, unless ids are made from it."""
        if not self._rules.id_by_host and world.workers[0] > world.workers[1]:
            return world._replace(workers=world.workers[::-1])
        return world

    def _all(self, world: World) -> Iterator[Step[World]]:
        yield from self._broker(world)
        yield from control_steps(world)
        if world.end < w.RECORDS:
            yield "the source grows", world._replace(end=world.end + 1)
        if world.air is not None:
            yield from late_steps(world, world.air)
        for number in range(2):
            yield from self._workers.steps(world, number)
            yield from self._changers.steps(world, number)

    def _broker(self, world: World) -> Iterator[Step[World]]:
        by_host = self._rules.id_by_host
        for holder, txn in enumerate(world.txns):
            if txn.phase == w.OPEN:
                timed_out = fence(w.abort(world, holder), holder, -1, by_host=by_host)
                yield f"broker: {name(holder)} times out", timed_out
            elif txn.phase != w.NONE:
                yield f"broker: {name(holder)} is complete", w.complete(world, holder)
            if txn.late >= 0:
                generation = IDS[holder][0] if holder < HOSTS else 0
                label = f"broker: applies position {txn.late} of {name(holder)}"
                yield label, w.apply_position(world, holder, generation)
