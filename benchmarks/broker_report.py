"""The newest figures of the broker in docs/performance.md; `python -m benchmarks.broker_report` writes them."""

from __future__ import annotations

from typing import Any

import click

from benchmarks import report
from benchmarks.broker import FLUSHING
from benchmarks.serving import Embedded, Real

RESULTS = report.RESULTS / "broker"
BEGIN, END = "<!-- broker: python -m benchmarks.broker_report -->\n", "<!-- end of broker -->\n"
ROWS = (  # title, case, figure, format
    ("produced at work, records/s", "throughput", "produce_per_s", "{:,.0f}"),
    ("produced after a start, records/s", "start", "first_produce_per_s", "{:,.0f}"),
    ("consumed, records/s", "throughput", "consume_per_s", "{:,.0f}"),
    ("transactions of 10 records, commits/s", "transactions", "commits_per_s", "{:,.0f}"),
    ("start with nothing, s", "start", "empty_s", "{:.2f}"),
    ("start with 1 GiB after a kill, s", "start", "gib_s", "{:.2f}"),
    ("memory idle, MiB", "start", "idle_mib", "{:,.0f}"),
    ("peak memory while producing, MiB", "throughput", "produce_peak_mib", "{:,.0f}"),
)


def section(results: dict[str, Any]) -> str:
    """Markdown of one results file."""
    machine, settings, medians, runs = (results[key] for key in ("machine", "settings", "median", "runs"))
    lines = [
        f"{settings['started'][:10]}: {machine['cpu']}, {machine['cores']} cores; Python {machine['python']}, "
        f"librdkafka {machine['librdkafka']}, {machine['kafka']};",
        f"{settings['records']:,} records of 256 bytes, transactions for {settings['seconds']:.0f} s, "
        f"median of {settings['runs']}.",
        "",
        "| | embedded broker | lowest to highest | Kafka | lowest to highest | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for title, case, figure, form in ROWS:
        ours, theirs = (medians[case][name][figure] for name in (Embedded.name, Real.name))
        spreads = [report.spread(runs[case][name], figure, form) for name in (Embedded.name, Real.name)]
        lines.append(
            f"| {title} | {form.format(ours)} | {spreads[0]} | {form.format(theirs)} | {spreads[1]} "
            f"| {ours / theirs:.2f} |"
        )
    ours = medians["transactions"][Embedded.name]
    flushed = medians["transactions"][FLUSHING]["commits_per_s"]
    lines += [
        "",
        f"A transaction waits for the disk {ours['fsyncs_each']:.2f} times, what its producer began with included. "
        "Kafka that waits for it "
        f"too (`flush.messages=1`) makes {flushed:,.0f} commits/s: {ours['commits_per_s'] / flushed:.1f} times as many "
        "here.",
    ]
    return "\n".join(lines) + "\n"


def written(document: str, results: dict[str, Any]) -> str:
    """The document with these figures replaced. Raises ValueError without the two markers."""
    return report.between(document, BEGIN, END, section(results))


@click.command()
def main() -> None:
    """Write the newest results into docs/performance.md."""
    report.update(RESULTS, written, "python -m benchmarks.broker")


if __name__ == "__main__":
    main()
