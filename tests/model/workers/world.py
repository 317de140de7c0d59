"""The world of the workers' model: what coordinator, broker and control topic know, and what each worker believes.

One source partition with a record lies in the last lane of each generation. What is quick and private to a worker is no
step of its own: clients connect, back-offs end and stops are done within the step that begins them. Whoever initialises
a transactional id fences its holder, who learns it later.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from replicator.workers.lane_stages import TRANSITIONS, LaneEffect, LaneEvent, LaneStage
from tests.model.workers.rules import WorkerRules

Item = TypeVar("Item")
RECORDS = 1
NOBODY = -1
DEAD, UP, FROZEN, LEAVING, AWAY = range(5)
"""A worker's process: gone; at work; stopped by SIGSTOP; asked to stop; out of the group for a cause of its own."""


NO_PROOF, ASKED, YES, YES_OF_FORMER_ID, NO_MEMBER = range(5)
"""The proof under way that counts: what its answer will be is decided when it reaches the coordinator."""
ANSWERS = ("", "asked", "yes", "yes, under a former member id", "no member")
NONE, INITIALISED, COPYING, SENT = range(4)
"""A lane's producer session."""
STAGES = {stage: number for number, stage in enumerate(LaneStage)}
UNASSIGNED, PROVING, STARTING, RUNNING = (
    STAGES[it] for it in (LaneStage.UNASSIGNED, LaneStage.PROVING, LaneStage.STARTING, LaneStage.RUNNING)
)
OUTGOING, DETACHED, EARLY_STARTING = (
    STAGES[it] for it in (LaneStage.OUTGOING, LaneStage.DETACHED, LaneStage.EARLY_STARTING)
)
ASSIGNED = frozenset(STAGES[it] for it in LaneStage if it.assigned)
MAY_INITIALISE = frozenset(STAGES[it] for it in LaneStage if it.may_initialise)
Row = dict[LaneEvent, tuple[int, tuple[LaneEffect, ...]]]


class Lane(NamedTuple):
    """A lane in one worker. `given_back`: the group has taken it, and the worker has not heard of it yet. `late`: a
    proof that counts no more was accepted, and its answer is on the way; kept only where that matters."""

    stage: int = UNASSIGNED
    proof: int = NO_PROOF
    session: int = NONE
    position: int = -1
    given_back: bool = False
    late: bool = False


IDLE = Lane()


class Worker(NamedTuple):
    """A worker. `joined`: it believes that it is a member; `generation`: whose lanes it runs, 0: none yet; `new`: it
    may still open its lanes early; `change`: how far it is as a changer, with the ids `left` to fence and the file that
    it `opens`; `broken`: a lane that it can't run. Until it has a `generation` it may propose its file.
    `waits`: somebody else has initialised the control id, and gets its time."""

    process: int = DEAD
    joined: bool = False
    generation: int = 0
    lanes: tuple[Lane, ...] = (IDLE, IDLE)
    new: bool = False
    change: int = 0
    left: tuple[int, ...] = ()
    opens: int = NOBODY
    broken: int = NOBODY
    waits: bool = False


class Id(NamedTuple):
    """A transactional id at its coordinator: who has initialised it last, and the record in its open transaction."""

    holder: int = NOBODY
    record: int = -1


class GenerationRecord(NamedTuple):
    """A generation in the control topic."""

    number: int
    phase: str
    lanes: int
    file: int
    job: bool = False


class World(NamedTuple):
    """Everything. `takeovers`: of the last lane, since the last disturbance; `air`: the id of an EndTxn that nobody
    waits for any more; `disturbances`: how many more there may be, where they are counted."""

    workers: tuple[Worker, ...]
    log: tuple[GenerationRecord, ...]
    ids: tuple[Id, ...]
    owners: tuple[int, ...]
    members: tuple[bool, ...]
    coordinator: bool = True
    clusters: bool = True
    copied: int = 0
    air: int = NOBODY
    takeovers: int = 0
    control: int = NOBODY
    disturbances: int = -1


def put(items: tuple[Item, ...], number: int, item: Item) -> tuple[Item, ...]:
    """`items` with one replaced."""
    return (*items[:number], item, *items[number + 1 :])


def table(rules: WorkerRules) -> list[Row]:
    """The program's own table of stages and events, with what the rules leave out."""
    rows = {
        stage: {event: (after, effects) for event, (after, effects) in row.items()}
        for stage, row in TRANSITIONS.items()
    }
    stage, event, effect = LaneStage, LaneEvent, LaneEffect
    again = (stage.PROVING, (effect.PROVE,))
    if rules.outgoing_initialises:
        rows[stage.OUTGOING][event.FENCED] = again
    if rules.lost_stops:
        rows[stage.RUNNING][event.LOST] = (stage.STOPPING, (effect.STOP,))
    if rules.stays_ended:
        rows[stage.RUNNING][event.FENCED] = rows[stage.RUNNING][event.FAILED] = (stage.BACKING_OFF, ())
    if rules.broken_stays:
        for each in (stage.PROVING, stage.STARTING, stage.RUNNING):
            rows[each][event.BROKEN] = (stage.BACKING_OFF, (effect.BACK_OFF,))
    if rules.cluster_cause_leaves:
        rows[stage.RUNNING][event.FAILED] = (stage.UNASSIGNED, (effect.LEAVE,))
    if rules.early_again:
        rows[stage.DETACHED][event.FENCED] = (stage.EARLY_STARTING, (effect.FENCE,))
    return [{event: (STAGES[after], effects) for event, (after, effects) in rows[stage].items()} for stage in LaneStage]
