"""The newest results as a Markdown section of docs/performance.md; `python -m benchmarks.report` writes it there."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.systems import Eos, MirrorMaker

ROOT = Path(__file__).parents[1]
RESULTS, DOCUMENT = ROOT / "benchmarks" / "results", ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- figures: python -m benchmarks.report -->\n", "<!-- end of figures -->\n"
FIGURES = {  # title and format by case and figure
    ("throughput", "records_per_s"): ("throughput, records/s", "{:,.0f}"),
    ("throughput", "cpu_s_per_million"): ("CPU s per million records, copying", "{:.2f}"),
    ("throughput", "cpu_s_per_million_from_start"): ("CPU s per million records, start included", "{:.2f}"),
    ("throughput", "rss_peak_mib"): ("peak memory with a backlog, MiB", "{:,.0f}"),
    ("latency", "p50_ms"): ("latency p50, ms", "{:.0f}"),
    ("latency", "p99_ms"): ("latency p99, ms", "{:.0f}"),
    ("stalled", "rss_peak_mib"): ("peak memory with a stalled target, MiB", "{:,.0f}"),
    ("recovery", "kill_to_commit_s"): ("SIGKILL to first new commit, s", "{:.1f}"),
}
BARS = {
    ("throughput", "records_per_s"): "at least 0.9 of MirrorMaker 2",
    ("throughput", "cpu_s_per_million"): "at most half",
    ("throughput", "cpu_s_per_million_from_start"): "at most half",
    ("throughput", "rss_peak_mib"): "at most 300",
    ("latency", "p50_ms"): "at most 25",
    ("latency", "p99_ms"): "at most 150",
    ("stalled", "rss_peak_mib"): "at most 300",
    ("recovery", "kill_to_commit_s"): "at most 3",
}


def newest(directory: Path) -> Path | None:
    """The results file with the latest date in its name."""
    return max(directory.glob("*.json"), default=None)


def _cells(medians: dict[str, Any], case: str, figure: str, form: str) -> tuple[str, str, str]:
    ours = medians[case][Eos.name][figure]
    theirs = medians[case].get(MirrorMaker.name, {}).get(figure)
    if theirs is None:
        return form.format(ours), "-", "-"
    return form.format(ours), form.format(theirs), f"{ours / theirs:.2f}"


def section(results: dict[str, Any]) -> str:
    """Markdown of one results file: machine, the two systems beside each other, the delivery modes."""
    machine, settings, medians = results["machine"], results["settings"], results["median"]
    lines = [
        f"{settings['started'][:10]}: {machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB; Python "
        f"{machine['python']}, librdkafka {machine['librdkafka']}, eos-replicate {machine['eos-replicate']},",
        f"{machine['kafka']}; {settings['records']:,} records, median of {settings['runs']}.",
        "",
        "| | eos-replicate | MirrorMaker 2 | ratio | aim |",
        "|---|---|---|---|---|",
    ]
    for (case, figure), (title, form) in FIGURES.items():
        ours, theirs, ratio = _cells(medians, case, figure, form)
        lines.append(f"| {title} | {ours} | {theirs} | {ratio} | {BARS[case, figure]} |")
    lines += ["", "| delivery | records/s | CPU s per million records |", "|---|---|---|"]
    for mode, figures in medians["modes"].items():
        lines.append(f"| `{mode}` | {figures['records_per_s']:,.0f} | {figures['cpu_s_per_million']:.2f} |")
    lines += [f"\nNot counted: {stuck}." for stuck in results.get("stuck", ())]
    return "\n".join(lines) + "\n"


def spread(runs: Sequence[Mapping[str, float]], figure: str, form: str = "{:,.0f}") -> str:
    """The lowest and the highest of a figure, over the runs that have it."""
    values = [run[figure] for run in runs if figure in run]
    return f"{form.format(min(values))} to {form.format(max(values))}"


def between(document: str, begin: str, end: str, text: str) -> str:
    """The document with what stands between two markers replaced. Raises ValueError without them."""
    head, tail = document.index(begin) + len(begin), document.index(end)
    return f"{document[:head]}\n{text}\n{document[tail:]}"


def written(document: str, results: dict[str, Any]) -> str:
    """The document with its figures replaced. Raises ValueError without the two markers."""
    return between(document, BEGIN, END, section(results))


def update(results: Path, write: Callable[[str, dict[str, Any]], str], command: str) -> None:
    """Put the newest of `results` into docs/performance.md; `command` makes some."""
    path = newest(results)
    if path is None:
        raise click.ClickException(f"no results in {results}: run `{command}` first")
    DOCUMENT.write_text(write(DOCUMENT.read_text(), json.loads(path.read_text())))
    click.echo(f"{DOCUMENT.name}: {path.name}")


@click.command()
def main() -> None:
    """Write the newest results into docs/performance.md."""
    update(RESULTS, written, "make bench")


if __name__ == "__main__":
    main()
