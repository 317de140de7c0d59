"""The world of the model of group sync: one partition of one group, two workers, an operator, and a consumer.

An offset of the source is copied as the same offset of the target: how offsets translate is the offset map's model.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

from replicator.groups.decision import GroupDecision, OffsetToCommit
from replicator.groups.ownership import GroupOffset, OwnershipNote

OFF, READY, LOOKED, NOTED, SENT, ANSWERED = range(6)
NOBODY, FLOW, OPERATOR, CONSUMER = range(4)
NONE, UNANSWERED, LATE = range(3)
"""Of commits without an answer: no doubt; they may still be applied; they can't, but nobody has looked since."""
SOURCE_EPOCH, TARGET_EPOCH = 50, 3


@dataclass(frozen=True, slots=True)
class GroupRules:
    """What is left out of the design; nothing by default."""

    source_epoch_copied: bool = False
    every_value_once_written_is_ours: bool = False
    any_value_is_ours: bool = False  # a group that was there before is taken, too
    answer_not_noted: bool = False  # what stood there before stays the flow's
    noted_after_commit: bool = False
    writer_not_fenced: bool = False  # of the notes
    transactional_commit: bool = False  # which the broker doesn't refuse for a group with members
    unanswered_forgotten: bool = False  # at the next round
    unanswered_for_ever: bool = False
    somebody_elses_not_noted: bool = False  # what was the flow's before somebody else's is the flow's again
    read_beyond_the_copy: bool = False  # an offset beyond what is copied is committed as it is

    def __str__(self) -> str:
        return "+".join(field.name for field in fields(self) if getattr(self, field.name)) or "as_designed"


class Commit(NamedTuple):
    """A commit in the air: whose, what, and whether its answer is still waited for."""

    worker: int
    offset: OffsetToCommit


class Worker(NamedTuple):
    """One worker: where it is in its round, the note that it knows, what it has decided."""

    at: int = OFF
    note: OwnershipNote = OwnershipNote()
    decision: GroupDecision | None = None


class World(NamedTuple):
    """`by`: who has committed `value`; `left_alone`: it was an operator or a consumer, while nothing of the flow was
    under way, so that the flow must not overwrite it. `last`: what the flow has committed last; `seen`: it has seen
    somebody else's since; a reset away from `last` and back, between two looks, nobody can see. `written`: all values
    that were ever committed by the flow, for a mutation. Counters are what may still happen."""

    source: int = 1
    copied: int = 3
    value: GroupOffset | None = None
    leader_epoch: int = -1
    by: int = NOBODY
    left_alone: bool = False
    members: bool = False
    note: OwnershipNote = OwnershipNote()
    writer: int = -1
    workers: tuple[Worker, Worker] = (Worker(), Worker())
    air: tuple[Commit, ...] = ()
    doubt: int = NONE
    now_ms: int = 0
    last: GroupOffset | None = None
    seen: bool = False
    written: frozenset[GroupOffset] = frozenset()
    moves: int = 1
    resets: int = 1
    starts: int = 1
    joins: int = 0
    losses: int = 0
    kills: int = 0
    waits: int = 0


def put(workers: tuple[Worker, Worker], number: int, worker: Worker) -> tuple[Worker, Worker]:
    """The workers with one of them replaced."""
    return (worker, workers[1]) if number == 0 else (workers[0], worker)
