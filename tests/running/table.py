"""The table of tiers in CONTRIBUTING.md, from `tests/durations.json`: `python -m tests.running.table` writes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.running import durations
from tests.running.tiers import ROOT

PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- durations: make test-full -->\n", "<!-- end of durations -->\n"
COMMANDS = {
    "make test-unit": ("test-unit",),
    "make test": ("test",),
    "make test-full": ("test", "test-rest"),
}
"""Each tier's command, and the parts of the file that it consists of."""
BUSY_MIN = 0.3
"""From so many busy cores on the table says that something else ran beside the tests."""
HOLDS = {
    "make test-unit": "what needs no Kafka in a process of its own, no Docker and no Java",
    "make test": "lint; every kind of failure on the embedded broker; contract and a kill also on real Kafka; "
    "every kind of damage found by `reconcile`",
    "make test-full": "also Spark, more points of each sweep; on real Kafka kills, lost replies, truncation and all of "
    "reading and writing",
}


def table(parts: Mapping[str, Any]) -> str:
    """The lines between `BEGIN` and `END`."""
    lines = ["| command | holds | tests | took | recorded |", "|---|---|---|---|---|"]
    for command, names in COMMANDS.items():
        found = [parts[name] for name in names if name in parts]
        cells = ["", "", ""]
        if len(found) == len(names) and all("seconds" in part for part in found):
            tests = sum(part["passed"] + part["failed"] for part in found)
            cells = [f"{tests:,}", _took(command, found), _where(found[-1])]
        lines.append(f"| `{command}` | {HOLDS[command]} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def written(text: str, parts: Mapping[str, Any]) -> str:
    """The page with the table of these parts."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table(parts)}{END}{after}"


def _took(command: str, found: Sequence[Mapping[str, Any]]) -> str:
    """The tests, and what comes before them where the command was the first in a clone."""
    tests_s = sum(part["seconds"] for part in found)
    named = {name: found[0].get(f"{name}_seconds") for name in durations.PREPARED if command != "make test-unit"}
    before = {name: seconds for name, seconds in named.items() if seconds is not None}
    told = "".join(f", {name} {_minutes(seconds)}" for name, seconds in before.items())
    return f"{_minutes(tests_s + sum(before.values()))}" + (f" (tests {_minutes(tests_s)}{told})" if told else "")


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _where(part: Mapping[str, Any]) -> str:
    machine = part["machine"]
    busy = "" if part["cores_busy_before"] < BUSY_MIN else f" ({part['cores_busy_before']} busy before it began)"
    return f"{part['date']}, {part['commit']}, {machine['cores']} cores{busy}, {machine['memory_gib']} GiB"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(), durations.load()))
