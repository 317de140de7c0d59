"""Judges a comparison of two checkouts, for benchmarks/README.md: `python -m benchmarks.pairs_report` writes it there.

Invariant: a ratio above 1 is better. It is new/old for rates, old/new for everything else.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from statistics import median
from typing import Any

import click

from benchmarks import report

RESULTS = report.RESULTS / "pairs"
BEGIN, END = "<!-- pairs: python -m benchmarks.pairs_report -->\n", "<!-- end of pairs -->\n"
RATIO_MIN, BELOW_MAX = 0.97, 0.05
RESAMPLES, SHARE = 10_000, 0.05
FIGURES = {  # title and format
    "records_per_s": ("throughput, records/s", "{:,.0f}"),
    "cpu_s_copying": ("CPU s per million records, copying a backlog", "{:.2f}"),
    "rss_mib_copying": ("peak memory with a backlog, MiB", "{:,.0f}"),
    "p50_ms": ("latency p50 at 1,000 records/s, ms", "{:.1f}"),
    "p99_ms": ("latency p99 at 1,000 records/s, ms", "{:.1f}"),
    "cpu_s_steady": ("CPU s at 1,000 records/s", "{:.2f}"),
    "rss_mib_steady": ("peak memory at 1,000 records/s, MiB", "{:,.0f}"),
}
REPORTED = frozenset({"p99_ms"})
Pairs = Sequence[Mapping[str, Mapping[str, float]]]


def ratios(pairs: Pairs, figure: str, one: str, other: str) -> list[float]:
    """How much better `other` is than `one`, pair by pair. A figure by the second (`…_per_s`) is a rate."""
    both = [(pair[one][figure], pair[other][figure]) for pair in pairs]
    return [new / old if figure.endswith("_per_s") else old / new for old, new in both]


def lower_bound(values: Sequence[float]) -> float:
    """The lower bound of the median with 95 % confidence, one-sided, by a bootstrap with a fixed seed."""
    draw = random.Random(0)
    medians = sorted(median(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return medians[int(RESAMPLES * SHARE)]


def verdicts(series: Mapping[str, Pairs], figures: Collection[str] = FIGURES) -> dict[str, dict[str, Any]]:
    """By figure: median ratio and lower bound of both series, and whether it passes.

    It passes with a median of at least `RATIO_MIN` and a bound that is at most `BELOW_MAX` below that of the same
    commit beside itself. What is only reported has no verdict.
    """
    found: dict[str, dict[str, Any]] = {}
    for figure in figures:
        new = ratios(series["new"], figure, "before", "after")
        old = ratios(series["old"], figure, "before", "again")
        middle, low, spread = median(new), lower_bound(new), lower_bound(old)
        passes = None if figure in REPORTED else middle >= RATIO_MIN and low >= spread - BELOW_MAX
        found[figure] = {
            "ratio": round(middle, 4),
            "lower": round(low, 4),
            "ratio_old_old": round(median(old), 4),
            "lower_old_old": round(spread, 4),
            "passes": passes,
        }
    return found


def section(results: dict[str, Any]) -> str:
    """Markdown of one results file."""
    machine, settings, series = results["machine"], results["settings"], results["series"]
    lines = [
        f"{settings['started'][:10]}: {machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB; Python "
        f"{machine['python']}, librdkafka {machine['librdkafka']}, {machine['kafka']};",
        f"{settings['before']} before, {settings['after']} now; {settings['pairs']} pairs of each series, "
        f"{settings['records']:,} records, {settings['seconds']:g} s at 1,000 records/s."
        + ("" if settings.get("map", True) else " Without the offset map, which the older one doesn't have."),
        "",
        "| | before | now | ratio | lower bound | before with itself | its lower bound | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for figure, verdict in verdicts(series).items():
        title, form = FIGURES[figure]
        before, after = (
            form.format(median(pair[side][figure] for pair in series["new"])) for side in ("before", "after")
        )
        word = {True: "passes", False: "**fails**", None: "reported"}[verdict["passes"]]
        lines.append(
            f"| {title} | {before} | {after} | {verdict['ratio']:.3f} | {verdict['lower']:.3f} "
            f"| {verdict['ratio_old_old']:.3f} | {verdict['lower_old_old']:.3f} | {word} |"
        )
    return "\n".join(lines) + "\n"


def written(document: str, results: dict[str, Any]) -> str:
    """The document with these figures replaced. Raises ValueError without the two markers."""
    return report.between(document, BEGIN, END, section(results))


@click.command()
def main() -> None:
    """Write the newest results into benchmarks/README.md."""
    report.update(RESULTS, written, "python -m benchmarks.pairs --before TREE", report.DEVELOPERS)


if __name__ == "__main__":
    main()
