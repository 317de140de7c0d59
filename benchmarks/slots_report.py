"""The newest figures of backfills in two slots in docs/performance.md.

`python -m benchmarks.slots_report` writes them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from benchmarks import report, slots

BEGIN, END = "<!-- slots: python -m benchmarks.slots_report -->\n", "<!-- end of slots -->\n"


def newest_of_each(directory: Path) -> dict[str, dict[str, Any]]:
    """By kind of data, the newest results file that has it: a run may measure one kind alone."""
    files = [json.loads(path.read_text()) for path in sorted(directory.glob("*.json"))]
    return {data: results for data in slots.DATA for results in files if data in results["median"]}


def section(newest: Mapping[str, dict[str, Any]]) -> str:
    """Markdown of these results."""
    lines = []
    for data, results in newest.items():
        machine, settings = results["machine"], results["settings"]
        lines.append(
            f"{settings['started'][:10]}, {data}: {machine['cpu']}, {machine['cores']} cores; {machine['kafka']}; "
            f"{settings['records']:,} records, median of {settings['runs']}.\n"
        )
    lines += [
        "| partitions | | records/s | lowest to highest | backfill over it |",
        "|---|---|---|---|---|",
    ]
    for data, results in newest.items():
        verdicts = {one["beside"]: one for one in results["verdicts"] if one["data"] == data}
        for system, figures in results["median"][data].items():
            beside = verdicts.get(system)
            ratio = f"{beside['ratio']:.2f}" if beside else ""
            spread = report.spread(results["runs"][data][system], "records_per_s")
            lines.append(f"| {data} | {system} | {figures['records_per_s']:,.0f} | {spread} | {ratio} |")
    return "\n".join(lines) + "\n"


def written(document: str, newest: Mapping[str, dict[str, Any]]) -> str:
    """The document with these figures replaced. Raises ValueError without the two markers."""
    return report.between(document, BEGIN, END, section(newest))


@click.command()
def main() -> None:
    """Write the newest results into docs/performance.md."""
    newest = newest_of_each(slots.DIRECTORY)
    if not newest:
        raise click.ClickException(f"no results in {slots.DIRECTORY}: run `python -m benchmarks.slots` first")
    report.DOCUMENT.write_text(written(report.DOCUMENT.read_text(), newest))
    click.echo(f"{report.DOCUMENT.relative_to(report.ROOT)}: {', '.join(newest)}")


if __name__ == "__main__":
    main()
