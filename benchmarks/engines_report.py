"""The newest results of each row of `benchmarks.engines`: tables in docs/performance.md, a sentence in README.md, and a
picture for both.

`python -m benchmarks.engines_report` writes all of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import click
from jinja2 import Environment, StrictUndefined

from benchmarks import report
from benchmarks.shapes import SHAPES

RESULTS = report.RESULTS / "engines"
PICTURE = report.ROOT / "docs" / "images" / "engines.svg"
BEGIN, END = "<!-- engines: python -m benchmarks.engines_report -->\n", "<!-- end of engines -->\n"
PIPE, RECORDS, BATCHES, MIRROR = "raw pipe", "records", "batches", "MirrorMaker 2"
SYSTEMS = (PIPE, RECORDS, BATCHES, MIRROR)
RATE, CPU = "records_per_s", "cpu_s_per_million"
Figures = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Aim:
    """A bound of `batches` beside another system in the same run: of rates at least, of CPU at most."""

    beside: str
    factor: float
    words: str

    def met(self, figures: Figures, figure: str) -> bool:
        """Whether it is reached. KeyError where a system wasn't measured."""
        ours, theirs = figures[BATCHES][figure], figures[self.beside][figure]
        return ours >= self.factor * theirs if figure == RATE else ours <= self.factor * theirs


AIMS: dict[str, tuple[Aim, Aim]] = {
    "plain": (Aim(PIPE, 0.9, "0.9 of the pipe"), Aim(MIRROR, 1 / 10, "a tenth of MirrorMaker 2")),
    "lz4": (Aim(PIPE, 0.9, "0.9 of the pipe"), Aim(MIRROR, 1 / 15, "a 15th of MirrorMaker 2")),
    "far": (Aim(RECORDS, 1.0, "`records`"), Aim(RECORDS, 1.0, "`records`")),
    "small": (Aim(RECORDS, 1.0, "`records`"), Aim(RECORDS, 1.0, "`records`")),
    "zstd": (Aim(MIRROR, 3.0, "3 times MirrorMaker 2"), Aim(MIRROR, 1 / 5, "a fifth of MirrorMaker 2")),
}
PERCENT_MAX, MIB_MAX, FAR_MB_PER_S_MIN = 20.0, 250.0, 20.0
P50_MS_MAX, P99_MS_MAX, BACKFILL_FACTOR = 10.0, 50.0, 4.0
TITLES = {"latency": "latency", "memory": "a backlog", "partitions": "1,000 partitions", "backfill": "backfill"}

PICTURE_SOURCE = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {{ height }}" font-family="sans-serif" font-size="13">
<title>Records a second beside MirrorMaker 2, for each kind of records</title>
<rect width="720" height="{{ height }}" fill="#ffffff"/>
{% for bar in bars -%}
<text x="12" y="{{ bar.y + 14 }}" fill="#24292f">{{ bar.title }}</text>
{% for each in bar.parts -%}
<rect x="260" y="{{ each.y }}" width="{{ each.width }}" height="13" fill="{{ each.color }}"/>
<text x="{{ 266 + each.width }}" y="{{ each.y + 11 }}" fill="#24292f">{{ each.label }}</text>
{% endfor %}{% endfor -%}
<text x="12" y="{{ height - 12 }}" fill="#57606a">MirrorMaker 2 is 1. All share {{ cores }} cores.</text>
</svg>
"""


def gathered(files: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Take each row from the last of these results that has it: a row is measured in one run, not all rows are.

    The machine is that of the first one in which any row was measured that counts; `others` says by row which other
    results it is from.
    """
    from_file = {row: results for results in files for row in results["median"]}
    first = next(results for results in files if results in from_file.values())
    return {
        **first,
        "median": {row: results["median"][row] for row, results in from_file.items()},
        "others": {row: results for row, results in from_file.items() if results is not first},
        "stuck": [stuck for results in files if results in from_file.values() for stuck in results.get("stuck", ())],
    }


def newest() -> dict[str, Any]:
    """Read the newest results of each row. Raises ClickException where there are none."""
    files = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    if not files:
        raise click.ClickException(f"no results in {RESULTS}: run `python -m benchmarks.engines` first")
    return gathered(files)


