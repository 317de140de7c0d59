"""The control topic as the program reads it: the model folds it with `replicator.generation`, not with a copy of it."""

from __future__ import annotations

from functools import cache

from replicator.state.generation import BadControl, Control, Generation, Phase
from tests.model.world import Record


@cache
def fold(log: tuple[Record, ...]) -> Control | None:
    """The program's reading of a control topic; None when it refuses to read it."""
    control = Control()
    try:
        for number, phase, lanes in log:
            control = control.apply(Generation(number, Phase(phase), lanes))
    except BadControl:
        return None
    return control


def record(generation: Generation) -> Record:
    """A record as the model keeps it."""
    return (generation.number, generation.phase.value, generation.lanes)
