"""A worker in the generation model: the lane's numbered steps, each of which can be its last.

OFF → CHOSEN (has seen an open generation) → FENCED (InitProducerId) → WAITING (has taken the control topic's end) →
CHECKED → CLAIMING (has read the position) → CLAIMED (has sent it again) → COPYING → SENT → STORED → COPYING.
"""

from __future__ import annotations

from collections.abc import Iterator

from replicator.state.control_topic import Control
from replicator.state.generation import Generation
from tests.model import world as w
from tests.model.broker_steps import fence, holder_of, name
from tests.model.control_log import fold, stored_start
from tests.model.explore import Step
from tests.model.rules import Rules
from tests.model.world import Worker, World

OFF, CHOSEN, EARLY, FENCED, WAITING, CHECKED, CLAIMING, CLAIMED, COPYING, SENT, STORED = range(11)
SENDS = {  # the request that may be in the air when a worker dies there, and what it adds to its position
    CLAIMING: ("position", 0),
    CLAIMED: ("end", 0),
    COPYING: ("produce", 0),
    SENT: ("position", 1),
    STORED: ("end", 0),
}


class WorkerSteps:
    """All steps of both workers under some rules."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def steps(self, world: World, number: int) -> Iterator[Step[World]]:
        """Every step that worker `number` can do next. Raises Bad where a property breaks."""
        worker = world.workers[number]
        if worker.at == OFF:
            yield from self._choose(world, number)
            return
        yield from self._crash(world, number, worker)
        if worker.at in (CHOSEN, EARLY):
            yield from self._before_fence(world, number, worker)
        elif worker.at in (FENCED, WAITING):
            yield from self._check(world, number, worker)
        elif worker.at == CHECKED:
            yield from self._read_position(world, number, worker, CLAIMING)
        elif worker.at in (CLAIMING, CLAIMED):
            yield from self._claim(world, number, worker)
        else:
            yield from self._copy(world, number, worker)

    def _crash(self, world: World, number: int, worker: Worker) -> Iterator[Step[World]]:
        """SIGKILL, or giving up on an answer: both lose what the process knows, and may leave a request behind."""
        off = self._set(world, number, Worker())
        yield f"{_who(worker)} dies", off
        if world.air is None and worker.at in SENDS and (worker.at != COPYING or worker.position < world.end):
            kind, more = SENDS[worker.at]
            air = (kind, self._id(number, worker), worker.position + more, False)
            yield f"{_who(worker)} dies with its {kind} in the air", off._replace(air=air)

    def _choose(self, world: World, number: int) -> Iterator[Step[World]]:
        generation = self._startable(fold(world.log[: world.stable]))
        if generation is not None:
            chosen = Worker(CHOSEN, generation.number, generation.lanes - 1)
            yield f"a worker starts, sees generation {generation.number}", self._set(world, number, chosen)

    def _startable(self, control: Control | None) -> Generation | None:
        if control is None:
            return None
        return control.open or (control.preparing if self.rules.start_under_preparing else None)

    def _before_fence(self, world: World, number: int, worker: Worker) -> Iterator[Step[World]]:
        rules = self.rules
        if worker.at == CHOSEN and rules.position_before_fence:
            yield from self._read_position(world, number, worker, EARLY)
        elif worker.at == CHOSEN and rules.check_before_fence:
            if world.stable == len(world.log):
                yield self._checked(world, number, worker, world.stable, EARLY)
        else:
            yield from self._initialise(world, number, worker)

    def _initialise(self, world: World, number: int, worker: Worker) -> Iterator[Step[World]]:
        """InitProducerId: over an open transaction it aborts it and is asked again; refused while one is ending."""
        holder, rules = self._id(number, worker), self.rules
        phase = world.txns[holder].phase
        if phase == w.OPEN:
            yield f"{_who(worker)} initialises: aborts", self._fence(w.abort(world, holder), holder, number)
        elif phase == w.NONE:
            at = CHECKED if rules.no_check or rules.check_before_fence else FENCED
            after = self._set(self._fence(world, holder, number), number, worker._replace(at=at))
            yield f"{_who(worker)} initialises {name(holder)}", after

    def _check(self, world: World, number: int, worker: Worker) -> Iterator[Step[World]]:
        """Take the read_uncommitted end; once everything below it is decided, read read_committed up to it."""
        end = worker.end
        if worker.at == FENCED:
            end = world.stable if self.rules.check_stable_end_only else len(world.log)
        if end <= world.stable:
            yield self._checked(world, number, worker._replace(end=-1), end, CHECKED)
        elif worker.at == FENCED:
            waiting = worker._replace(at=WAITING, end=end)
            yield f"{_who(worker)} takes the control topic's end {end}", self._set(world, number, waiting)

    def _checked(self, world: World, number: int, worker: Worker, end: int, then: int) -> Step[World]:
        generation = self._startable(fold(world.log[:end]))
        passed = generation is not None and generation.number == worker.generation
        after = worker._replace(at=then) if passed else Worker()
        return f"{_who(worker)} checks the generation: {passed}", self._set(world, number, after)

    def _read_position(self, world: World, number: int, worker: Worker, then: int) -> Iterator[Step[World]]:
        if worker.position >= 0:
            yield f"{_who(worker)} takes what it read before", self._set(world, number, worker._replace(at=then))
        elif self.rules.unstable_read or not w.unstable(world):
            offset, generation = world.position
            if not generation:
                stored = stored_start(fold(world.log[: world.stable]))
                offset = world.end if self.rules.resolve_at_admission else max(0, stored)
            newer = generation > worker.generation and not self.rules.ignore_newer_position
            after = Worker() if newer else worker._replace(at=then, position=offset)
            yield f"{_who(worker)} reads position {offset} of generation {generation}", self._set(world, number, after)

    def _claim(self, world: World, number: int, worker: Worker) -> Iterator[Step[World]]:
        """Commit the position again with oneself as owner."""
        holder = self._id(number, worker)
        if self.rules.position_outside_before or self.rules.position_outside_after:
            yield f"{_who(worker)} seeks", self._set(world, number, worker._replace(at=COPYING))
        elif worker.at == CLAIMING:
            if world.txns[holder].phase == w.NONE:
                claimed = self._set(w.store(world, holder, worker.position), number, worker._replace(at=CLAIMED))
                yield f"{_who(worker)} sends position {worker.position} again", claimed
        else:
            label = f"{_who(worker)} ends its claim"
            yield label, self._set(w.commit(world, holder, label), number, worker._replace(at=COPYING))

    def _copy(self, world: World, number: int, worker: Worker) -> Iterator[Step[World]]:
        holder, at = self._id(number, worker), worker.position
        if worker.at == COPYING:
            if at < world.end and world.txns[holder].phase == w.NONE:
                yield f"{_who(worker)} sends record {at}", self._send(world, number, worker, holder)
        elif worker.at == SENT:
            yield from self._store(world, number, worker, holder)
            after = worker._replace(at=COPYING, position=at + 1 if self.rules.no_rewind_after_abort else at)
            yield f"{_who(worker)} aborts", self._set(w.abort(world, holder), number, after)
        else:
            yield from self._end(world, number, worker, holder)

    def _send(self, world: World, number: int, worker: Worker, holder: int) -> World:
        if self.rules.position_outside_before:
            world = world._replace(position=(worker.position + 1, worker.generation))
        return self._set(w.append(world, holder, worker.position), number, worker._replace(at=SENT))

    def _store(self, world: World, number: int, worker: Worker, holder: int) -> Iterator[Step[World]]:
        label, next_position = f"{_who(worker)} sends position {worker.position + 1}", worker.position + 1
        if self.rules.position_outside_before:
            yield label, self._set(world, number, worker._replace(at=STORED))
        elif self.rules.position_outside_after:
            ended = w.commit(world, holder, label)
            yield f"{_who(worker)} ends, then dies", self._set(ended, number, Worker())
            after = ended._replace(position=(next_position, worker.generation))
            yield label, self._set(after, number, worker._replace(at=COPYING, position=next_position))
        else:
            yield label, self._set(w.store(world, holder, next_position), number, worker._replace(at=STORED))

    def _end(self, world: World, number: int, worker: Worker, holder: int) -> Iterator[Step[World]]:
        label, after = f"{_who(worker)} ends its transaction", worker._replace(at=COPYING, position=worker.position + 1)
        yield label, self._set(w.commit(world, holder, label), number, after)
        if self.rules.resume_after_unknown_end and world.air is None:
            resumed = self._set(w.abort(world, holder), number, worker._replace(at=COPYING))
            air = ("end", holder, worker.position, False)
            yield f"{_who(worker)} gives up on its EndTxn and aborts", resumed._replace(air=air)

    def _fence(self, world: World, holder: int, number: int) -> World:
        rules = self.rules
        return fence(world, holder, number, by_host=rules.id_by_host, verified=not rules.no_partition_verification)

    def _id(self, number: int, worker: Worker) -> int:
        return holder_of(number, worker, self.rules.id_by_host)

    def _set(self, world: World, number: int, worker: Worker) -> World:
        return world._replace(workers=w.put(world.workers, number, worker))


def _who(worker: Worker) -> str:
    return f"worker {worker.generation}.{worker.lane}"
