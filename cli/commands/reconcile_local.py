"""What `reconcile` does with --local: compares by the offset map, in this process."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli import __version__
from cli.options import patience_ms

if TYPE_CHECKING:
    from replicator.config import Flow
    from replicator.proof.outcome import Outcome
    from replicator.proof.snapshot import Snapshot


def refuse(given: dict[str, Any]) -> None:
    """Raise ConfigError for options that only Spark understands. `given`: by name, with their values."""
    from replicator.model.errors import ConfigError

    wrong = [name for name, value in given.items() if value]
    if wrong:
        raise ConfigError(f"{' and '.join(wrong)}: not with --local, which compares by the offset map, without Spark")


def run(flow: Flow, topics: Collection[str], partitions: Collection[int], out: str | None, *, values: bool) -> Outcome:
    """Compare, write the report, and return the outcome.

    Args:
        partitions: numbers of partitions; all when empty.

    Raises ConfigError, and what `reconcile_local` does.
    """
    from rich.console import Console

    from cli.commands.reconcile_progress import LocalProgress
    from replicator.proof import local_report, map_place, snapshot
    from replicator.proof.local import reconcile_local
    from replicator.proof.report_directory import check_unused

    map_place.refuse_delivery(flow)
    if out is not None:
        check_unused(Path(out))
    with LocalProgress(Console(stderr=True), flow.name) as progress:
        progress.step("asking both clusters")
        patience = patience_ms(flow)
        taken = snapshot.take(flow, topics, snapshot.Window(), connect_timeout_ms=patience, time_ms_max=None)
        result = reconcile_local(flow, chosen(taken, partitions), progress, values=values)
        outcome = replace(result.outcome, tool_version=__version__)
        if out is not None:
            progress.step(f"writing {out}")
            local_report.write(result, outcome, Path(out))
    return outcome


def chosen(taken: Snapshot, partitions: Collection[int]) -> Snapshot:
    """Leave of a snapshot only what concerns these partitions. Raises ConfigError where there is none."""
    from replicator.model.errors import ConfigError

    if not partitions:
        return taken
    pairs = tuple(pair for pair in taken.pairs if pair.source.partition in partitions)
    waiting = tuple(item for item in taken.waiting if item.source.partition in partitions)
    stopped = tuple(item for item in taken.not_compared if item.partition in partitions)
    if not (pairs or waiting or stopped):
        raise ConfigError(f"--partition: the flow's topics have no partition {', '.join(map(str, sorted(partitions)))}")
    return replace(taken, pairs=pairs, waiting=waiting, not_compared=stopped)
