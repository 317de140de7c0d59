"""The newest results as Markdown, in docs/performance.md and, the most important ones, in README.md.

`python -m benchmarks.report` writes both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.systems import Eos, MirrorMaker

ROOT = Path(__file__).parents[1]
RESULTS, DOCUMENT = ROOT / "benchmarks" / "results", ROOT / "docs" / "performance.md"
README, DEVELOPERS = ROOT / "README.md", ROOT / "benchmarks" / "README.md"
BEGIN, END = "<!-- figures: python -m benchmarks.report -->\n", "<!-- end of figures -->\n"
README_BEGIN, README_END = "<!-- comparison: python -m benchmarks.report -->\n", "<!-- end of comparison -->\n"
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


COMPARED = (  # what the README shows, in its words
    ("throughput", "records_per_s", "throughput, records/s"),
    ("throughput", "cpu_s_per_million", "CPU seconds per million records"),
    ("throughput", "rss_peak_mib", "peak memory, MiB"),
    ("recovery", "kill_to_commit_s", "from SIGKILL to the next committed record, s"),
)


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
        "| | eos-replicate | MirrorMaker 2 | ratio |",
        "|---|---|---|---|",
    ]
    for (case, figure), (title, form) in FIGURES.items():
        ours, theirs, ratio = _cells(medians, case, figure, form)
        lines.append(f"| {title} | {ours} | {theirs} | {ratio} |")
    lines += ["", "| delivery | records/s | CPU s per million records |", "|---|---|---|"]
    for mode, figures in medians["modes"].items():
        lines.append(f"| `{mode}` | {figures['records_per_s']:,.0f} | {figures['cpu_s_per_million']:.2f} |")
    lines += [f"\nNot counted: {stuck}." for stuck in results.get("stuck", ())]
    return "\n".join(lines) + "\n"


def _words(ratio: float, rate: bool) -> str:
    """A ratio to MirrorMaker 2 as a reader says it."""
    if rate:
        return f"{ratio:.1f} times"
    return f"{abs(1 - ratio):.0%} {'less' if ratio < 1 else 'more'}".replace("%", " %")


def comparison(results: dict[str, Any]) -> str:
    """Markdown of what the README says of one results file."""
    machine, settings, medians = results["machine"], results["settings"], results["median"]
    lines = ["| | eos-replicate | MirrorMaker 2 | |", "|---|---|---|---|"]
    for case, figure, title in COMPARED:
        form = FIGURES[case, figure][1]
        ours, theirs, _ = _cells(medians, case, figure, form)
        ratio = medians[case][Eos.name][figure] / medians[case][MirrorMaker.name][figure]
        lines.append(f"| {title} | {ours} | {theirs} | **{_words(ratio, figure.endswith('_per_s'))}** |")
    lines += [
        "",
        f"{settings['started'][:10]}, {machine['kafka']}, {machine['cores']} cores for the copying and both clusters, "
        f"{settings['records']:,} records of 256 bytes, median of {settings['runs']}: "
        "[how it was measured](docs/performance.md).",
    ]
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


def compared(document: str, results: dict[str, Any]) -> str:
    """The README with its figures replaced. Raises ValueError without the two markers."""
    return between(document, README_BEGIN, README_END, comparison(results))


def update(results: Path, write: Callable[[str, dict[str, Any]], str], command: str, document: Path = DOCUMENT) -> None:
    """Put the newest of `results` into `document`; `command` makes some."""
    path = newest(results)
    if path is None:
        raise click.ClickException(f"no results in {results}: run `{command}` first")
    document.write_text(write(document.read_text(), json.loads(path.read_text())))
    click.echo(f"{document.relative_to(ROOT)}: {path.name}")


@click.command()
def main() -> None:
    """Write the newest results into docs/performance.md and README.md."""
    update(RESULTS, written, "make bench")
    update(RESULTS, compared, "make bench", README)


if __name__ == "__main__":
    main()
