"""A worker of one flow as a member of its group, sans-I/O: events and the time go in, what is to be done comes out.

Its owner, the flow's thread, feeds it with what the group's consumer, the lanes and the control topic tell, calls
`tick` when `due_s` says so, and does what comes back, in that order. The tables are in `lane_stages` and
`worker_stages`; here are numbers of proofs, back-offs and times. All times are monotonic seconds.

Invariant: a lane is let initialise its transactional id only by a proof that was begun after the last doubt about its
membership. So each doubt gives the lane's proofs another number, and an answer to a former number counts as none.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from replicator.backoff import Backoff, Jitter
from replicator.workers.lane_stages import TRANSITIONS, LaneEffect, LaneEvent, LaneStage
from replicator.workers.proofs import ProofAnswer, ProofResult, result_of
from replicator.workers.worker_stages import WORKER_TRANSITIONS, WorkerEffect, WorkerEvent, WorkerStage

OUTGOING_S = 30.0
"""How long a lane goes on that was given to another worker."""
LEAVING_S = 5.0
"""The same where this worker stops."""
PROVE_AGAIN_S = 0.1
RESTART_S, RESTART_S_MAX = 0.05, 5.0
AWAY_S, AWAY_S_MAX = 5.0, 300.0


@dataclass(frozen=True, slots=True)
class LaneAction:
    """Something to do with one lane: START, PROVE (with the proof's number), FENCE or STOP."""

    lane: int
    effect: LaneEffect
    proof: int = 0


@dataclass(frozen=True, slots=True)
class WorkerAction:
    """Something to do with the membership: SUBSCRIBE, UNSUBSCRIBE or FINISHED."""

    effect: WorkerEffect


MembershipAction = LaneAction | WorkerAction


class _Lane:
    __slots__ = ("backoff", "due_s", "proof", "stage")

    def __init__(self, jitter: Jitter) -> None:
        self.stage = LaneStage.UNASSIGNED
        self.due_s: float | None = None
        self.proof = 0  # the number of the one that counts; each number is given once
        self.backoff = Backoff(RESTART_S, RESTART_S_MAX, jitter)


class Membership:
    """The lanes of a flow in one worker, for as long as their number stays the same.

    `may_initialise` is what a lane asks right before it does. The thread that owns the group's consumer has a say in
    it, too: from a rebalance callback on it says no for the lanes that this takes away, because the coordinator gives
    them to another worker as soon as the callback has returned, and the flow's thread may hear of it later.
    """

    def __init__(self, lanes: int, jitter: Jitter = random.random) -> None:
        self._jitter = jitter
        self._lanes = [_Lane(jitter) for _ in range(lanes)]
        self._backoff = Backoff(AWAY_S, AWAY_S_MAX, jitter)
        self._due_s: float | None = None
        self._proofs = 0
        self._alone = False
        self.has_assignment = False
        """Whether the group's last word is an assignment: none has come yet, or the membership was lost since."""
        self.stage = WorkerStage.CREATED
        self.standing_by = ""
        """Why it stands by; empty: it doesn't."""

    def lane_stage(self, lane: int) -> LaneStage:
        """Return where a lane stands."""
        return self._lanes[lane].stage

    def may_initialise(self, lane: int) -> bool:
        """Tell whether a lane may initialise its transactional id now, as far as this worker has heard."""
        return self._lanes[lane].stage.may_initialise

    @property
    def due_s(self) -> float | None:
        """When to call `tick` next; None: nothing waits for a time."""
        return min((at for at in (self._due_s, *(lane.due_s for lane in self._lanes)) if at is not None), default=None)

    @property
    def all_held(self) -> bool:
        """Whether the group has given it lanes, if only none, and each that is assigned has initialised its id."""
        return self.has_assignment and all(
            lane.stage is LaneStage.RUNNING for lane in self._lanes if lane.stage.assigned
        )

    def subscribe(self, now_s: float) -> list[MembershipAction]:
        """Take part: the generation is open, and this worker can follow its settings."""
        self.standing_by = ""
        return self._worker(WorkerEvent.SUBSCRIBE, now_s)

    def stand_by(self, reason: str, now_s: float) -> list[MembershipAction]:
        """Run nothing until `subscribe`, and say why."""
        self.standing_by = reason
        return self._worker(WorkerEvent.STAND_BY, now_s)

    def stop(self, now_s: float, *, alone: bool = False) -> list[MembershipAction]:
        """Leave for good. `alone`: the group has no other member, so no lane waits until it is fenced."""
        self._alone = alone
        return [*self._worker(WorkerEvent.STOP, now_s), *self._ended(now_s)]

    def open_early(self, now_s: float) -> list[MembershipAction]:
        """Note that the group was found empty, see `early`."""
        return self._all(LaneEvent.EARLY, now_s) if self.stage is WorkerStage.SUBSCRIBED else []

    def assigned(self, lanes: Collection[int], now_s: float) -> list[MembershipAction]:
        """Take this worker's whole assignment, after each rebalance that has brought one.

        What is not in it is another worker's, or soon will be. One that comes after the worker has left is none.
        """
        if self.stage is not WorkerStage.SUBSCRIBED:
            return []
        self.has_assignment = True
        done: list[MembershipAction] = []
        for number, lane in enumerate(self._lanes):
            if number in lanes and not lane.stage.assigned:
                done += self._lane(number, LaneEvent.ASSIGNED, now_s)
            elif number not in lanes:
                done += self._lane(number, LaneEvent.LEFT_OUT, now_s)
        return done

    def revoked(self, lanes: Iterable[int], now_s: float) -> list[MembershipAction]:
        """Note that the group takes lanes away, to give them to another worker."""
        return [action for lane in lanes for action in self._lane(lane, LaneEvent.REVOKED, now_s)]

    def lost(self, now_s: float) -> list[MembershipAction]:
        """Note that this worker is no member any more, and nobody knows who runs its lanes."""
        self.has_assignment = False
        return self._all(LaneEvent.LOST, now_s)

    def member_changed(self, now_s: float) -> list[MembershipAction]:
        """Note that the consumer has another member id."""
        return self._all(LaneEvent.DOUBTED, now_s)

    def proof_answered(self, answer: ProofAnswer, now_s: float) -> list[MembershipAction]:
        """Take the answer to a proof. One to a proof that counts no more is none."""
        if answer.number != self._lanes[answer.lane].proof:
            return []
        result = result_of(answer)
        if result is ProofResult.NO_MEMBER:
            return self.lost(now_s)
        return self._lane(answer.lane, LaneEvent.PROVED if result is ProofResult.PROVED else LaneEvent.UNPROVED, now_s)

    def lane_told(self, lane: int, event: LaneEvent, now_s: float) -> list[MembershipAction]:
        """Take what a lane says: CONNECTED, INITIALISED, or how it has ended."""
        return [*self._lane(lane, event, now_s), *self._ended(now_s)]

    def went_well(self, lane: int) -> None:
        """Note that a lane has committed: its next failure begins a new series. So does the worker's, if all its lanes
        run.
        """
        self._lanes[lane].backoff.reset()
        if self.all_held:
            self._backoff.reset()

    def changed(self, now_s: float) -> list[MembershipAction]:
        """Note that the flow has another generation, or other settings, with as many lanes: each ends, and starts anew
        if it is assigned. With another number of lanes the workers have another topic to share: this worker stands by,
        and goes on with a membership of its own for that."""
        return self._all(LaneEvent.CHANGED, now_s)

    def tick(self, now_s: float) -> list[MembershipAction]:
        """Do what is due."""
        done: list[MembershipAction] = []
        if self._due_s is not None and self._due_s <= now_s:
            self._due_s = None
            done += self._worker(WorkerEvent.DUE, now_s)
        for number, lane in enumerate(self._lanes):
            if lane.due_s is not None and lane.due_s <= now_s:
                lane.due_s = None
                done += self._lane(number, LaneEvent.DUE, now_s)
        return done

    @property
    def _limit_s(self) -> float:
        if self.stage is not WorkerStage.LEAVING:
            return OUTGOING_S
        return 0.0 if self._alone else LEAVING_S

    def _all(self, event: LaneEvent, now_s: float) -> list[MembershipAction]:
        return [action for lane in range(len(self._lanes)) for action in self._lane(lane, event, now_s)]

    def _lane(self, number: int, event: LaneEvent, now_s: float) -> list[MembershipAction]:
        lane = self._lanes[number]
        before = lane.stage
        lane.stage, effects = TRANSITIONS[before][event]
        if lane.stage is not before:
            lane.due_s = None
        if before is LaneStage.PROVING and lane.stage is not LaneStage.PROVING:
            lane.proof = 0  # what is under way proves nothing for a later start
        return [action for effect in effects for action in self._lane_effect(number, effect, now_s)]

    def _lane_effect(self, number: int, effect: LaneEffect, now_s: float) -> Iterator[MembershipAction]:
        lane = self._lanes[number]
        if effect is LaneEffect.PROVE:
            self._proofs += 1
            lane.proof = self._proofs
            yield LaneAction(number, effect, lane.proof)
        elif effect is LaneEffect.PROVE_LATER:
            lane.proof, lane.due_s = 0, now_s + PROVE_AGAIN_S
        elif effect is LaneEffect.BACK_OFF:
            lane.due_s = now_s + lane.backoff.next_s()
        elif effect is LaneEffect.LIMIT:
            lane.due_s = now_s + self._limit_s
        elif effect is LaneEffect.LEAVE:
            yield from self._worker(WorkerEvent.LOCAL_CAUSE, now_s)
        else:
            yield LaneAction(number, effect)

    def _worker(self, event: WorkerEvent, now_s: float) -> list[MembershipAction]:
        before = self.stage
        self.stage, effects = WORKER_TRANSITIONS[before][event]
        if self.stage is not before:
            self._due_s, self.has_assignment = None, False  # each change of it leaves the group, or has left it
        return [action for effect in effects for action in self._worker_effect(effect, now_s)]

    def _worker_effect(self, effect: WorkerEffect, now_s: float) -> Iterator[MembershipAction]:
        if effect is WorkerEffect.DETACH:
            yield from self._all(LaneEvent.LOST, now_s)
        elif effect is WorkerEffect.DROP:
            yield from self._all(LaneEvent.STOP, now_s)
        elif effect is WorkerEffect.RELEASE:
            yield from self._all(LaneEvent.REVOKED, now_s)
            for lane in self._lanes:  # one that was revoked before has no longer than the others
                if lane.stage is LaneStage.OUTGOING:
                    lane.due_s = min(lane.due_s or now_s, now_s + self._limit_s)
        elif effect is WorkerEffect.BACK_OFF:
            self._due_s = now_s + self._backoff.next_s()
        else:
            yield WorkerAction(effect)

    def _ended(self, now_s: float) -> list[MembershipAction]:
        if self.stage is WorkerStage.LEAVING and all(lane.stage is LaneStage.UNASSIGNED for lane in self._lanes):
            return self._worker(WorkerEvent.ALL_ENDED, now_s)
        return []
