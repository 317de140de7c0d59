"""The control topic as the program reads it: the model folds it with `replicator.generation`, not with a copy of it."""

from __future__ import annotations

from functools import cache

from replicator.state.control_topic import Control
from replicator.state.generation import BadControl, Generation, Phase
from tests.model.world import Record


@cache
def fold(log: tuple[Record, ...]) -> Control | None:
    """The program's reading of a control topic; None when it refuses to read it."""
    control = Control()
    try:
        for number, phase, lanes, start in log:
            stored = None if start < 0 else start  # the model keeps the start itself where the program counts records
            control = control.apply(Generation(number, Phase(phase), lanes, start_records=stored))
    except BadControl:
        return None
    return control


def record(generation: Generation) -> Record:
    """A record as the model keeps it."""
    start = -1 if generation.start_records is None else generation.start_records
    return (generation.number, generation.phase.value, generation.lanes, start)


def stored_start(control: Control | None) -> int:
    """The start that was stored when the flow was first opened; -1 where there is none."""
    found = control.generations.values() if control else ()
    return next((it.start_records for it in found if it.start_records is not None), -1)
