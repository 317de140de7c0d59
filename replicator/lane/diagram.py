"""Writes the table of a partition's states into docs/architecture.md: `python -m replicator.lane.diagram`."""

from __future__ import annotations

import sys
from pathlib import Path

from replicator.lane.partition import TRANSITIONS

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
    events = list(next(iter(TRANSITIONS.values())))
    titles = [_word(event) for event in events]
    lines = ["| | " + " | ".join(titles) + " |", "|---" * (len(events) + 1) + "|"]
    for state, row in TRANSITIONS.items():
        cells = [row[event] for event in events]
        said = [
            ", ".join([_word(kind), *(effect.name.lower().replace("_", " ") for effect in effects)])
            for kind, effects in cells
        ]
        lines.append(f"| **{_word(state)}** | " + " | ".join(said) + " |")
    return "\n".join(lines) + "\n"


def _word(named: type) -> str:
    return WORDS.get(named.__name__, named.__name__.lower())


def written(page: str) -> str:
    """Return `page` with the table as it is now. Raises ValueError where its markers are missing."""
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    return f"{page[:begin]}\n{table()}\n{page[end:]}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
    sys.stdout.write(f"{PAGE.name} has the table of lane/partition.py\n")
