"""The newest starts with many partitions in docs/performance.md; `python -m benchmarks.many_partitions_report` writes
them."""

from __future__ import annotations

from typing import Any

import click

from benchmarks import report

RESULTS = report.RESULTS / "many_partitions"
BEGIN, END = (
    "<!-- many partitions: python -m benchmarks.many_partitions_report -->\n",
    "<!-- end of many partitions -->\n",
)
KINDS = {
    "new": "new flow, creates its target topics",
    "prepared": "new flow, its target topics exist",
    "restarted": "restarted flow",
}


def section(results: dict[str, Any]) -> str:
    """Markdown of one results file."""
    machine, settings = results["machine"], results["settings"]
    lines = [
        f"{settings['started'][:10]}: {machine['cpu']}, {machine['cores']} cores; Python {machine['python']}, "
        f"librdkafka {machine['librdkafka']}, {machine['kafka']};",
        f"{settings['topics']} topics of {settings['partitions']} partitions, one lane, median of {settings['runs']}.",
        "",
        "| delay of each direction, ms | round trip, ms | | first commit, s | lowest to highest | CPU s |",
        "|---|---|---|---|---|---|",
    ]
    for delay, kinds in results["runs"].items():
        for kind, shown in KINDS.items():
            starts = kinds[kind]
            lines.append(
                f"| {delay} | {2 * float(delay):g} | {shown} | {results['median'][delay][kind]:.1f} "
                f"| {report.spread(starts, 'first_commit_s', '{:.1f}')} | {report.spread(starts, 'cpu_s', '{:.1f}')} |"
            )
    led = [start["led_s"] for kinds in results["runs"].values() for start in kinds["created"]]
    lines += [
        "",
        f"Kafka itself needs {min(led):.1f} to {max(led):.1f} s from a request to create as many partitions until it "
        "leads them all, asked without delay; a new flow that creates its target topics waits for that.",
    ]
    return "\n".join(lines) + "\n"


def written(document: str, results: dict[str, Any]) -> str:
    """The document with these figures replaced. Raises ValueError without the two markers."""
    return report.between(document, BEGIN, END, section(results))


@click.command()
def main() -> None:
    """Write the newest results into docs/performance.md."""
    report.update(RESULTS, written, "python -m benchmarks.many_partitions")


if __name__ == "__main__":
    main()
