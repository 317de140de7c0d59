"""`eos-replicate simulate`: runs the embedded broker in simulated time, injects faults, and checks the results."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from embedded_broker.simulation.run import RunResult

WRONG = 1
SEEDS_DEFAULT = 20
LINES_SHOWN = 40


@click.command(
    epilog="""\b
Examples:
  eos-replicate simulate --seeds 100
  eos-replicate simulate --seed 17
  eos-replicate simulate --seeds 1000 --seed 5000 --json

Each seed is a schedule of faults: crashes, power cuts, broken and slow connections, torn writes, zombies, full disks,
fsyncs that fail. Depending on the seed, clients write in transactions, use consumer groups, or write to compacted
topics. The same seed gives the same run, byte for byte. Nothing is written to disk and no port is opened.

\b
Exit codes:
  0  nothing wrong
  1  a seed found a fault
"""
)
@click.option("--seeds", type=click.IntRange(min=1), help=f"How many. Default: {SEEDS_DEFAULT}, or 1 with --seed.")
@click.option("--seed", type=click.IntRange(min=0), help="The first one. Default: 0.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def simulate(seeds: int | None, seed: int | None, as_json: bool) -> int:
    """Run the embedded broker in simulated time, with injected faults.

    Its disk, its network and its clients are simulated too. Looks for lost writes, duplicates, aborted or dirty reads,
    reordering, skipped polls or records, offsets that go back, torn transactions, wrong group offsets, stale commits,
    partitions with two owners and groups that don't settle.
    """
    from embedded_broker.simulation.run import simulate as run

    first, began_s = seed or 0, time.monotonic()
    count = seeds or (SEEDS_DEFAULT if seed is None else 1)
    failed: list[int] = []
    crashes, virtual_s = 0, 0.0
    for each in range(first, first + count):
        result = run(each)
        crashes, virtual_s = crashes + result.crashes, virtual_s + result.virtual_s
        if result.violations:
            failed.append(each)
        if as_json:
            click.echo(json.dumps(_summary(result)))
        elif result.violations:
            _show(result, with_trace=count == 1)
    if not as_json:
        took_s = time.monotonic() - began_s
        click.echo(f"{count} seeds, {crashes} crashes, {virtual_s:,.0f} s of the broker's time in {took_s:.0f} s")
        click.echo(f"wrong with: {', '.join(map(str, failed))}" if failed else "nothing wrong")
    return WRONG if failed else 0


def _summary(result: RunResult) -> dict[str, object]:
    return {
        "seed": result.seed,
        "workloads": result.workloads,
        "violations": [asdict(each) for each in result.violations],
        "digest": result.digest,
        "events": result.events,
        "crashes": result.crashes,
        "virtual_s": round(result.virtual_s, 3),
    }


def _show(result: RunResult, with_trace: bool) -> None:
    if with_trace:
        for line in result.lines[-LINES_SHOWN:]:
            click.echo(f"  {line}")
    click.echo(f"seed {result.seed}:")
    for violation in result.violations:
        click.echo(f"  {violation.kind}: {violation.detail}")
