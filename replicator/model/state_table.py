"""Writes a table of states and events into a page of the documentation. For `lane.diagram` and `workers.diagram`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

S = TypeVar("S")
E = TypeVar("E")
F = TypeVar("F")


def markdown(
    transitions: Mapping[S, Mapping[E, tuple[S, Sequence[F]]]],
    state_word: Callable[[S], str],
    event_word: Callable[[E], str],
    effect_word: Callable[[F], str],
    events: Iterable[E] | None = None,
) -> str:
    """Write transitions as a Markdown table: a row for each state, a column for each event, by default for all."""
    columns = list(next(iter(transitions.values()))) if events is None else list(events)
    titles = [event_word(event) for event in columns]
    lines = ["| | " + " | ".join(titles) + " |", "|---" * (len(columns) + 1) + "|"]
    for state, row in transitions.items():
        cells = [row[event] for event in columns]
        said = [", ".join([state_word(after), *map(effect_word, effects)]) for after, effects in cells]
        lines.append(f"| **{state_word(state)}** | " + " | ".join(said) + " |")
    return "\n".join(lines) + "\n"


def between(page: str, begin: str, end: str, table: str) -> str:
    """Return `page` with `table` between two of its lines. Raises ValueError where one is missing."""
    start, stop = page.index(begin) + len(begin), page.index(end)
    return f"{page[:start]}\n{table}\n{page[stop:]}"
