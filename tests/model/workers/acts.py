"""What an event does to a lane in the workers' model: the program's own table, and what its effects do to the world."""

from __future__ import annotations

from replicator.workers.lane_stages import LaneEffect, LaneEvent
from tests.model.explore import Bad
from tests.model.workers import world as w
from tests.model.workers.rules import WorkerRules
from tests.model.workers.world import IDLE, Id, Lane, Worker, World, put, table

TAKEN = frozenset({LaneEvent.REVOKED, LaneEvent.LOST, LaneEvent.LEFT_OUT, LaneEvent.STOP})


class Acts:
    """Changes of the world that several steps have in common."""

    def __init__(self, rules: WorkerRules, kinds: frozenset[str], files: tuple[int, ...], takeovers_max: int) -> None:
        """`kinds` of disturbances that there are; `files`: which file each worker has; more takeovers of a lane than
        `takeovers_max` after one disturbance are a duel."""
        self.rules, self.table, self.kinds, self.files = rules, table(rules), kinds, files
        self.takeovers_max = takeovers_max

    def id_of(self, generation: int, lane: int) -> int:
        """The place of a transactional id; generations count from 1."""
        return 2 * (generation - 1) + lane

    def lanes_of(self, world: World, worker: Worker) -> int:
        """How many lanes a worker runs."""
        return world.log[worker.generation - 1].lanes if worker.generation else 0

    def last_lanes(self, world: World) -> int:
        """How many lanes the newest generation has."""
        return world.log[-1].lanes

    def whole(self, world: World, number: int, lane: int) -> bool:
        """Whether a lane has all its stages: the one with the record. Others are only given and taken, so that there is
        something to share; lanes don't meet each other."""
        return lane == len(world.workers[number].lanes) - 1

    def slot(self, lanes: int, lane: int) -> int:
        """The place of a partition of the lanes topic; there is a topic for each number of lanes."""
        return lane if lanes == 2 else 2

    def set(self, world: World, number: int, worker: Worker) -> World:
        """With one worker replaced."""
        return world._replace(workers=put(world.workers, number, worker))

    def set_lane(self, world: World, number: int, lane: int, state: Lane) -> World:
        """With one lane replaced."""
        worker = world.workers[number]
        return self.set(world, number, worker._replace(lanes=put(worker.lanes, lane, state)))

    def event(self, world: World, number: int, lane: int, event: LaneEvent, label: str = "") -> World:
        """What an event does to a lane, and to the world by its effects."""
        worker = world.workers[number]
        if not self.whole(world, number, lane):
            return self._given_or_taken(world, number, lane, event)
        state = worker.lanes[lane]
        stage, effects = self.table[state.stage][event]
        if stage != w.PROVING and state.proof:
            late = state.late or (self.rules.any_proof and state.proof == w.YES)
            state = state._replace(proof=w.NO_PROOF, late=late)
        given_back = state.given_back and stage in w.ASSIGNED
        world = self.set_lane(world, number, lane, state._replace(stage=stage, given_back=given_back))
        for effect in effects:
            world = self._effect(world, number, lane, effect, label)
        return world

    def _given_or_taken(self, world: World, number: int, lane: int, event: LaneEvent) -> World:
        if event is LaneEvent.ASSIGNED:
            return self.set_lane(world, number, lane, Lane(w.RUNNING))
        return self.set_lane(world, number, lane, IDLE) if event in TAKEN else world

    def _effect(self, world: World, number: int, lane: int, effect: LaneEffect, label: str) -> World:
        state = world.workers[number].lanes[lane]
        if effect is LaneEffect.START:
            return self.event(world, number, lane, LaneEvent.CONNECTED, label)
        if effect in (LaneEffect.PROVE, LaneEffect.PROVE_LATER):
            if self.rules.no_proof:
                return self.event(world, number, lane, LaneEvent.PROVED, label)
            late = state.late or (self.rules.any_proof and state.proof == w.YES)
            return self.set_lane(world, number, lane, state._replace(proof=w.ASKED, late=late))
        if effect is LaneEffect.BACK_OFF:
            return self.event(world, number, lane, LaneEvent.DUE, label)
        if effect is LaneEffect.STOP:
            return self.event(self.end_session(world, number, lane), number, lane, LaneEvent.STOPPED, label)
        if effect is LaneEffect.LEAVE:
            return self.go_away(world, number, lane, label)
        return world

    def end_session(self, world: World, number: int, lane: int) -> World:
        """A producer session ends cleanly: its open transaction is aborted."""
        worker = world.workers[number]
        at = self.id_of(worker.generation, lane)
        if worker.lanes[lane].session == w.SENT and world.ids[at].holder == number:
            world = world._replace(ids=put(world.ids, at, Id(number)))
        return self.set_lane(world, number, lane, worker.lanes[lane]._replace(session=w.NONE, position=-1))

    def session_ended(self, world: World, number: int, lane: int, event: LaneEvent, label: str = "") -> World:
        """A producer session has ended by something: what it had open stays so."""
        state = world.workers[number].lanes[lane]._replace(session=w.NONE, position=-1)
        return self.event(self.set_lane(world, number, lane, state), number, lane, event, label)

    def expel(self, world: World, number: int) -> World:
        """The coordinator forgets a member. What it was asked for under that member id, it doesn't know."""
        worker = world.workers[number]
        after = {w.ASKED: w.NO_MEMBER, w.YES: w.YES_OF_FORMER_ID}
        lanes = tuple(lane._replace(proof=after.get(lane.proof, lane.proof)) for lane in worker.lanes)
        owners = tuple(w.NOBODY if owner == number else owner for owner in world.owners)
        world = self.set(world, number, worker._replace(lanes=lanes))
        return world._replace(members=put(world.members, number, False), owners=owners)

    def every_lane(self, world: World, number: int, event: LaneEvent, label: str = "") -> World:
        """The same event for each lane of a worker."""
        for lane in range(len(world.workers[number].lanes)):
            world = self.event(world, number, lane, event, label)
        return world

    def lost(self, world: World, number: int, label: str) -> World:
        """A worker learns that it is no member any more."""
        worker = world.workers[number]._replace(joined=False)
        before = [lane.session for lane in worker.lanes]
        world = self.every_lane(self.set(world, number, worker), number, LaneEvent.LOST, label)
        after = [lane.session for lane in world.workers[number].lanes]
        if not world.coordinator and any(was and not now for was, now in zip(before, after, strict=True)):
            raise Bad("copying stops", label)
        return world

    def go_away(self, world: World, number: int, lane: int, label: str) -> World:
        """A worker leaves the group for a cause of its own: its other lanes go on."""
        if world.coordinator:
            world = self.expel(world, number)
        worker = world.workers[number]._replace(process=w.AWAY, joined=False)
        world = self.every_lane(self.set(world, number, worker), number, LaneEvent.LOST, label)
        if all(it.process in (w.AWAY, w.DEAD) for it in world.workers) and worker.broken == w.NOBODY:
            raise Bad("everybody left", label)
        return world

    def follows(self, world: World, number: int) -> World:
        """What a worker reads of the control topic at its start, and does at once: see `change_steps`."""
        return world

    def drop(self, world: World, number: int, generation: int) -> World:
        """A worker takes up another generation: nothing of the former one goes on."""
        for lane in range(len(world.workers[number].lanes)):
            world = self.event(world, number, lane, LaneEvent.STOP)
        worker = world.workers[number]
        lanes, before = world.log[generation - 1].lanes, self.lanes_of(world, worker)
        if lanes != before and world.members[number]:
            world = self.expel(world, number)
        worker = world.workers[number]._replace(generation=generation, lanes=(IDLE,) * lanes)
        if lanes != before:
            worker = worker._replace(joined=False)
        return self.set(world, number, worker)

    def initialise(self, world: World, number: int, lane: int, label: str) -> World:
        """InitProducerId: whoever had the id is fenced, what it has open is aborted, what it has sent is refused."""
        worker = world.workers[number]
        at = self.id_of(worker.generation, lane)
        last = world.ids[at].holder
        world = world._replace(ids=put(world.ids, at, Id(number)), air=w.NOBODY if world.air == at else world.air)
        if last not in (w.NOBODY, number) and self._unplanned(world, last, number, lane):
            world = world._replace(takeovers=world.takeovers + 1)
            if world.takeovers > self.takeovers_max:
                raise Bad("duel", label)
        state = world.workers[number].lanes[lane]._replace(session=w.INITIALISED)
        return self.event(self.set_lane(world, number, lane, state), number, lane, LaneEvent.INITIALISED, label)

    def _unplanned(self, world: World, victim: int, number: int, lane: int) -> bool:
        """Whether a living worker is fenced whose group's thread has the lane, or whoever fences it hasn't. To fence a
        lane that was given back is a handover."""
        found, by = world.workers[victim], world.workers[number]
        if found.process == w.DEAD or found.generation != by.generation or not found.lanes[lane].session:
            return False
        theirs = found.lanes[lane].stage in w.ASSIGNED and not found.lanes[lane].given_back
        return theirs or by.lanes[lane].stage not in w.ASSIGNED

    def disturbed(self, world: World) -> World:
        """One more thing that nobody wanted: takeovers are counted from here on."""
        return world._replace(takeovers=0, disturbances=world.disturbances - (world.disturbances > 0))
