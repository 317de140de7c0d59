"""Producer sessions in the workers' model: initialise, check the generation, read the position, copy the record."""

from __future__ import annotations

from collections.abc import Iterator

from replicator.workers.lane_stages import LaneEvent
from tests.model.explore import Bad, Step
from tests.model.workers import world as w
from tests.model.workers.acts import Acts
from tests.model.workers.world import Id, Lane, Worker, World, put


class LaneSteps(Acts):
    """All that lanes do."""

    def lane_steps(self, world: World, number: int) -> Iterator[Step[World]]:
        """Every step that a lane of a worker can do next. Raises Bad where a property breaks."""
        worker = world.workers[number]
        if worker.process in (w.DEAD, w.FROZEN):
            return
        for lane, state in enumerate(worker.lanes):
            label = f"worker {number}, lane {worker.generation}.{lane}"
            if state.stage in w.MAY_INITIALISE and not state.session and self._permitted(state):
                if lane == worker.broken:
                    yield f"{label}: can't be run here", self.event(world, number, lane, LaneEvent.BROKEN, label)
                else:
                    what = f"{label}: initialises"
                    yield what, self.initialise(world, number, lane, what)
            if state.session:
                yield from self._session(world, number, worker, lane, state, label)

    def _permitted(self, state: Lane) -> bool:
        """Whether the group's thread still has the lane: it says so itself, before a lane that it gives back can be
        given to another worker."""
        return not state.given_back or self.rules.permission_outlives_revoke

    def _session(
        self, world: World, number: int, worker: Worker, lane: int, state: Lane, label: str
    ) -> Iterator[Step[World]]:
        at = self.id_of(worker.generation, lane)
        if world.ids[at].holder != number:
            what = f"{label}: learns that it was fenced"
            yield what, self.session_ended(world, number, lane, LaneEvent.FENCED, what)
            return
        if lane == worker.broken:
            what = f"{label}: can't be run here any more"
            yield what, self.session_ended(world, number, lane, LaneEvent.BROKEN, what)
            return
        if not world.clusters:
            what = f"{label}: a cluster is away"
            yield what, self.session_ended(world, number, lane, LaneEvent.FAILED, what)
            return
        if state.session == w.INITIALISED:
            yield from self._start(world, number, worker, lane, state, label)
        elif state.session == w.COPYING and self._copies(worker, number, lane) and state.position < w.RECORDS:
            sent = self.set_lane(world, number, lane, state._replace(session=w.SENT))
            opened = put(sent.ids, at, Id(number, state.position))
            yield f"{label}: sends record {state.position}", sent._replace(ids=opened)
        elif state.session == w.SENT:
            yield from self._end(world, number, lane, state, at, label)

    def _copies(self, worker: Worker, number: int, lane: int) -> bool:
        """Whether the partition lies in this lane: the last one, as the generation is cut, not as the file says."""
        lanes = 2 - self.files[number] if self.rules.runs_own_file else len(worker.lanes)
        return lane == lanes - 1

    def _start(
        self, world: World, number: int, worker: Worker, lane: int, state: Lane, label: str
    ) -> Iterator[Step[World]]:
        """Check the generation, then read the position, stable: while none hangs on an open transaction."""
        newest = world.log[-1]
        unchecked = self.rules.early_unchecked and state.stage == w.DETACHED
        if not unchecked and (newest.number, newest.phase) != (worker.generation, "open"):
            what = f"{label}: its generation isn't open"
            yield what, self.session_ended(world, number, lane, LaneEvent.FAILED, what)
        elif not self._copies(worker, number, lane):
            copying = state._replace(session=w.COPYING, position=w.RECORDS)
            yield f"{label}: has nothing to copy", self.set_lane(world, number, lane, copying)
        elif all(it.record < 0 for it in world.ids):
            copying = state._replace(session=w.COPYING, position=world.copied)
            yield f"{label}: reads position {world.copied}", self.set_lane(world, number, lane, copying)

    def _end(self, world: World, number: int, lane: int, state: Lane, at: int, label: str) -> Iterator[Step[World]]:
        done = self.commit(world, at, f"{label}: EndTxn")
        after = state._replace(session=w.COPYING, position=state.position + 1)
        yield f"{label}: ends its transaction", self.set_lane(done, number, lane, after)
        if world.air == w.NOBODY and "reply" in self.kinds and world.disturbances:
            what = f"!{label}: waits for the answer to its EndTxn in vain"
            gone = self.disturbed(world)._replace(air=at)
            yield what, self.session_ended(gone, number, lane, LaneEvent.FAILED, what)

    def commit(self, world: World, at: int, label: str) -> World:
        """EndTxn reaches the coordinator: a reader of the target sees the record. Raises Bad if it was there already,
        or one before it is not."""
        record = world.ids[at].record
        if record != world.copied:
            raise Bad("doubled" if record < world.copied else "lost", label)
        return world._replace(copied=record + 1, ids=put(world.ids, at, world.ids[at]._replace(record=-1)))

    def broker_steps(self, world: World) -> Iterator[Step[World]]:
        """A late EndTxn arrives, an open transaction times out: its holder is fenced then."""
        if world.air != w.NOBODY:
            after = world._replace(air=w.NOBODY)
            if world.ids[world.air].record >= 0:
                yield "broker: a late EndTxn arrives", self.commit(after, world.air, "broker: a late EndTxn arrives")
            else:
                yield "broker: a late EndTxn is refused", after
        for at, it in enumerate(world.ids):
            if it.record >= 0 and self._left(world, at, it):
                after = world._replace(ids=put(world.ids, at, Id()), air=w.NOBODY if world.air == at else world.air)
                yield "broker: a transaction times out", after

    def _left(self, world: World, at: int, it: Id) -> bool:
        """Whether nobody is at an open transaction: its process is gone, or stopped, or has given it up."""
        if it.holder == w.NOBODY:
            return True
        worker = world.workers[it.holder]
        if worker.process in (w.DEAD, w.FROZEN) or worker.generation != at // 2 + 1:
            return True
        lane = at % 2
        return lane >= len(worker.lanes) or worker.lanes[lane].session != w.SENT
