"""A changer in the generation model: what it does to take the flow to its next generation, each step perhaps its last.

OFF → HOLDING (the control id) → WRITTEN (`preparing` sent) → FENCING → OFF (`closed` and `open` sent).
"""

from __future__ import annotations

from collections.abc import Iterator

from replicator.state.control_topic import Control
from replicator.state.generation import Generation, LaneAssignment
from tests.model import world as w
from tests.model.broker_steps import ID, fence, fence_control, name
from tests.model.control_log import fold, record
from tests.model.explore import Step
from tests.model.rules import Rules
from tests.model.world import Changer, Record, World

OFF, HOLDING, WRITTEN, FENCING = range(4)


class ChangerSteps:
    """All steps of both changers under some rules.

    Changer c cuts the flow into c + 1 lanes, or both into one; the partition is always in the last lane.
    """

    def __init__(self, rules: Rules, generations: int, *, one_lane: bool) -> None:
        self.rules, self.generations, self.one_lane = rules, generations, one_lane

    def steps(self, world: World, number: int) -> Iterator[Step[World]]:
        """Every step that changer `number` can do next."""
        changer = world.changers[number]
        if changer.at == OFF:
            yield from self._hold(world, number)
            return
        yield f"changer {number} dies", self._set(world, number, Changer())
        if changer.at == HOLDING:
            yield from self._decide(world, number)
        elif changer.at == WRITTEN:
            yield from self._wait(world, number, changer)
        elif changer.left:
            yield from self._fence_next(world, number, changer)
        elif not world.notes[number]:
            yield from self._finish(world, number, changer)

    def _fold(self, log: tuple[Record, ...]) -> Control | None:
        return fold(log)

    def _hold(self, world: World, number: int) -> Iterator[Step[World]]:
        """Initialise the control id: fences the other changer, aborts its open write; refused while one is ending."""
        control = self._fold(world.log[: world.stable])
        if control is None or (control.newest == self.generations and control.open):
            return
        if self.rules.no_control_fencing:
            if world.control == w.NONE:
                yield f"changer {number} starts", self._set(world, number, Changer(HOLDING))
        elif world.control == w.OPEN:
            yield f"changer {number} aborts a control write", fence_control(world._replace(control=w.ABORTING))
        elif world.control == w.NONE:
            yield f"changer {number} holds the control id", self._set(fence_control(world), number, Changer(HOLDING))

    def _decide(self, world: World, number: int) -> Iterator[Step[World]]:
        """Read the control topic to its end: finish what is half done, or prepare the next generation."""
        if world.control != w.NONE:
            return
        control, rules, seen = self._fold(world.log), self.rules, len(world.log)
        if control is None:
            yield f"changer {number} cannot read the control topic", self._set(world, number, Changer())
        elif not control.begun and not rules.begin_over_positions and w.unstable(world):
            return  # positions are read stable, before the control topic
        elif not control.begun and not rules.begin_over_positions and world.position[1]:
            yield f"changer {number} stops: the control topic is lost", self._set(world, number, Changer())
        elif control.preparing and rules.abandon_half_done:
            yield f"changer {number} leaves a half-done change alone", self._set(world, number, Changer())
        elif control.preparing and not (rules.overtake_half_done and control.newest < self.generations):
            fencing = Changer(FENCING, seen, self._to_fence(control))
            yield f"changer {number} finds generation {control.newest} half done", self._set(world, number, fencing)
        elif control.newest == self.generations:
            yield f"changer {number} has nothing to do", self._set(world, number, Changer())
        elif rules.no_preparing or rules.fence_before_preparing:
            fencing = Changer(FENCING, seen, self._to_fence(control))
            yield f"changer {number} begins to fence", self._set(world, number, fencing)
        else:
            yield self._write(world, number, (self._prepared(control, number),), Changer(WRITTEN, seen))

    def _prepared(self, control: Control, number: int) -> Record:
        return record(self._prepare(control, number))

    def _prepare(self, control: Control, number: int) -> Generation:
        return control.prepare(LaneAssignment(1 if self.one_lane else number + 1), {}, 0)

    def _wait(self, world: World, number: int, changer: Changer) -> Iterator[Step[World]]:
        """Go on only once a read_committed read shows `preparing`, whatever was answered to EndTxn."""
        rules, log = self.rules, world.log[: world.stable]
        if rules.wait_for_answer_only and world.control == w.COMMITTING:
            log = world.log
        if rules.no_wait_for_preparing:
            before = self._fold(world.log[: changer.seen])
            log = world.log[: changer.seen]
            log = (*log, self._prepared(before, number)) if before else log
        control = self._fold(log)
        if control is None or not control.preparing or len(log) <= changer.seen:
            return
        left = () if rules.fence_before_preparing else self._to_fence(control)
        yield f"changer {number} goes on to fence", self._set(world, number, Changer(FENCING, len(log), left))

    def _to_fence(self, control: Control) -> tuple[int, ...]:
        ids, rules = control.to_fence(), self.rules
        if rules.no_fencing:
            ids = []
        if rules.fence_previous_only:
            ids = [(generation, lane) for generation, lane in ids if generation == control.newest - 1]
        if rules.fence_first_lane_only:
            ids = [(generation, lane) for generation, lane in ids if lane == 0]
        return tuple(ID[at] for at in ids)

    def _fence_next(self, world: World, number: int, changer: Changer) -> Iterator[Step[World]]:
        """InitProducerId under a lane's id; over an open transaction it aborts it and is asked again."""
        holder = changer.left[0]
        phase = world.txns[holder].phase
        label = f"changer {number} fences {name(holder)}"
        verified = not self.rules.no_partition_verification
        if phase == w.OPEN:
            yield f"{label}: aborts", fence(w.abort(world, holder), holder, -1, verified=verified)
        elif phase == w.NONE:
            rest = changer._replace(left=changer.left[1:])
            yield label, self._set(fence(world, holder, -1, verified=verified), number, rest)

    def _finish(self, world: World, number: int, changer: Changer) -> Iterator[Step[World]]:
        """Write `closed` for the generations before and `open` for the new one, in one transaction."""
        control = self._fold(world.log[: changer.seen])
        if control is None:
            yield f"changer {number} cannot read the control topic", self._set(world, number, Changer())
        elif control.preparing:
            yield self._write(world, number, tuple(map(record, control.finish(0, self._start(world)))), Changer())
        elif self.rules.fence_before_preparing:
            yield self._write(world, number, (self._prepared(control, number),), Changer(WRITTEN, changer.seen))
        else:  # no `preparing` of its own: both records at once, so that the topic stays readable
            prepared = self._prepare(control, number)
            records = (prepared, *control.apply(prepared).finish(0, self._start(world)))
            yield self._write(world, number, tuple(map(record, records)), Changer())

    def _start(self, world: World) -> int | None:
        """`start: latest`, resolved before `open` is written; without growth the source is copied from 0 on."""
        if self.rules.resolve_at_admission:
            return None
        return world.end if world.owed < 0 else 0

    def _write(self, world: World, number: int, records: tuple[Record, ...], then: Changer) -> Step[World]:
        """Records and EndTxn leave; they arrive in this order, or not at all."""
        after = world._replace(notes=w.put(world.notes, number, (records, None)))
        return f"changer {number} sends {records}", self._set(after, number, then)

    def _set(self, world: World, number: int, changer: Changer) -> World:
        return world._replace(changers=w.put(world.changers, number, changer))
