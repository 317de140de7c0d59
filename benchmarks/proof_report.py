"""The newest figures of the offset map in docs/performance.md: what it costs, and what a proof by it takes.

`python -m benchmarks.proof_report` writes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import click

from benchmarks import report

BEGIN, END = "<!-- offset map: python -m benchmarks.proof_report -->\n", "<!-- end of offset map -->\n"
NAMES = ("map_cost", "map_index", "map_start", "proof", "proof_spark")
COMPARED = {
    "records_per_s_ratio": ("records/s, ratio", "{:.2f}"),
    "cpu_us_a_record_ratio": ("CPU, ratio", "{:.2f}"),
    "p50_ms_more": ("latency p50, ms more", "{:.1f}"),
}
CASES = {
    "dense": "a backlog without gaps",
    "gaps": "a backlog with a gap behind every ten records",
    "steady": "1,000 records/s",
    "far, dense": "a backlog without gaps, 100 ms of round trip",
    "far, steady": "1,000 records/s, 100 ms of round trip",
}
Results = Mapping[str, dict[str, Any]]


def newest() -> dict[str, dict[str, Any]]:
    """The newest results file of each benchmark. Raises FileNotFoundError where one has none."""
    found = {}
    for name in NAMES:
        path = report.newest(report.RESULTS / name)
        if path is None:
            raise FileNotFoundError(f"no results: run `python -m benchmarks.{name}` first")
        found[name] = json.loads(path.read_text())
    return found


def section(results: Results) -> str:
    """Markdown of these results."""
    lines = [*_where(results), "", *cost_rows(results["map_cost"]), "", *_proofs(results)]
    return "\n".join(lines) + "\n"


def _where(results: Results) -> Iterator[str]:
    machine, days = results["proof"]["machine"], {name: it["settings"]["started"][:10] for name, it in results.items()}
    when = days["proof"] if len(set(days.values())) == 1 else ", ".join(f"{name} {day}" for name, day in days.items())
    yield f"{when}: {machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB;"
    yield f"Python {machine['python']}, librdkafka {machine['librdkafka']}, {machine['kafka']}."


def cost_rows(found: Mapping[str, Any]) -> Iterator[str]:
    """A worker with the map, and one without beside another one without, in pairs: median, and lowest to highest."""
    yield "| a worker with the map, beside the same one without it | | with and without | without and without |"
    yield "|---|---|---|---|"
    both = found["compared"]
    for case, title in CASES.items():
        for figure, values in both["with_by_without"][case].items():
            name, form = COMPARED[figure]
            cells = (_spread(values, form), _spread(both["without_by_itself"][case][figure], form))
            yield f"| {title} | {name} | {cells[0]} | {cells[1]} |"


def _spread(values: list[float], form: str) -> str:
    low, middle, high = map(form.format, values)
    return f"{middle} ({low} to {high})"


def _proofs(results: Results) -> Iterator[str]:
    yield "| a proof by the map | |"
    yield "|---|---|"
    for one in results["proof"]["cases"]:
        if one["records"] > 1:
            what = f"`{one['command']}`, {one['records']:,} records, {one['records_in_block']:,} in a block of the map"
            yield f"| {what} | {one['records_per_s']:,.0f} records/s, {one['peak_mib']:.0f} MiB |"
    spark, medians = results["proof_spark"]["settings"], results["proof_spark"]["median"]
    differing = f"{spark['small']:,} records with {spark['small'] // 100:,} differences"
    yield f"| `reconcile --local`, {differing} | {medians['differences_local_s']:.1f} s in all |"
    yield f"| `reconcile` on Spark, {differing} | {medians['differences_s']:.1f} s after Spark's start |"
    clean = f"{spark['records']:,} records on either side without differences"
    times = f"{medians['reconcile_s']:.1f} s, {medians['clean_ratio']:.2f} times as long as Spark's reading alone"
    yield f"| `reconcile` on Spark, {clean} | {times} |"
    yield from _start(results["map_start"])
    index = results["map_index"]["translate"]
    blocks = f"a map that would have {index['as_blocks_gb']:.0f} GB of blocks ({index['transactions']:,} transactions)"
    taken = f"{index['seconds']:.2f} s and {index['peak_mib']:.0f} MiB; index of {index['index_mib']:.0f} MiB"
    yield f"| `translate`, {blocks} | {taken} |"


def _start(found: Mapping[str, Any]) -> Iterator[str]:
    settings = found["settings"]
    for case in found["cases"]:
        where = f"a start with {settings['partitions']:,} partitions in {settings['lanes']} lanes"
        yield f"| {where}, {case['newest']:,} of them in the last block of each lane | {case['median_s']:.2f} s |"


def written(document: str, results: Results) -> str:
    """The document with these figures replaced. Raises ValueError without the two markers."""
    return report.between(document, BEGIN, END, section(results))


@click.command()
def main() -> None:
    """Write the newest results into docs/performance.md."""
    try:
        results = newest()
    except FileNotFoundError as error:
        raise click.ClickException(str(error)) from error
    report.DOCUMENT.write_text(written(report.DOCUMENT.read_text(), results))
    click.echo(f"{report.DOCUMENT.relative_to(report.ROOT)}: {', '.join(results)}")


if __name__ == "__main__":
    main()
