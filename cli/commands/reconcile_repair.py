"""What `reconcile --repair` adds: refusals before Spark starts, the plan, and the repair itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cli.commands import reconcile_map_repair
from cli.options import print_wrapped

if TYPE_CHECKING:
    from rich.console import Console

    from cli.commands.reconcile_map_repair import RepairByMapPart, Wanted
    from cli.stopping import Stopping
    from replicator.config import Config, Flow
    from replicator.jobs.repair import RepairSummary
    from replicator.jobs.repair_plan import PlannedPartition
    from replicator.jobs.repair_spans import Damage, Missing
    from replicator.model.partition import Partition
    from replicator.proof.outcome import Mode, Outcome
    from replicator.proof.snapshot import Snapshot
    from replicator.spark.reconcile.by_map.compared_pairs import ComparedPair
    from replicator.spark.reconcile.reconcile import Reconciled

SPANS_SHOWN = 5


class Repairing:
    """`--repair plan` or `apply` of one run of the command."""

    def __init__(self, loaded: Config, flow: Flow, wanted: Wanted, take_over: bool) -> None:
        self._loaded, self._flow, self._wanted, self._take_over = loaded, flow, wanted, take_over
        self._before = reconcile_map_repair.NOTHING_BEFORE
        self._found: dict[Partition, tuple[Missing, ...]] = {}
        self._compared: dict[Partition, ComparedPair] = {}
        self.code = 0

    def begin(self) -> None:
        """Begin before the snapshot is taken: refuse what can be refused, and read which repairs the snapshot will
        include.

        Raises TakenOver, ConfigError, and what makes a cluster unreachable.
        """
        if self._wanted == "apply":
            self._before = reconcile_map_repair.RepairsBefore.read(self._flow, take_over=self._take_over)

    def find(self, found: Reconciled) -> None:
        """Find with Spark what is missing. Raises Incident when there are too many spans of it."""
        from replicator.spark.reconcile import missing

        self._compared = found.by_map.compared
        if found.by_map.by_content:
            self._found = missing.spans(found.findings, found.pairs)

    def finish(self, outcome: Outcome, taken: Snapshot, stopping: Stopping, say: Callable[[str], None]) -> Outcome:
        """Add after the comparison, with `plan`, what would be copied, with `apply` the repair; `code` is as of
        `code_of` then. Raises KeyboardInterrupt where a plan was stopped: it would leave out partitions."""
        from replicator.proof.repair_report import both, repair_report
        from replicator.spark.reconcile import missing

        spans = {at: one.missing for at, one in self._compared.items()}
        planned = {at: one.planned for at, one in self._compared.items() if one.planned is not None}
        by_map = reconcile_map_repair.RepairByMapPart(self._flow, spans, planned)
        damage = missing.damage(outcome, taken, self._found)
        summary: RepairSummary | None = None
        plans: dict[Partition, PlannedPartition] = {}
        if self._wanted == "apply":
            summary = self._applied(outcome, by_map, damage, stopping, say)
        elif damage:
            plans = self._asked(damage, stopping, say)
        by_content = missing.repair_facts(outcome, self._found, summary, plans)
        return replace(outcome, repair=repair_report(outcome, both(by_map.facts(summary), by_content)))

    def _applied(
        self,
        outcome: Outcome,
        by_map: RepairByMapPart,
        damage: Mapping[Partition, Damage],
        stopping: Stopping,
        say: Callable[[str], None],
    ) -> RepairSummary | None:
        """Copy again what partitions of both kinds miss. In one repair: between two another worker could take the
        flow."""
        from replicator.jobs.repair_spans import RepairRequest

        requests = by_map.requests()
        if damage:
            requests.append(RepairRequest(damage, self._before.known))
        if not requests and not self._before.kept:
            return None
        at = self._loaded, self._flow, requests, outcome, self._before
        summary = reconcile_map_repair.run_repair(*at, stopping, say, by_map.stop, take_over=self._take_over)
        self.code = reconcile_map_repair.code_of(summary)
        return summary

    def _asked(
        self, damage: Mapping[Partition, Damage], stopping: Stopping, say: Callable[[str], None]
    ) -> dict[Partition, PlannedPartition]:
        """Ask both sides what a repair would copy of partitions that were compared by content."""
        from replicator.jobs.repair_plan import planned

        say("asking both sides about missing records")
        asked = threading.Event()
        with stopping.asks(asked.set):
            plans = planned(self._flow, damage, asked, say)
        if asked.is_set():
            raise KeyboardInterrupt
        return plans


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