def _measured(results: Mapping[str, Any]) -> list[str]:
    machine, settings = results["machine"], results["settings"]
    return [
        f"{settings['started'][:10]}: {machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB; Python "
        f"{machine['python']}, librdkafka {machine['librdkafka']}, {machine['kafka']};",
        f"median of {settings['runs']}.",
    ]


def section(results: dict[str, Any]) -> str:
    """Markdown of what was gathered."""
    medians = results["median"]
    lines = _measured(results)
    later: dict[str, list[str]] = {}
    for row, other in results.get("others", {}).items():
        later.setdefault(" ".join(_measured(other)), []).append(SHAPES[row].title if row in SHAPES else TITLES[row])
    lines += [f"{'; '.join(rows)}: on {measured}" for measured, rows in later.items()]
    lines += [
        "",
        *_rows("records/s", medians, RATE, "{:,.0f}"),
        "",
        *_rows("CPU s per million records", medians, CPU, "{:.2f}"),
        "",
        *_others(medians),
    ]
    lines += [f"\nNot counted: {stuck}." for stuck in results.get("stuck", ())]
    return "\n".join(lines) + "\n"


def _rows(heading: str, medians: Mapping[str, Figures], figure: str, form: str) -> list[str]:
    found = [
        f"| {heading} | {' | '.join(SYSTEMS)} | `{BATCHES}` : {MIRROR} |",
        f"|---|{'---|' * len(SYSTEMS)}---|",
    ]
    for name in (name for name in AIMS if name in medians):
        figures = medians[name]
        cells = [form.format(figures[it][figure]) if it in figures else "-" for it in SYSTEMS]
        ratio = f"{figures[BATCHES][figure] / figures[MIRROR][figure]:.2f}" if MIRROR in figures else "-"
        found.append(f"| {SHAPES[name].title} | {' | '.join(cells)} | {ratio} |")
    return found


class SingleFigure(NamedTuple):
    """What has a figure or two of its own: of one row, by system as it is called there."""

    title: str
    row: str
    figure: str
    names: tuple[str, str, str] = SYSTEMS[1:]


OTHERS = (
    SingleFigure("50 ms of delay each way, MB/s", "far", "mb_per_s"),
    SingleFigure("latency p50 at 1,000 records/s, ms", "latency", "p50_ms"),
    SingleFigure("latency p99 at 1,000 records/s, ms", "latency", "p99_ms"),
    SingleFigure("1,000 partitions, 20 B/s each: % of a core", "partitions", "cpu_percent"),
    SingleFigure("the same, then a target that stands still: peak memory, MiB", "partitions", "rss_stalled_peak_mib"),
    SingleFigure("a backlog, and a target that stands still: peak memory, MiB", "memory", "rss_peak_mib"),
    SingleFigure(
        "backfill of 4 million records on `local[*,4]`, records/s", "backfill", RATE,
        ("backfill, records", "backfill, batches", MIRROR),
    ),
)  # fmt: skip


def _others(medians: Mapping[str, Figures]) -> list[str]:
    lines = [f"| | {' | '.join(SYSTEMS[1:])} |", "|---|---|---|---|"]
    for it in OTHERS:
        if (found := medians.get(it.row)) is not None:
            cells = [f"{found[name][it.figure]:,.0f}" if name in found else "-" for name in it.names]
            lines.append(f"| {it.title} | {' | '.join(cells)} |")
    return lines


def aims(medians: Mapping[str, Figures]) -> dict[str, bool]:
    """Say of each aim that the developers have set whether it is reached. Those of rows that weren't measured, or
    without a system that is compared with, are left out."""
    found: dict[str, bool] = {}
    for name, pair in AIMS.items():
        for aim, figure in zip(pair, (RATE, CPU), strict=True):
            if {BATCHES, aim.beside} <= medians.get(name, {}).keys():
                found[f"{name}, {figure}: {aim.words}"] = aim.met(medians[name], figure)
    if BATCHES in (far := medians.get("far", {})):
        found[f"far: at least {FAR_MB_PER_S_MIN:.0f} MB/s"] = far[BATCHES]["mb_per_s"] >= FAR_MB_PER_S_MIN
    if {BATCHES, MIRROR} <= (steady := medians.get("latency", {})).keys():
        for figure, most in (("p50_ms", P50_MS_MAX), ("p99_ms", P99_MS_MAX)):
            bound = min(most, steady[MIRROR][figure] / 2)
            found[f"latency: {figure} at most {most:.0f}, and half of {MIRROR}"] = steady[BATCHES][figure] <= bound
    if BATCHES in (many := medians.get("partitions", {})):
        found[f"partitions: at most {PERCENT_MAX:.0f} % of a core"] = many[BATCHES]["cpu_percent"] <= PERCENT_MAX
        found[f"partitions: at most {MIB_MAX:.0f} MiB"] = many[BATCHES]["rss_stalled_peak_mib"] <= MIB_MAX
    if BATCHES in (stalled := medians.get("memory", {})):
        found[f"memory: at most {MIB_MAX:.0f} MiB"] = stalled[BATCHES]["rss_peak_mib"] <= MIB_MAX
    if {"backfill, batches", MIRROR} <= (history := medians.get("backfill", {})).keys():
        reached = history["backfill, batches"][RATE] >= BACKFILL_FACTOR * history[MIRROR][RATE]
        found[f"backfill: {BACKFILL_FACTOR:.0f} times {MIRROR}"] = reached
    return found


