"""The newest results of `benchmarks.engines`: tables in docs/performance.md, and a picture for it and for README.md.

`python -m benchmarks.engines_report` writes both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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

PICTURE_SOURCE = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {{ height }}" font-family="sans-serif" font-size="13">
<title>Records a second beside MirrorMaker 2, by what is copied</title>
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


def section(results: dict[str, Any]) -> str:
    """Markdown of one results file."""
    machine, settings, medians = results["machine"], results["settings"], results["median"]
    lines = [
        f"{settings['started'][:10]}: {machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB; Python "
        f"{machine['python']}, librdkafka {machine['librdkafka']}, {machine['kafka']};",
        f"median of {settings['runs']}; `{BATCHES}` passes record batches through, `{RECORDS}` is the default.",
        "",
        f"| records/s | {' | '.join(SYSTEMS)} | aim of `{BATCHES}`: at least | |",
        f"|---|{'---|' * len(SYSTEMS)}---|---|",
        *_rows(medians, RATE, "{:,.0f}"),
        "",
        f"| CPU s per million records | {' | '.join(SYSTEMS)} | aim of `{BATCHES}`: at most | |",
        f"|---|{'---|' * len(SYSTEMS)}---|---|",
        *_rows(medians, CPU, "{:.2f}"),
        "",
        *_others(medians),
    ]
    lines += [f"\nNot counted: {stuck}." for stuck in results.get("stuck", ())]
    return "\n".join(lines) + "\n"


def _rows(medians: Mapping[str, Figures], figure: str, form: str) -> list[str]:
    found = []
    for name, (rate, cpu) in AIMS.items():
        if name not in medians:
            continue
        cells = [form.format(medians[name][it][figure]) if it in medians[name] else "-" for it in SYSTEMS]
        aim = rate if figure == RATE else cpu
        met = "passes" if aim.met(medians[name], figure) else "**fails**"
        found.append(f"| {SHAPES[name].title} | {' | '.join(cells)} | {aim.words} | {met} |")
    return found


def _others(medians: Mapping[str, Figures]) -> list[str]:
    """What has one figure or two each."""
    lines = ["| | " + " | ".join(SYSTEMS[1:]) + " | aim | |", "|---|---|---|---|---|---|"]

    def add(title: str, row: str, figure: str, aim: str, met: bool, names: tuple[str, ...] = SYSTEMS[1:]) -> None:
        found = medians[row]
        cells = [f"{found[name][figure]:,.0f}" if name in found else "-" for name in names]
        lines.append(f"| {title} | {' | '.join(cells)} | {aim} | {'passes' if met else '**fails**'} |")

    if (found := medians.get("far")) is not None:
        mb = found[BATCHES]["mb_per_s"]
        add("far away, MB/s", "far", "mb_per_s", f"at least {FAR_MB_PER_S_MIN:.0f}", mb >= FAR_MB_PER_S_MIN)
    if (found := medians.get("latency")) is not None:
        for figure, most in (("p50_ms", P50_MS_MAX), ("p99_ms", P99_MS_MAX)):
            ours, theirs = found[BATCHES][figure], found[MIRROR][figure]
            aim = f"at most {most:.0f}, and half of MirrorMaker 2"
            add(f"latency {figure[:3]} at 1,000 records/s, ms", "latency", figure, aim, ours <= min(most, theirs / 2))
    if (found := medians.get("partitions")) is not None:
        percent, at_rest = found[BATCHES]["cpu_percent"], found[BATCHES]["rss_stalled_peak_mib"]
        title = "1,000 partitions, 20 B/s each"
        add(f"{title}: % of a core", "partitions", "cpu_percent", f"at most {PERCENT_MAX:.0f}", percent <= PERCENT_MAX)
        stalled = f"{title}, then a stalled target: peak memory, MiB"
        add(stalled, "partitions", "rss_stalled_peak_mib", f"at most {MIB_MAX:.0f}", at_rest <= MIB_MAX)
    if (found := medians.get("memory")) is not None:
        peak = found[BATCHES]["rss_peak_mib"]
        add("a stalled target: peak memory, MiB", "memory", "rss_peak_mib", f"at most {MIB_MAX:.0f}", peak <= MIB_MAX)
    if (found := medians.get("backfill")) is not None:
        names = ("backfill, records", "backfill, batches", MIRROR)
        met = found[names[1]][RATE] >= BACKFILL_FACTOR * found[MIRROR][RATE]
        aim = f"{BACKFILL_FACTOR:.0f} times MirrorMaker 2"
        add("backfill of 4 million records on `local[*,4]`, records/s", "backfill", RATE, aim, met, names)
    return lines


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


def written(document: str, results: dict[str, Any]) -> str:
    """The document with these figures replaced. Raises ValueError without the two markers."""
    return report.between(document, BEGIN, END, section(results))


@click.command()
def main() -> None:
    """Write the newest results into docs/performance.md, and the picture."""
    report.update(RESULTS, written, "python -m benchmarks.engines")
    path = report.newest(RESULTS)
    assert path is not None
    PICTURE.write_text(picture(json.loads(path.read_text())))
    click.echo(str(PICTURE.relative_to(report.ROOT)))


if __name__ == "__main__":
    main()
