"""What `reconcile --repair` adds: refusals before Spark starts, the plan, and the repair itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cli.options import print_wrapped

if TYPE_CHECKING:
    from rich.console import Console

    from cli.commands.reconcile_map_repair import Wanted
    from cli.stopping import Stopping
    from replicator.config import Config, Flow
    from replicator.jobs.repair_plan import PlannedPartition
    from replicator.jobs.repair_spans import Missing
    from replicator.model.partition import Partition
    from replicator.proof.outcome import Mode, Outcome
    from replicator.proof.repair_report import RepairFacts
    from replicator.proof.snapshot import Snapshot
    from replicator.spark.reconcile.by_map.compared_pairs import ComparedPair
    from replicator.spark.reconcile.reconcile import Reconciled
    from replicator.state.claims import Repair as Repaired

SPANS_SHOWN = 5


class Repairing:
    """`--repair plan` or `apply` of one run of the command."""

    def __init__(self, loaded: Config, flow: Flow, wanted: Wanted, take_over: bool) -> None:
        self._loaded, self._flow, self._wanted, self._take_over = loaded, flow, wanted, take_over
        self._known: frozenset[Repaired] = frozenset()
        self._found: dict[Partition, tuple[Missing, ...]] = {}
        self._compared: dict[Partition, ComparedPair] = {}
        self.code = 0

    def begin(self) -> None:
        """Begin before the snapshot is taken: refuse what can be refused, and read which repairs the snapshot will
        include.

        Raises TakenOver, ConfigError, and what makes a cluster unreachable.
        """
        from replicator.jobs import repair

        if self._wanted == "apply":
            repair.check(self._flow, take_over=self._take_over)
            self._known = repair.known(self._flow)

    def find(self, found: Reconciled) -> None:
        """Find with Spark what is missing. Raises Incident when there are too many spans of it."""
        from replicator.spark.reconcile import missing

        self._compared = found.by_map.compared
        if found.by_map.by_content:
            self._found = missing.spans(found.findings)

    def finish(self, outcome: Outcome, taken: Snapshot, stopping: Stopping, say: Callable[[str], None]) -> Outcome:
        """Add after the comparison, with `plan`, what would be copied, with `apply` the repair; `code` is then 4 where
        incidents stopped it. Raises KeyboardInterrupt where a plan was stopped: it would leave out partitions."""
        from cli.commands.reconcile_map_repair import MapRepairing
        from replicator.proof.repair_report import both, repair_report

        by_map = MapRepairing(self._loaded, self._flow, self._wanted, self._take_over)
        spans = {at: one.missing for at, one in self._compared.items()}
        plans = {at: one.planned for at, one in self._compared.items() if one.planned is not None}
        facts = by_map.facts(spans, plans, stopping, say)
        self.code = by_map.code
        if self.code != 130 and by_map.handed_over:
            facts = both(facts, self._by_content(outcome, taken, stopping, say))
        return replace(outcome, repair=repair_report(outcome, facts))

    def _by_content(
        self, outcome: Outcome, taken: Snapshot, stopping: Stopping, say: Callable[[str], None]
    ) -> RepairFacts:
        """Return the facts of partitions that were compared by content."""
        from cli.commands.reconcile_map_repair import run_repair
        from replicator.jobs.repair_plan import planned
        from replicator.jobs.repair_spans import RepairRequest
        from replicator.spark.reconcile import missing

        summary = None
        plans: dict[Partition, PlannedPartition] = {}
        wanted = missing.damage(outcome, taken, self._found)
        if self._wanted == "apply" and wanted:
            request = RepairRequest(wanted, self._known, self._take_over)
            summary = run_repair(self._loaded, self._flow, request, stopping, say)
            self.code = 130 if summary.stopped else 4 if summary.incident is not None else self.code
        elif wanted:
            say("asking both sides about missing records")
            asked = threading.Event()
            with stopping.asks(asked.set):
                plans = planned(self._flow, wanted, asked, say)
            if asked.is_set():
                raise KeyboardInterrupt
        return missing.repair_facts(outcome, self._found, summary, plans)


def refuse(wanted: str | None, mode: Mode, window: tuple[int | None, int | None], take_over: bool) -> None:
    """Raise ConfigError for options that exclude each other."""
    from replicator.model.errors import ConfigError

    if wanted is None:
        if take_over:
            raise ConfigError("--take-over is for --repair apply")
        return
    if mode == "quick":
        raise ConfigError("--quick does not name records, so there is nothing to --repair")
    if window != (None, None):
        raise ConfigError("--repair needs the whole topics: what --from or --to leaves out may hold what seems missing")


def show(console: Console, result: Mapping[str, Any]) -> None:
    """Show the plan or what was done, in lines."""
    skipped = "not copied" if result["applied"] else "not to be copied"
    for row in result["partitions"]:
        at = f"{row['source']['topic']}[{row['source']['partition']}]"
        if row["missing"]:
            done = "missing"
            if row["to_copy"] is not None:
                done += f", {row['to_copy']:,} to be copied again"
            elif row["copied"] is not None:
                done += f", {row['copied']:,} copied again"
            spans = ", ".join(f"{item['first']}-{item['end'] - 1}" for item in row["spans"][:SPANS_SHOWN])
            more = len(row["spans"]) + row["spans_not_listed"] - SPANS_SHOWN
            spans += f" and {more:,} more" if more > 0 else ""
            print_wrapped(console, f"repair: {at}: {row['missing']:,} records {done} (source offsets {spans})")
        if row["standing"]:
            print_wrapped(console, f"repair: {at}: {row['standing']:,} {skipped}, they are on the target by now")
        if row["superseded"]:
            spans = ", ".join(f"{item['first']}-{item['end'] - 1}" for item in row["superseded_spans"][:SPANS_SHOWN])
            why = f"superseded by a later record of their key (source offsets {spans}"
            why += ", …)" if len(row["superseded_spans"]) > SPANS_SHOWN else ")"
            print_wrapped(console, f"repair: {at}: {row['superseded']:,} {skipped}, {why}")
        for reason in (row["refused"], row["incident"]):
            if reason:
                print_wrapped(console, f"repair: {at}: {reason}")
        if row["stays"]:
            stays = ", ".join(f"{records:,} {name}" for name, records in row["stays"].items())
            print_wrapped(console, f"repair: {at}: {stays}: can't be repaired")
    for note in result["notes"] if result["partitions"] else ():
        print_wrapped(console, f"repair: {note}")
