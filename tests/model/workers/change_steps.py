"""Changes of the generation in the workers' model: a worker proposes its file, follows another, or finishes a change.

File 0 has two lanes, file 1 has one. A step of a change is the write of a record, or the
fencing of one id; the generation model has the messages in between.
"""

from __future__ import annotations

from collections.abc import Iterator

from replicator.workers.settings import FileDecision, OpenSettings, OwnFile, Runs, decide
from tests.model.explore import Bad, Step
from tests.model.workers import world as w
from tests.model.workers.acts import Acts
from tests.model.workers.world import GenerationRecord, Id, Worker, World, put

DECIDED, HOLDING, FENCING = 1, 2, 3
LANES = (2, 1)
"""Of each file."""


class ChangeSteps(Acts):
    """All that workers do with the control topic."""

    def change_steps(self, world: World, number: int) -> Iterator[Step[World]]:
        """Every step of a worker that reads or writes the control topic. Raises Bad where a property breaks."""
        worker = world.workers[number]
        if worker.process != w.UP:
            return
        if worker.change:
            yield from self._change(world, number, worker)
            return
        if worker.waits:
            if not self._at_it(world, number):
                yield f"worker {number} has waited", self.set(world, number, worker._replace(waits=False))
            return
        newest = world.log[-1]
        if newest.phase == "preparing":
            yield from self._half_done(world, number)
            return
        if newest.number == worker.generation and not self.rules.proposes_any_time:
            return
        found = self.decision(world, number, worker)
        if found is FileDecision.PROPOSE and newest.number < len(world.ids) // 2:
            yield f"worker {number} wants to propose its file", self.set(world, number, worker._replace(change=DECIDED))
        elif found is FileDecision.PROPOSE:
            raise Bad("files take turns", f"worker {number} proposes its file again")
        elif found.runs and newest.number != worker.generation:
            after = self.drop(world, number, newest.number)
            yield f"worker {number} follows generation {newest.number}: {found.value}", after

    def follows(self, world: World, number: int) -> World:
        """A worker that starts reads the control topic, and follows it if it has nothing to propose."""
        newest = world.log[-1]
        if newest.phase == "open" and self.decision(world, number, world.workers[number]).runs:
            return self.drop(world, number, newest.number)
        return world

    def decision(self, world: World, number: int, worker: Worker) -> FileDecision:
        """The program's own decision."""
        newest, rules, own = world.log[-1], self.rules, self.files[number]
        runs = Runs.JOB if newest.job and not rules.replaces_jobs else Runs.LIVE
        proposed = set() if rules.proposes_always or rules.proposes_any_time else {it.file for it in world.log}
        return decide(
            OpenSettings(runs=runs, hash=str(newest.file)),
            {str(file) for file in proposed},
            OwnFile(hash=str(own)),
            at_start=not worker.generation or rules.proposes_any_time,
        )

    def _hold(self, world: World, number: int) -> Step[World]:
        """Initialise the control id: whoever has it is fenced, and may be at a change."""
        label = f"worker {number} initialises the control id"
        if self._at_it(world, number):
            world = world._replace(takeovers=world.takeovers + 1)
            if world.takeovers > len(world.workers) + 1:
                raise Bad("duel of changers", label)
        held = self.set(world, number, world.workers[number]._replace(change=HOLDING, left=(), opens=w.NOBODY))
        return label, held._replace(control=number)

    def _at_it(self, world: World, number: int) -> bool:
        holder = world.control
        if holder in (w.NOBODY, number):
            return False
        return world.workers[holder].process == w.UP and world.workers[holder].change >= HOLDING

    def _half_done(self, world: World, number: int) -> Iterator[Step[World]]:
        """Finish what somebody else has begun, if that one isn't at it: then ten seconds pass without an end."""
        if self._at_it(world, number) and not self.rules.finishes_at_once:
            return
        if not self.rules.only_its_beginner_finishes:
            yield self._hold(world, number)

    def _change(self, world: World, number: int, worker: Worker) -> Iterator[Step[World]]:
        if worker.change == DECIDED:
            yield self._hold(world, number)
            return
        if world.control != number and (worker.change == HOLDING or not worker.left):  # its write would be refused
            waits = not self.rules.fenced_changer_insists
            after = worker._replace(change=0, left=(), opens=w.NOBODY, waits=waits)
            yield f"worker {number}: the control id is another's now", self.set(world, number, after)
            return
        if worker.change == HOLDING:
            yield self._decide_again(world, number, worker)
        elif worker.left:
            at = worker.left[0]
            fenced = put(world.ids, at, Id())
            rest = self.set(world, number, worker._replace(left=worker.left[1:]))
            air = w.NOBODY if world.air == at else world.air
            yield f"worker {number} fences id {at // 2 + 1}.{at % 2}", rest._replace(ids=fenced, air=air)
        else:
            yield self._open(world, number, worker)

    def _decide_again(self, world: World, number: int, worker: Worker) -> Step[World]:
        """Read the control topic under the control id, and decide anew."""
        newest = world.log[-1]
        if newest.phase == "preparing":
            opens = self.files[number] if self.rules.finishes_with_own_file else newest.file
            left = () if self.rules.finishes_unfenced else self._to_fence(world)
            finishing = worker._replace(change=FENCING, left=left, opens=opens)
            return f"worker {number} goes on with generation {newest.number}", self.set(world, number, finishing)
        found = FileDecision.PROPOSE if self.rules.decides_once else self.decision(world, number, worker)
        if found is not FileDecision.PROPOSE:
            return f"worker {number} has nothing to propose", self.set(world, number, worker._replace(change=0))
        label, own = f"worker {number} prepares a generation", self.files[number]
        if newest.job:
            raise Bad("a job is cut short", label)
        if newest.file == own:
            raise Bad("two generations for one file", label)
        if newest.number >= len(world.ids) // 2:
            raise Bad("files take turns", label)
        prepared = GenerationRecord(newest.number + 1, "preparing", LANES[own], own)
        world = world._replace(log=(*world.log, prepared))
        changing = worker._replace(change=FENCING, left=self._to_fence(world), opens=own)
        return f"{label}: {prepared.number} with {prepared.lanes} lanes", self.set(world, number, changing)

    def _to_fence(self, world: World) -> tuple[int, ...]:
        return tuple(
            self.id_of(it.number, lane) for it in world.log if it.phase != "closed" for lane in range(it.lanes)
        )

    def _open(self, world: World, number: int, worker: Worker) -> Step[World]:
        """Write `closed` for those before and `open` for the new one, in one transaction."""
        newest, label = world.log[-1], f"worker {number} opens generation {len(world.log)}"
        if newest.phase != "preparing":
            return f"{label}: it is open", self.set(world, number, worker._replace(change=0, opens=w.NOBODY))
        if worker.opens != newest.file:
            raise Bad("a proposed file is dropped", label)
        log = (*(it._replace(phase="closed") for it in world.log[:-1]), newest._replace(phase="open"))
        return label, self.set(world, number, worker._replace(change=0, opens=w.NOBODY))._replace(log=log)

    def job_steps(self, world: World) -> Iterator[Step[World]]:
        """A job hands over: the daemon's generation opens, with the settings from before."""
        newest = world.log[-1]
        if newest.job and newest.phase == "open" and newest.number < len(world.ids) // 2:
            closed = newest._replace(phase="closed")
            live = GenerationRecord(newest.number + 1, "open", newest.lanes, newest.file)
            yield "the job hands over", world._replace(log=(*world.log[:-1], closed, live))
