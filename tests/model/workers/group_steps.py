"""The group in the workers' model: members come and go, lanes are given and taken, proofs are asked and answered.

A label that begins with `!` is a disturbance: the workers must come to rest without another one.
"""

from __future__ import annotations

from collections.abc import Iterator

from replicator.workers.lane_stages import LaneEvent
from replicator.workers.proofs import ProofAnswer, ProofResult, result_of
from tests.model.explore import Step
from tests.model.workers import world as w
from tests.model.workers.acts import Acts
from tests.model.workers.world import IDLE, Lane, Worker, World, put


class GroupSteps(Acts):
    """All that the coordinator does, and what it makes of workers."""

    def coordinator_steps(self, world: World) -> Iterator[Step[World]]:
        """Expel who is away, take lanes from who has too many, give them to who has too few."""
        if not world.coordinator:
            return
        for number, worker in enumerate(world.workers):
            if world.members[number] and worker.process != w.UP:  # it has left while the coordinator was down, too
                yield f"coordinator: worker {number} is expelled", self.expel(world, number)
        for lanes in {self.lanes_of(world, worker) for worker in world.workers if worker.joined}:
            yield from self._rebalance(world, lanes)

    def _rebalance(self, world: World, lanes: int) -> Iterator[Step[World]]:
        subscribed = [
            number
            for number, worker in enumerate(world.workers)
            if world.members[number] and worker.process == w.UP and self.lanes_of(world, worker) == lanes
        ]
        if not subscribed:
            return
        slots = [self.slot(lanes, lane) for lane in range(lanes)]
        count = {number: sum(world.owners[slot] == number for slot in slots) for number in subscribed}
        least, most = min(count.values()), max(count.values())
        for lane, slot in enumerate(slots):
            owner = world.owners[slot]
            if owner == w.NOBODY:
                for number in subscribed:
                    if count[number] == least and world.workers[number].joined:
                        after = self._give(world, number, lane, slot)
                        yield f"coordinator: worker {number} gets lane {lane}", after
            elif owner in count and count[owner] == most > least + 1 and world.workers[owner].joined:
                yield from self._take(world, owner, lane, slot)

    def _give(self, world: World, number: int, lane: int, slot: int) -> World:
        after = world._replace(owners=put(world.owners, slot, number))
        after = self.event(after, number, lane, LaneEvent.ASSIGNED)
        state = after.workers[number].lanes[lane]
        return self.set_lane(after, number, lane, state._replace(given_back=False))

    def _take(self, world: World, owner: int, lane: int, slot: int) -> Iterator[Step[World]]:
        """The group's thread gives a lane back; the flow's thread hears of it at once, or later."""
        freed = world._replace(owners=put(world.owners, slot, w.NOBODY))
        yield (
            f"coordinator: lane {lane} is revoked from worker {owner}",
            self.event(freed, owner, lane, LaneEvent.REVOKED),
        )
        if not self.whole(world, owner, lane):
            return
        state = freed.workers[owner].lanes[lane]._replace(given_back=True)
        yield (
            f"coordinator: lane {lane} is revoked from worker {owner}, which hears of it later",
            self.set_lane(freed, owner, lane, state),
        )

    def member_steps(self, world: World, number: int) -> Iterator[Step[World]]:
        """What a worker learns of the group."""
        worker = world.workers[number]
        if worker.process == w.AWAY:
            yield from self._come_back(world, number, worker)
            return
        if worker.process != w.UP or not worker.generation:
            return
        if not worker.joined and world.coordinator:
            again = self.expel(world, number) if world.members[number] else world
            joined = self.set(again, number, again.workers[number]._replace(joined=True, new=False))
            yield f"worker {number} joins", joined._replace(members=put(joined.members, number, True))
        elif worker.joined and not (world.members[number] and world.coordinator):
            label = f"worker {number}: its membership is lost"
            yield label, self.lost(world, number, label)
        for lane, state in enumerate(worker.lanes):
            yield from self._lane_of_member(world, number, worker, lane, state)

    def _lane_of_member(
        self, world: World, number: int, worker: Worker, lane: int, state: Lane
    ) -> Iterator[Step[World]]:
        if not self.whole(world, number, lane):
            return
        who = f"worker {number}, lane {lane}"
        if state.given_back:
            yield f"{who}: hears that it is revoked", self.event(world, number, lane, LaneEvent.REVOKED)
        owner = world.owners[self.slot(len(worker.lanes), lane)]
        if state.stage in (w.DETACHED, w.EARLY_STARTING) and worker.joined and owner not in (w.NOBODY, number):
            yield f"{who}: is left out of an assignment", self.event(world, number, lane, LaneEvent.LEFT_OUT)
        if state.stage == w.OUTGOING and worker.joined and not self.rules.outgoing_has_no_end:
            yield f"{who}: its time is over", self.event(world, number, lane, LaneEvent.DUE)
        if state.proof == w.ASKED and world.coordinator:
            answer = w.YES if worker.joined and world.members[number] else w.NO_MEMBER
            reached = self.set_lane(world, number, lane, state._replace(proof=answer))
            yield f"{who}: its proof reaches the coordinator: {w.ANSWERS[answer]}", reached
        elif state.proof > w.ASKED:
            yield self._answer(world, number, lane, state, who)
        if state.late:
            counted = self.set_lane(world, number, lane, state._replace(late=False))
            yield f"{who}: a former proof is answered", self.event(counted, number, lane, LaneEvent.PROVED)

    def _answer(self, world: World, number: int, lane: int, state: Lane, who: str) -> Step[World]:
        """The program's own judgement of the answer."""
        rules, label = self.rules, f"{who}: its proof is answered"
        same = state.proof != w.YES_OF_FORMER_ID or rules.ignore_member_id
        answer = ProofAnswer(
            lane=lane,
            number=1,
            error="UNKNOWN_MEMBER_ID" if state.proof == w.NO_MEMBER else "",
            member_before="a",
            member_after="a" if same else "b",
            in_assignment=not state.given_back or rules.membership_is_enough,
        )
        result = result_of(answer)
        if result is ProofResult.NO_MEMBER:
            return label, self.lost(world, number, label)
        event = LaneEvent.PROVED if result is ProofResult.PROVED else LaneEvent.UNPROVED
        return f"{label}: {result.name}", self.event(world, number, lane, event, label)

    def _come_back(self, world: World, number: int, worker: Worker) -> Iterator[Step[World]]:
        """Its back-off is longer than another worker needs to get the lane."""
        lane = worker.broken
        if lane != w.NOBODY and lane < len(worker.lanes):
            owner = world.owners[self.slot(len(worker.lanes), lane)]
            others = any(it.process == w.UP for other, it in enumerate(world.workers) if other != number)
            if others and owner in (w.NOBODY, number):
                return
        back = self.set(world._replace(takeovers=0), number, worker._replace(process=w.UP))
        yield f"worker {number} comes back", back

    def recoveries(self, world: World) -> Iterator[Step[World]]:
        """What has been away comes back; takeovers are counted anew."""
        rested = world._replace(takeovers=0)
        if not world.coordinator:
            yield "the coordinator is back", rested._replace(coordinator=True)
        if not world.clusters:
            yield "the clusters are back", rested._replace(clusters=True)
        for number, worker in enumerate(world.workers):
            if worker.process == w.FROZEN:
                thawed = self.set(rested, number, worker._replace(process=w.UP))
                yield f"worker {number} goes on after SIGCONT", thawed

    def disturbances(self, world: World) -> Iterator[Step[World]]:
        """What may happen to workers and their clusters at any time."""
        if world.disturbances == 0:
            return
        disturbed = self.disturbed(world)
        kinds = self.kinds
        if world.coordinator and "coordinator" in kinds:
            yield "!the coordinator goes", disturbed._replace(coordinator=False)
        if world.clusters and "clusters" in kinds:
            yield "!the clusters go", disturbed._replace(clusters=False)
        for number, worker in enumerate(world.workers):
            if worker.process == w.DEAD:
                started = self.set(disturbed, number, Worker(process=w.UP, new="early" in kinds))
                yield f"!worker {number} starts", self.follows(started, number)
                continue
            if "kill" in kinds:
                yield f"!worker {number} is killed", self.dies(disturbed, number)
            if worker.process == w.UP:
                yield from self._of_one_at_work(disturbed, number, worker)

    def _of_one_at_work(self, world: World, number: int, worker: Worker) -> Iterator[Step[World]]:
        if "freeze" in self.kinds and all(it.process != w.FROZEN for it in world.workers):
            frozen = self.set(world, number, worker._replace(process=w.FROZEN))
            yield f"!worker {number} is stopped by SIGSTOP", frozen
        if "leave" in self.kinds and worker.generation and not worker.change:
            yield f"!worker {number} is asked to stop", self._leave(world, number)
        if "broken" in self.kinds and all(it.broken == w.NOBODY for it in world.workers):
            lane = self.last_lanes(world) - 1
            yield f"!worker {number} can't run lane {lane}", self.set(world, number, worker._replace(broken=lane))

    def dies(self, world: World, number: int) -> World:
        """The process is gone, and all that it knew; the coordinator doesn't know that yet."""
        return self.set(world, number, Worker())

    def _leave(self, world: World, number: int) -> World:
        """A planned stop: lanes go on until they are fenced, or their short time is over."""
        if world.coordinator:
            world = self.expel(world, number)
        worker = world.workers[number]._replace(process=w.LEAVING, joined=False)
        return self.every_lane(self.set(world, number, worker), number, LaneEvent.REVOKED)

    def leaving_steps(self, world: World, number: int) -> Iterator[Step[World]]:
        """A worker that stops: each lane's time is over some time, then the process is."""
        worker = world.workers[number]
        if worker.process != w.LEAVING:
            return
        for lane, state in enumerate(worker.lanes):
            if state.session:
                yield f"worker {number}, lane {lane}: its time is over", self.event(world, number, lane, LaneEvent.DUE)
        if not any(state.session for state in worker.lanes):
            yield f"worker {number} has stopped", self.dies(world, number)

    def early_steps(self, world: World, number: int) -> Iterator[Step[World]]:
        """A worker that has just started finds nobody else alive, and opens its lanes at once."""
        worker = world.workers[number]
        if (
            worker.process != w.UP
            or not worker.generation
            or worker.joined
            or worker.lanes != (IDLE,) * len(worker.lanes)
        ):
            return
        others = any(
            it.process != w.DEAD and world.members[other] for other, it in enumerate(world.workers) if other != number
        )
        if (
            "early" in self.kinds
            and world.coordinator
            and (not others or self.rules.early_beside_others)
            and worker.new
        ):
            opened = self.set(world, number, worker._replace(new=False))
            yield f"worker {number} opens its lanes early", self.every_lane(opened, number, LaneEvent.EARLY)
