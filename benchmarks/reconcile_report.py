"""The newest figures of reconciliation in docs/performance.md; `python -m benchmarks.reconcile_report` writes them."""

from __future__ import annotations

from typing import Any

import click

from benchmarks import report

RESULTS = report.RESULTS / "reconcile"
BEGIN, END = "<!-- reconcile: python -m benchmarks.reconcile_report -->\n", "<!-- end of reconcile -->\n"
RATIO_MAX = 1.3


def section(results: dict[str, Any]) -> str:
    """Markdown of one results file."""
    machine, settings, medians = results["machine"], results["settings"], results["median"]
    (few, less), *_, (many, more) = sorted((int(size), peak) for size, peak in results["peak_mib"].items())
    lines = [
        f"{settings['started'][:10]}: {machine['cpu']}, {machine['cores']} cores; pyspark {settings['pyspark']} on "
        f"{settings['master']}, {machine['kafka']};",
        f"{settings['records']:,} records of 256 bytes on either side in 4 partitions, median of {settings['runs']}.",
        "",
        "| | | ratio | aim |",
        "|---|---|---|---|",
        f"| Spark reads every column of both sides, s | {medians['read_s']:.1f} | | |",
        f"| quick pass over both sides, s | {medians['quick_s']:.1f} | {medians['quick_s'] / medians['read_s']:.2f} "
        f"| at most {RATIO_MAX} of the read |",
        f"| peak memory of all processes, {few:,} records, MiB | {less:,.0f} | | |",
        f"| peak memory of all processes, {many:,} records, MiB | {more:,.0f} | {more / less:.2f} | the same |",
    ]
    return "\n".join(lines) + "\n"


def written(document: str, results: dict[str, Any]) -> str:
    """The document with these figures replaced. Raises ValueError without the two markers."""
    return report.between(document, BEGIN, END, section(results))


@click.command()
def main() -> None:
    """Write the newest results into docs/performance.md."""
    report.update(RESULTS, written, "python -m benchmarks.reconcile")


if __name__ == "__main__":
    main()
