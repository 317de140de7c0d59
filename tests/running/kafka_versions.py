"""`make test-versions`: contract and exactly-once tests on each pair of Kafka's versions, and the page that says so.

`python -m tests.running.kafka_versions --minutes 30` goes on where the last run ended, one pair after the other (with
`--each 5` no longer than that with each), and writes `tests/version_results.json` and the table of
`docs/operate/kafka-versions.md`. Without `--minutes` it writes the table alone. What was recorded with other code is
run again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

import click

from integration_tests.harness.versions import PAIRS, VersionPair
from tests.running import durations, in_parts
from tests.running.tiers import ROOT

FILE = ROOT / "tests" / "version_results.json"
PAGE = ROOT / "docs" / "operate" / "kafka-versions.md"
BEGIN, END = "<!-- versions: make test-versions -->\n", "<!-- end of versions -->\n"
CONTRACT, EXACTLY_ONCE, BATCHES = (f"integration_tests/{name}/" for name in ("contract", "exactly_once", "batches"))
_KILLED = "test_a_worker_killed_at_any_step_loses_and_doubles_nothing"
TESTS = (
    f"{EXACTLY_ONCE}test_kill_worker.py::{_KILLED}[kafka-before_end_txn]",
    f"{EXACTLY_ONCE}test_kill_worker.py::{_KILLED}[kafka-after_end_txn]",
    f"{BATCHES}test_exactly_once.py::{_KILLED}[kafka-batches-before_end_txn]",
    f"{BATCHES}test_exactly_once.py::{_KILLED}[kafka-batches-after_end_txn]",
    f"{EXACTLY_ONCE}test_kill_worker.py::test_a_second_worker_takes_over_and_the_first_one_leaves[kafka]",
    f"{EXACTLY_ONCE}test_kill_broker.py::test_the_target_is_killed_under_a_running_worker[kafka]",
    f"{EXACTLY_ONCE}test_kill_broker.py::test_the_target_is_killed_inside_a_transaction[kafka]",
    f"{EXACTLY_ONCE}test_kill_broker.py::test_the_source_is_killed_under_a_running_worker[kafka]",
    f"{BATCHES}test_exactly_once.py::test_the_target_is_killed_inside_a_transaction[kafka-batches]",
    f"{BATCHES}test_exactly_once.py::test_a_flow_changes_its_engine_and_goes_on[kafka-batches-True]",
    f"{EXACTLY_ONCE}test_workers.py::test_workers_join_leave_and_die[kafka]",
    f"{CONTRACT}test_transactions.py",
    f"{CONTRACT}test_positions.py",
    f"{CONTRACT}test_log_evidence.py",
    f"{CONTRACT}test_worker_group.py",
    f"{CONTRACT}test_kill.py",
)
"""What a flow rests on at the target, and workers and brokers that die, with both engines."""
ON_THREE_BROKERS = (f"{EXACTLY_ONCE}test_three_brokers.py",)
"""Where clusters have as many: brokers die, leaders move, and workers die at their commits, with both engines."""
WHOLE_MINUTES_MIN = 0.5
"""A pair isn't begun with less time left."""


def tests_of(pair: VersionPair) -> tuple[str, ...]:
    """What is run with a pair."""
    return ON_THREE_BROKERS if pair.brokers > 1 else TESTS


def run(pair: VersionPair, minutes: float) -> int:
    """Run what is left of a pair's tests; pytest's exit code."""
    command = [sys.executable, "-m", "pytest", "-q", "--timeout", "900", "-m", "kafka", "--record-in", str(FILE)]
    command += ["--record", pair.name, "--in-parts", f"{minutes:.2f}", *tests_of(pair)]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **pair.environment()}, check=False).returncode


def done(entry: Mapping[str, Any]) -> bool:
    """Whether nothing of a pair is left to be run with this code."""
    return bool(entry) and not entry["left"] and not entry["failed"] and in_parts.same_code(entry["code"])


def table(parts: Mapping[str, Any]) -> str:
    """The lines between `BEGIN` and `END`."""
    lines = [
        "| source | target | brokers | transaction protocol | contract | exactly once | failed or not run | recorded |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for pair in PAIRS:
        cells = _cells(parts[pair.name]) if pair.name in parts else ["not run", "", "", ""]
        brokers = f"{pair.brokers}, replication factor {pair.brokers}" if pair.brokers > 1 else "1"
        lines.append(f"| {pair.source} | {pair.target} | {brokers} | {pair.transactions} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cells(entry: Mapping[str, Any]) -> list[str]:
    contract = sum(name.startswith(CONTRACT) for name in entry["done"])
    left = entry["left"] - entry["failed"]
    missing = [f"{count} {what}" for count, what in ((entry["failed"], "failed"), (left, "not run")) if count > 0]
    failures = ", ".join(f"`{name.rpartition('::')[2]}`" for name in entry["failures"])
    told = "; ".join(missing) + (f": {failures}" if failures else "")
    return [
        _passed(contract),
        _passed(len(entry["done"]) - contract),
        told,
        f"{entry['date']}, {entry['commit']}",
    ]


def _passed(count: int) -> str:
    return f"{count} passed" if count else "not run"


def written(text: str, parts: Mapping[str, Any]) -> str:
    """The page with the table of these results."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table(parts)}{END}{after}"


@click.command()
@click.option("--minutes", type=float, default=0.0, help="Run tests for about so long.")
@click.option("--each", type=float, default=float("inf"), help="Run those of one pair for about so long.")
@click.option("--only", multiple=True, help="Only pairs whose name has this; may be given again.")
def main(minutes: float, each: float, only: tuple[str, ...]) -> None:
    """Run what is left of the pairs' tests, and write the page."""
    end_s, failed = time.monotonic() + 60 * minutes, []
    for pair in PAIRS:
        left = (end_s - time.monotonic()) / 60
        if left < WHOLE_MINUTES_MIN:
            break
        if (only and not any(part in pair.name for part in only)) or done(durations.load(FILE).get(pair.name, {})):
            continue
        click.echo(f"--- {pair.name}")
        if run(pair, min(left, each)):
            failed.append(pair.name)
    PAGE.write_text(written(PAGE.read_text(), durations.load(FILE)))
    if failed:
        raise click.ClickException(f"failed: {'; '.join(failed)}")


if __name__ == "__main__":
    main()
