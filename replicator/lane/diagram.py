"""Writes the table of a partition's states into docs/architecture.md: `python -m replicator.lane.diagram`."""

from __future__ import annotations

import sys
from pathlib import Path

from replicator.lane.partition import TRANSITIONS
from replicator.model import state_table

BEGIN = "<!-- begin: states, written by `python -m replicator.lane.diagram` -->\n"
END = "<!-- end: states -->\n"
WORDS = {
    "SessionBegan": "session began",
    "PositionCommitted": "position committed",
    "HoldUp": "hold up",
    "RecordsCommitted": "records committed",
    "HeldUp": "held up",
}
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"


def table() -> str:
    """Write the transitions as a Markdown table: a row for each state, a column for each event."""
    return state_table.markdown(TRANSITIONS, _word, _word, lambda effect: effect.name.lower().replace("_", " "))


def _word(named: type) -> str:
    return WORDS.get(named.__name__, named.__name__.lower())


def written(page: str) -> str:
    """Return `page` with the table as it is now. Raises ValueError where its markers are missing."""
    return state_table.between(page, BEGIN, END, table())


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
    sys.stdout.write(f"{PAGE.name} has the table of lane/partition.py\n")
