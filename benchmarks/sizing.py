"""`python -m benchmarks.sizing --records 20000 --bytes 500 --partitions 64`: what a flow of such a load takes.

The formula is in `estimate`; its coefficients are what `benchmarks.sizing_measure` has measured last, beside three
other loads that show how far it is off. docs/operate/sizing.md has both.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

from replicator.model.counting import counted
from replicator.workers.balance import LANES_AUTO_MAX, PARTITIONS_PER_LANE

RESULTS = Path(__file__).parent / "results" / "sizing"
PAGE = Path(__file__).parents[1] / "docs" / "operate" / "sizing.md"
BEGIN, END = "<!-- sizing: python -m benchmarks.sizing_measure -->\n", "<!-- end of sizing -->\n"
MIB = 2**20
SHARE_MAX = 0.7
"""A process is given so much of a core: catching up, and a worker that is away, take the rest."""
QUEUES_MIB = 64
"""`limits.fetch_queue_bytes_max` and `limits.produce_queue_bytes_max` of a lane, as they are by default."""
OFF_MAX = 0.25
"""How far a measured load may be off what the formula says."""


@dataclass(frozen=True, slots=True)
class Demand:
    """A load. `lanes`: None for what `lanes: auto` would choose; `linger_ms` as `commit.linger_ms`; `batch_records`:
    how many records stand in a batch of the source, on average."""

    records_per_s: float
    bytes_per_record: float
    partitions: int
    lanes: int | None = None
    linger_ms: float = 3.0
    batch_records: float = 10.0


@dataclass(frozen=True, slots=True)
class Coefficients:
    """What was measured. Core seconds are of all threads of a worker."""

    cores_idle: float
    cores_idle_per_lane: float
    core_s_per_million_records: float
    core_s_per_million_batches: float
    core_s_per_gib: float
    core_s_per_thousand_transactions: float
    commit_ms: float
    """What a transaction takes besides `commit.linger_ms`: it grows with the distance of the target."""
    memory_mib: float
    memory_mib_per_lane: float

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Coefficients:
        """From a file of results."""
        return cls(**{field.name: float(found[field.name]) for field in fields(cls)})


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a load takes. `memory_mib_max` is with full queues: a backlog, or a target that is slow."""

    lanes: int
    transactions_per_s: float
    mib_per_s: float
    cores: float
    processes: int
    memory_mib: float
    memory_mib_max: float


def estimate(demand: Demand, known: Coefficients) -> Estimate:
    """The formula.

    - transactions/s = lanes / (linger + commit), and no more than records/s: a lane ends a transaction when nothing
      more is there to copy;
    - cores = idle + e * lanes + a * records/s + f * batches/s + b * bytes/s +
      c * transactions/s;
    - memory = base + d * lanes, and at most the lanes' queues more.
    """
    auto = min(LANES_AUTO_MAX, math.ceil(demand.partitions / PARTITIONS_PER_LANE))
    lanes = demand.lanes or max(1, auto)
    cycle_s = (demand.linger_ms + known.commit_ms) / 1_000
    transactions_per_s = min(lanes / cycle_s, demand.records_per_s)
    bytes_per_s = demand.records_per_s * demand.bytes_per_record
    cores = (
        known.cores_idle
        + known.cores_idle_per_lane * lanes
        + known.core_s_per_million_records * demand.records_per_s / 1e6
        + known.core_s_per_million_batches * demand.records_per_s / demand.batch_records / 1e6
        + known.core_s_per_gib * bytes_per_s / 2**30
        + known.core_s_per_thousand_transactions * transactions_per_s / 1e3
    )
    memory_mib = known.memory_mib + lanes * known.memory_mib_per_lane
    return Estimate(
        lanes=lanes,
        transactions_per_s=transactions_per_s,
        mib_per_s=bytes_per_s / MIB,
        cores=cores,
        processes=max(1, math.ceil(cores / SHARE_MAX)),
        memory_mib=memory_mib,
        memory_mib_max=memory_mib + lanes * QUEUES_MIB,
    )


