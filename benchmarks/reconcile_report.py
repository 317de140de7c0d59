"""The newest figures of reconciliation in docs/performance.md; `python -m benchmarks.reconcile_report` writes them."""

from __future__ import annotations

from typing import Any

import click

from benchmarks import report

RESULTS = report.RESULTS / "reconcile"
BEGIN, END = "<!-- reconcile: python -m benchmarks.reconcile_report -->\n", "<!-- end of reconcile -->\n"
SHAPES = report.RESULTS / "reconcile_shapes"
SHAPES_BEGIN = "<!-- reconcile shapes: python -m benchmarks.reconcile_report -->\n"
SHAPES_END = "<!-- end of reconcile shapes -->\n"
MEMORY = report.RESULTS / "reconcile_memory"
MEMORY_BEGIN = "<!-- reconcile memory: python -m benchmarks.reconcile_report -->\n"
MEMORY_END = "<!-- end of reconcile memory -->\n"


def section(results: dict[str, Any]) -> str:
    """Markdown of one results file."""
    machine, settings, medians = results["machine"], results["settings"], results["median"]
    (few, less), *_, (many, more) = sorted((int(size), peak) for size, peak in results["peak_mib"].items())
    lines = [
        f"{settings['started'][:10]}: {machine['cpu']}, {machine['cores']} cores; pyspark {settings['pyspark']} on "
        f"{settings['master']}, {machine['kafka']};",
        f"{settings['records']:,} records of 256 bytes on either side in 4 partitions, median of {settings['runs']}.",
        "",
        "| | | ratio |",
        "|---|---|---|",
        f"| Spark reads every column of both sides, s | {medians['read_s']:.1f} | |",
        f"| quick pass over both sides, s | {medians['quick_s']:.1f} | {medians['quick_s'] / medians['read_s']:.2f} |",
        f"| peak memory of all processes, {few:,} records, MiB | {less:,.0f} | |",
        f"| peak memory of all processes, {many:,} records, MiB | {more:,.0f} | {more / less:.2f} |",
    ]
    return "\n".join(lines) + "\n"


def shapes_section(results: dict[str, Any]) -> str:
    """Markdown of one results file of `benchmarks.reconcile_shapes`."""
    machine, settings, medians = results["machine"], results["settings"], results["median"]
    lines = [
        f"{settings['started'][:10]}: {machine['cpu']}, {machine['cores']} cores; pyspark {settings['pyspark']} on "
        f"{settings['master']}, {machine['kafka']}; median of {settings['runs']}.",
        "",
        "| | one task | several tasks | ratio |",
        "|---|---|---|---|",
    ]
    one, several = medians["both_sides_one_task_s"], medians["both_sides_several_tasks_s"]
    title = f"both sides of a partition of {settings['records']:,} records, which are two tasks in any case, s"
    lines.append(f"| {title} | {one:.1f} | {several:.1f} | {one / several:.2f} |")
    lines.append(
        f"| full pass over {settings['small']:,} records with {settings['differences']:,} differences, s | | "
        f"{medians['differences_s']:.1f} | |"
    )
    return "\n".join(lines) + "\n"


def memory_section(results: dict[str, Any]) -> str:
    """Markdown of one results file of `benchmarks.reconcile_memory`."""
    machine, settings, runs = results["machine"], results["settings"], results["runs"]
    lines = [
        f"{settings['started'][:10]}: {machine['cpu']}, {machine['cores']} cores; pyspark {settings['pyspark']} with "
        f"default settings, {machine['kafka']}.",
        "",
        "| records | partitions | sides | driver, MiB | JVM, MiB | Python workers, MiB | together, MiB | s | load |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for run in sorted(runs, key=lambda run: (run["partitions"], run["records"], run["sides"] != "equal")):
        figures = " | ".join(
            f"{run.get(part, 0):,.0f}" for part in ("driver", "jvm", "workers", "all", "seconds", "load")
        )
        lines.append(f"| {run['records']:,} | {run['partitions']} | {run['sides']} | {figures} |")
    return "\n".join(lines) + "\n"


def memory_written(document: str, results: dict[str, Any]) -> str:
    """The document with these figures replaced. Raises ValueError without the two markers."""
    return report.between(document, MEMORY_BEGIN, MEMORY_END, memory_section(results))


def shapes_written(document: str, results: dict[str, Any]) -> str:
    """The document with these figures replaced. Raises ValueError without the two markers."""
    return report.between(document, SHAPES_BEGIN, SHAPES_END, shapes_section(results))


def written(document: str, results: dict[str, Any]) -> str:
    """The document with these figures replaced. Raises ValueError without the two markers."""
    return report.between(document, BEGIN, END, section(results))


@click.command()
def main() -> None:
    """Write the newest results into docs/performance.md."""
    report.update(RESULTS, written, "python -m benchmarks.reconcile")
    report.update(SHAPES, shapes_written, "python -m benchmarks.reconcile_shapes")
    report.update(MEMORY, memory_written, "python -m benchmarks.reconcile_memory")


if __name__ == "__main__":
    main()
