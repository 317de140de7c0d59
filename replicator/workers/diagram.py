"""Writes the tables of stages into docs/architecture.md: `python -m replicator.workers.diagram`."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path

from replicator.model import state_table
from replicator.workers.lane_stages import TRANSITIONS, LaneEvent
from replicator.workers.worker_stages import WORKER_TRANSITIONS

BEGIN, END = ("<!-- begin: workers, written by `python -m replicator.workers.diagram` -->\n", "<!-- end: workers -->\n")
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
OF_THE_LANE = (
    LaneEvent.CONNECTED,
    LaneEvent.INITIALISED,
    LaneEvent.FENCED,
    LaneEvent.FAILED,
    LaneEvent.BROKEN,
    LaneEvent.STOPPED,
    LaneEvent.STOP,
    LaneEvent.CHANGED,
    LaneEvent.DUE,
)


def tables() -> str:
    """Write them as Markdown: a lane's in two halves, what the group says and what lane and worker say; a worker's."""
    of_the_group = [event for event in LaneEvent if event not in OF_THE_LANE]
    return "\n".join(
        (
            state_table.markdown(TRANSITIONS, _word, _word, _word, of_the_group),
            state_table.markdown(TRANSITIONS, _word, _word, _word, OF_THE_LANE),
            state_table.markdown(WORKER_TRANSITIONS, _word, _word, _word),
        )
    )


def _word(named: Enum) -> str:
    return named.name.lower().replace("_", " ")


def written(page: str) -> str:
    """Return `page` with the tables as they are now. Raises ValueError where its markers are missing."""
    return state_table.between(page, BEGIN, END, tables())


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
    sys.stdout.write(f"{PAGE.name} has the tables of workers\n")