def newest() -> dict[str, Any]:
    """The last results. Raises ClickException where nothing was measured."""
    files = sorted(RESULTS.glob("*.json"))
    if not files:
        raise click.ClickException("nothing was measured: python -m benchmarks.sizing_measure")
    found: dict[str, Any] = json.loads(files[-1].read_text())
    return found


def table(found: Mapping[str, Any]) -> str:
    """The lines of the page between `BEGIN` and `END`."""
    machine, settings = found["machine"], found["settings"]
    known, cores = Coefficients.of(found["coefficients"]), machine["cores"]
    lines = [
        "",
        f"{settings['started'][:10]}: {machine['cpu']}, {cores} cores, load average {settings['load_average']} (above "
        f"{cores} the machine was busy with other things, too); Python {machine['python']}, librdkafka "
        f"{machine['librdkafka']}, {settings['brokers']}, {settings['seconds']:.0f} s each.",
        "",
        "| coefficient | |",
        "|---|---|",
        f"| idle, e | {known.cores_idle:.4f} cores, {known.cores_idle_per_lane:.4f} cores for each lane |",
        f"| a | {known.core_s_per_million_records:.1f} core seconds for a million records |",
        f"| f | {known.core_s_per_million_batches:.1f} core seconds for a million batches of the source |",
        f"| b | {known.core_s_per_gib:.1f} core seconds for a GiB |",
        f"| c | {known.core_s_per_thousand_transactions:.2f} core seconds for a thousand transactions |",
        f"| commit | {known.commit_ms:.1f} ms |",
        f"| base, d | {known.memory_mib:.0f} MiB, {known.memory_mib_per_lane:.1f} MiB for each lane |",
        "",
        "| load that was not fitted | | by the formula | measured | off by |",
        "|---|---|---|---|---|",
    ]
    for run in found["checked"]:
        for name, unit, digits in (
            ("cores", "cores", 3),
            ("transactions_per_s", "transactions/s", 0),
            ("memory_mib", "MiB", 0),
        ):
            said, seen = run["said"][name], run["measured"][name]
            off = seen / said - 1
            marked = f"{off:+.0%}" if abs(off) <= OFF_MAX else f"**{off:+.0%}**"
            lines.append(f"| {run['name']} | {unit} | {said:.{digits}f} | {seen:.{digits}f} | {marked} |")
    return "\n".join([*lines, "", ""])


def written(text: str, found: Mapping[str, Any]) -> str:
    """The page with these results."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table(found)}{END}{after}"


@click.command()
@click.option("--records", type=float, required=True, help="Records a second.")
@click.option("--bytes", "bytes_", type=float, required=True, help="Of a record: key, value and headers.")
@click.option("--partitions", type=int, required=True)
@click.option("--lanes", type=int, default=None, help="Default: as `lanes: auto` chooses.")
@click.option("--batch-records", type=float, default=10.0, show_default=True, help="Records in a batch of the source.")
@click.option("--linger-ms", type=float, default=3.0, show_default=True, help="commit.linger_ms of the flow.")
def main(
    records: float, bytes_: float, partitions: int, lanes: int | None, batch_records: float, linger_ms: float
) -> None:
    """Say what a flow of such a load takes, by the coefficients that were measured last."""
    demand = Demand(records, bytes_, partitions, lanes, linger_ms, batch_records)
    found = estimate(demand, Coefficients.of(newest()["coefficients"]))
    click.echo(f"lanes               {found.lanes}")
    click.echo(f"transactions/s      {found.transactions_per_s:.0f}")
    click.echo(f"MiB/s               {found.mib_per_s:.1f} from the source, and as much to the target")
    click.echo(f"cores               {found.cores:.2f}: {counted(found.processes, 'process', 'processes')}")
    click.echo(f"memory, MiB         {found.memory_mib:.0f}; with full queues {found.memory_mib_max:.0f}")


if __name__ == "__main__":
    main()
