"""What `reconcile` does with --local: compares by the offset map, in this process, and repairs by that."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli import __version__
from cli.options import patience_ms

if TYPE_CHECKING:
    from cli.commands.reconcile_map_repair import MapRepairing
    from replicator.config import Flow
    from replicator.proof.outcome import Outcome
    from replicator.proof.signing import Seal
    from replicator.proof.snapshot import Snapshot


def refuse(given: dict[str, Any]) -> None:
    """Raise ConfigError for options that only Spark understands. `given`: by name, with their values."""
    from replicator.model.errors import ConfigError

    wrong = [name for name, value in given.items() if value]
    if wrong:
        raise ConfigError(f"{' and '.join(wrong)}: not with --local, which compares by the offset map, without Spark")


@dataclass(frozen=True, slots=True)
class LocalScope:
    """Which topics, and which partitions by their numbers; all when empty. `values`: whether the outcome may hold parts
    of the fields of altered records."""

    topics: Collection[str] = ()
    partitions: Collection[int] = ()
    values: bool = True


def run(flow: Flow, scope: LocalScope, out: str | None, repair: MapRepairing | None, seal: Seal) -> Outcome:
    """Compare, repair if that is asked for, write the report, and return the outcome.

    Raises ConfigError, what `reconcile_local` does, and what a repair does.
    """
    from rich.console import Console

    from cli.commands.reconcile_progress import LocalProgress
    from cli.stopping import Stopping
    from replicator.proof import local_report, map_place, snapshot
    from replicator.proof.local import reconcile_local
    from replicator.proof.report_directory import check_unused

    map_place.refuse_delivery(flow)
    if out is not None:
        check_unused(Path(out))
    with Stopping() as stopping, LocalProgress(Console(stderr=True), flow.name) as progress:
        progress.step("asking both clusters")
        if repair is not None:
            repair.begin()
        patience = patience_ms(flow)
        taken = snapshot.take(flow, scope.topics, snapshot.Window(), connect_timeout_ms=patience, time_ms_max=None)
        wanted = chosen(taken, scope.partitions)
        result = reconcile_local(flow, wanted, progress, values=scope.values, for_repair=repair is not None)
        outcome = replace(result.outcome, tool_version=__version__)
        if repair is not None:
            outcome = repair.finish(outcome, result, stopping, progress.update)
        if out is not None:
            progress.step(f"writing {out}")
            local_report.write(result, outcome, Path(out), seal)
    return outcome


def chosen(taken: Snapshot, partitions: Collection[int]) -> Snapshot:
    """Leave of a snapshot only what concerns these partitions, and incidents of whole topics, which may have them.

    Raises ConfigError where there is nothing.
    """
    from replicator.model.errors import ConfigError

    if not partitions:
        return taken
    pairs = tuple(pair for pair in taken.pairs if pair.source.partition in partitions)
    waiting = tuple(item for item in taken.waiting if item.source.partition in partitions)
    stopped = tuple(item for item in taken.not_compared if item.partition < 0 or item.partition in partitions)
    if not (pairs or waiting or stopped):
        raise ConfigError(f"--partition: the flow's topics have no partition {', '.join(map(str, sorted(partitions)))}")
    return replace(taken, pairs=pairs, waiting=waiting, not_compared=stopped)
