"""docs/reference/log-events.md: every log event with level, fields and meaning.

Names, levels and fields are read from the calls in the code; what they mean is said in `log_meanings`
and `log_fields`.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from cli.reference.log_fields import BOUND, COMMON, FIELDS
from cli.reference.log_meanings import EVENTS
from cli.reference.markdown import cell, table
from replicator.model.errors import Incident

ROOT = Path(__file__).parents[2]
PLACES = ("replicator", "cli/commands")
LEVELS = {"error": "error", "exception": "error", "warning": "warning", "info": "info", "debug": "debug"}
"""Method of the logger → level, the most severe first."""
SPLATS = {
    "told.facts": tuple(Incident("name", "detail").facts),
    "incident.facts": tuple(Incident("name", "detail").facts),
    "minute.last": ("detail",),
}
"""Fields that a call takes from a mapping."""
INTRODUCTION = """\
# Log events

Generated from the calls in the code by `python -m cli.reference`; a test checks that it is up to date.

`run` writes one event a line on stderr. `--log-format json` makes each a JSON object, with the name of the event
under `event`; `text` is for people. `--log-level` is the least severe level that is written, `info` by default. Tasks
on Spark write theirs to the stderr of their executor, or to that of the command if they run on this machine.
`backfill` and `reconcile --repair apply` write warnings and errors only, as text.
[Monitoring](../operate/monitoring.md#log) says which events to alarm on.

"""
HEADING = ("event", "level", "fields", "meaning")
OTHER = """
Messages of the Kafka client library are logged as `client`. A line of Python or of Java on stderr that is no event
is one of a library, or a crash.

## Fields

Each line has these:

"""


MAY_LOG = re.compile(rf"log_*\s*\.\s*(?:{'|'.join(LEVELS)})\b")
"""Somewhere in a module that logs: parsing takes long, and most modules don't."""


class Event:
    """What the calls of one event have between them."""

    def __init__(self) -> None:
        self.levels: set[str] = set()
        self.fields: dict[str, None] = {}

    @property
    def level(self) -> str:
        """Its level, or its levels, the most severe first."""
        return ", ".join(level for level in dict.fromkeys(LEVELS.values()) if level in self.levels)


def found() -> dict[str, Event]:
    """Find every event that the code logs."""
    events: dict[str, Event] = defaultdict(Event)
    for place in PLACES:
        for path in sorted((ROOT / place).rglob("*.py")):
            code = path.read_text(encoding="utf-8")
            if not MAY_LOG.search(code):
                continue
            for name, method, fields in calls(ast.parse(code)):
                events[name].levels.add(LEVELS[method])
                events[name].fields |= dict.fromkeys(fields)
    return events


def calls(tree: ast.AST) -> Iterator[tuple[str, str, list[str]]]:
    """Yield event, method and fields of each call of a logger in a module."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS):
            continue
        logger = ast.unparse(node.func.value).rpartition(".")[2]
        if logger.strip("_") == "log" and node.args:
            name = node.args[0]
            if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
                raise TypeError(f"the name of an event is text as it stands: {ast.unparse(node)}")
            yield name.value, node.func.attr, [field for each in node.keywords for field in _fields(each)]


def _fields(keyword: ast.keyword) -> tuple[str, ...]:
    return (keyword.arg,) if keyword.arg is not None else SPLATS[ast.unparse(keyword.value)]


def page() -> str:
    """Write the whole page."""
    events = found()
    rows = [
        (f"`{name}`", events[name].level, ", ".join(f"`{field}`" for field in events[name].fields), cell(EVENTS[name]))
        for name in sorted(events)
    ]
    parts = [INTRODUCTION, table(HEADING, rows), OTHER, table(("field", "meaning"), _named(COMMON))]
    parts += ["\nThose of a flow, a lane or a job have some of these:\n\n", table(("field", "meaning"), _named(BOUND))]
    used = {field for event in events.values() for field in event.fields}
    known = {field: FIELDS[field] for field in sorted(used)}
    parts += ["\nFields of events:\n\n", table(("field", "meaning"), _named(known))]
    return "".join(parts)


def _named(fields: dict[str, str]) -> list[tuple[str, str]]:
    return [(f"`{name}`", cell(meaning)) for name, meaning in fields.items()]
