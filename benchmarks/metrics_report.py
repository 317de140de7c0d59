"""What metrics cost, as docs/performance.md has it; `python -m benchmarks.metrics_report` writes the newest figures."""

from __future__ import annotations

from typing import Any

import click

from benchmarks import report

RESULTS = report.RESULTS / "metrics"
BEGIN, END = "<!-- metrics: python -m benchmarks.metrics_report -->\n", "<!-- end of metrics -->\n"


def section(results: dict[str, Any]) -> str:
    """Markdown of one results file."""
    machine, settings, figures = results["machine"], results["settings"], results["figures"]
    latency, scrape, at_rest = figures["latency_ms"], figures["scrape_ms"], figures["scrape_at_rest_ms"]
    lines = [
        f"{settings['started'][:10]}: {machine['cpu']}, {machine['cores']} cores, on which "
        f"{settings['load_average_before']:.1f} other threads wanted to run; Python {machine['python']}, "
        f"librdkafka {machine['librdkafka']}, {machine['kafka']};",
        f"{settings['topics']} topics of {settings['partitions']} partitions, one lane; "
        f"{settings['rate']:,} records/s while it copies; a scrape has {figures['scrape_bytes'] / 1024:,.0f} KiB.",
        "",
        "| | p50 | p99 | highest |",
        "|---|---|---|---|",
        _row("a scrape while nothing is copied, ms", at_rest),
        _row("a scrape while it copies, ms", scrape),
        _row("latency of records without scrapes, ms", latency["without"]),
        _row("latency of records with a scrape every second, ms", latency["with"]),
        "",
        f"CPU while nothing is copied, with a scrape every 15 s: {figures['idle_cpu_percent']:.1f} % of a core.",
    ]
    return "\n".join(lines) + "\n"


def _row(name: str, figures: dict[str, float]) -> str:
    return f"| {name} | {figures['p50']:.0f} | {figures['p99']:.0f} | {figures['max']:.0f} |"


def written(document: str, results: dict[str, Any]) -> str:
    """The document with these figures replaced. Raises ValueError without the two markers."""
    return report.between(document, BEGIN, END, section(results))


@click.command()
def main() -> None:
    """Write the newest results into docs/performance.md."""
    report.update(RESULTS, written, "python -m benchmarks.metrics")


if __name__ == "__main__":
    main()
