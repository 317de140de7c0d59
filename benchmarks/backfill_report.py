"""The newest figures of the backfill in docs/performance.md; `python -m benchmarks.backfill_report` writes them."""

from __future__ import annotations

from typing import Any

import click

from benchmarks import report

RESULTS = report.RESULTS / "backfill"
BEGIN, END = "<!-- backfill: python -m benchmarks.backfill_report -->\n", "<!-- end of backfill -->\n"


def section(results: dict[str, Any]) -> str:
    """Markdown of one results file."""
    machine, settings = results["machine"], results["settings"]
    rates = {name: figures["records_per_s"] for name, figures in results["median"]["backlog"].items()}
    live = rates["eos-replicate"]
    spread = {name: report.spread(runs, "records_per_s") for name, runs in results["runs"]["backlog"].items()}
    (few, less), *_, (many, more) = sorted((int(size), peak) for size, peak in results["peak_mib"].items())
    lines = [
        f"{settings['started'][:10]}: {machine['cpu']}, {machine['cores']} cores; pyspark on local[*,4], "
        f"{machine['kafka']};",
        f"{settings['records']:,} records of 256 bytes in 4 partitions, median of {settings['runs']}.",
        "",
        "| | records/s | lowest to highest | of the live worker |",
        "|---|---|---|---|",
        f"| backfill | {rates['backfill']:,.0f} | {spread['backfill']} | {rates['backfill'] / live:.2f} |",
        f"| live worker, one lane | {live:,.0f} | {spread['eos-replicate']} | 1 |",
        f"| MirrorMaker 2 | {rates['MirrorMaker 2']:,.0f} | {spread['MirrorMaker 2']} "
        f"| {rates['MirrorMaker 2'] / live:.2f} |",
        "",
        f"Peak memory of the backfill with driver, executor and tasks: {less:,.0f} MiB for {few:,} records, "
        f"{more:,.0f} MiB for {many:,} ({more / less:.2f}).",
    ]
    return "\n".join(lines) + "\n"


def written(document: str, results: dict[str, Any]) -> str:
    """The document with these figures replaced. Raises ValueError without the two markers."""
    return report.between(document, BEGIN, END, section(results))


@click.command()
def main() -> None:
    """Write the newest results into docs/performance.md."""
    report.update(RESULTS, written, "python -m benchmarks.backfill")


if __name__ == "__main__":
    main()