def picture(results: dict[str, Any]) -> str:
    """SVG of how many times MirrorMaker 2's rate both engines have."""
    medians, bars, y = results["median"], [], 16
    shown = [name for name in SHAPES if MIRROR in medians.get(name, {})]
    most = max(medians[name][BATCHES][RATE] / medians[name][MIRROR][RATE] for name in shown)
    for name in shown:
        parts = []
        for at, (system, color) in enumerate(((BATCHES, "#0969da"), (RECORDS, "#54aeff"), (MIRROR, "#8c959f"))):
            ratio = medians[name][system][RATE] / medians[name][MIRROR][RATE]
            label = system if system == MIRROR else f"{system} {ratio:.1f} times"
            parts.append({"y": y + 16 * at, "width": round(320 * ratio / most), "color": color, "label": label})
        bars.append({"title": SHAPES[name].title, "y": y, "parts": parts})
        y += 62
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(PICTURE_SOURCE)
    return template.render(bars=bars, height=y + 24, cores=results["machine"]["cores"]) + "\n"


def _of_records(results: dict[str, Any]) -> str:
    """Say what the default engine reaches with the records of the README's table, where MirrorMaker 2 is warmed up."""
    row = results["median"]["plain"]
    return (
        f"There MirrorMaker 2 is warmed up,\nand the default engine copies the records of the table above "
        f"**{row[RECORDS][RATE] / row[MIRROR][RATE]:.1f} times** as fast:"
    )


def summary(results: dict[str, Any]) -> str:
    """Say in a sentence what the README says of `engine: batches`, above the picture."""
    rows = [figures for name, figures in results["median"].items() if name in SHAPES and MIRROR in figures]
    rates = sorted(row[BATCHES][RATE] / row[MIRROR][RATE] for row in rows)
    shares = sorted(100 * row[BATCHES][CPU] / row[MIRROR][CPU] for row in rows)
    return (
        "`engine: batches` (experimental, not the default) copies whole record batches without decoding them: "
        f"**{rates[0]:.1f} to {rates[-1]:.1f} times**\nas many records a second as MirrorMaker 2, with "
        f"{shares[0]:.0f} to {shares[-1]:.0f} % of its CPU time, depending on the records\n"
        f"([all figures](docs/performance.md#both-engines)). {_of_records(results)}\n\n"
        "![Records a second beside MirrorMaker 2, for each kind of records](docs/images/engines.svg)\n"
    )


def written(document: str, results: dict[str, Any]) -> str:
    """The document with these figures replaced. Raises ValueError without the two markers."""
    return report.between(document, BEGIN, END, section(results))


def in_readme(document: str, results: dict[str, Any]) -> str:
    """The README with its sentence replaced. Raises ValueError without the two markers."""
    return report.between(document, BEGIN, END, summary(results))


@click.command()
def main() -> None:
    """Write the newest results into docs/performance.md, README.md, and the picture; say which aims they reach."""
    results = newest()
    report.README.write_text(in_readme(report.README.read_text(), results))
    report.DOCUMENT.write_text(written(report.DOCUMENT.read_text(), results))
    PICTURE.write_text(picture(results))
    click.echo(str(PICTURE.relative_to(report.ROOT)))
    for aim, reached in aims(results["median"]).items():
        click.echo(f"{'reached' if reached else 'missed'}: {aim}")


if __name__ == "__main__":
    main()
