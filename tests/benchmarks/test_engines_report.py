"""Both engines beside MirrorMaker 2: the documents have the newest figures, and say which aims are missed."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import engines_report as engines
from benchmarks import load, report
from benchmarks.shapes import SHAPES


def measured(rate: float, cpu: float) -> dict[str, float]:
    return {"records_per_s": rate, "cpu_s_per_million": cpu, "mb_per_s": rate / 4_000}


def row(batches: float = 900.0, batches_cpu: float = 0.1) -> dict[str, dict[str, float]]:
    return {
        "raw pipe": measured(1_000, 0.05),
        "records": measured(400, 2.5),
        "batches": measured(batches, batches_cpu),
        "MirrorMaker 2": measured(200, 6.0),
    }


RESULTS: dict[str, Any] = {
    "machine": {"cpu": "Z80", "cores": "1", "memory_gib": "1", "python": "3", "librdkafka": "2", "kafka": "k:1"},
    "settings": {"runs": 3, "started": "1999-12-31T23:59:59+00:00"},
    "median": {
        "plain": row(),
        "lz4": row(batches=899.0, batches_cpu=0.5),
        "far": {"records": measured(100, 2.0), "batches": measured(80_000, 2.0)},
        "latency": {
            "records": {"p50_ms": 11.0, "p99_ms": 40.0},
            "batches": {"p50_ms": 9.0, "p99_ms": 60.0},
            "MirrorMaker 2": {"p50_ms": 26.0, "p99_ms": 140.0},
        },
        "memory": {"records": {"rss_peak_mib": 140.0}, "batches": {"rss_peak_mib": 251.0}},
        "backfill": {
            "backfill, records": measured(300, 1.0),
            "backfill, batches": measured(800, 1.0),
            "MirrorMaker 2": measured(200, 1.0),
        },
    },
}


def test_each_row_has_its_figures_and_their_ratio() -> None:
    lines = engines.section(RESULTS).splitlines()
    plain, lz4 = SHAPES["plain"].title, SHAPES["lz4"].title
    assert f"| {plain} | 1,000 | 400 | 900 | 200 | 4.50 |" in lines
    assert f"| {lz4} | 0.05 | 2.50 | 0.50 | 6.00 | 0.08 |" in lines
    assert f"| {SHAPES['far'].title} | - | 100 | 80,000 | - | - |" in lines
    assert "| 50 ms of delay each way, MB/s | 0 | 20 | - |" in lines
    assert "| latency p99 at 1,000 records/s, ms | 40 | 60 | 140 |" in lines
    assert "| a backlog, and a target that stands still: peak memory, MiB | 140 | 251 | - |" in lines
    assert any("| 300 | 800 | 200 |" in line for line in lines)


@pytest.mark.tier("default")
def test_each_row_is_from_the_last_results_that_have_it() -> None:
    small = {"small": row(batches=801.0), "far": {"records": measured(90, 2.0), "batches": measured(70_000, 2.0)}}
    settings = {"runs": 5, "started": "2000-02-01T00:00:00+00:00"}
    later = {"machine": {**RESULTS["machine"], "cpu": "MOS 6502"}, "settings": settings, "median": small}
    found = engines.gathered([RESULTS, later])
    lines = engines.section(found).splitlines()
    assert lines[0].startswith("1999-12-31: Z80")
    titles = f"{SHAPES['far'].title}; {SHAPES['small'].title}"
    assert any(line.startswith(f"{titles}: on 2000-02-01: MOS 6502") for line in lines)
    assert f"| {SHAPES['small'].title} | 1,000 | 400 | 801 | 200 | 4.00 |" in lines
    assert "| 50 ms of delay each way, MB/s | 0 | 18 | - |" in lines
    assert engines.section(engines.gathered([RESULTS])) == engines.section(RESULTS)


def test_aims_are_told_as_reached_or_missed() -> None:
    found = engines.aims(RESULTS["median"])
    assert found["plain, records_per_s: 0.9 of the pipe"]
    assert not found["lz4, records_per_s: 0.9 of the pipe"]
    assert found["plain, cpu_s_per_million: a tenth of MirrorMaker 2"]
    assert not found["lz4, cpu_s_per_million: a 15th of MirrorMaker 2"]
    assert found["far, records_per_s: `records`"]
    assert found["far: at least 20 MB/s"]
    assert found["latency: p50_ms at most 10, and half of MirrorMaker 2"]
    assert not found["latency: p99_ms at most 50, and half of MirrorMaker 2"]
    assert not found["memory: at most 250 MiB"]
    assert found["backfill: 4 times MirrorMaker 2"]
    assert not any(name.startswith(("zstd", "partitions")) for name in found)


def test_the_picture_is_as_long_as_the_rates() -> None:
    found = ElementTree.fromstring(engines.picture(RESULTS))
    bars = [it for it in found.iter("{http://www.w3.org/2000/svg}rect") if it.get("height") == "13"]
    assert [it.get("width") for it in bars[:3]] == ["320", "142", "71"]
    texts = [it.text for it in found.iter("{http://www.w3.org/2000/svg}text")]
    assert {"batches 4.5 times", "records 2.0 times", "MirrorMaker 2"} <= set(texts)


def test_the_last_records_of_a_backlog_are_those_of_its_partitions() -> None:
    for shape in SHAPES.values():
        for records in (1, shape.batch_records, 1_000, 12_345):
            last: dict[int, bytes] = {}
            for number in range(records):
                last[shape.partition(number)] = b"%016d" % number
            assert shape.last_keys(records) == last
        values = shape.values(shape.record_bytes - 16)
        assert {len(value) for value in values} == {shape.record_bytes - 16}
    assert load.PARTITIONS == 4


def test_the_documents_show_the_newest_results() -> None:
    results = engines.newest()
    text = (report.ROOT / "docs" / "performance.md").read_text()
    assert engines.written(text, results) == text
    assert engines.PICTURE.read_text() == engines.picture(results)
    readme = report.README.read_text()
    assert engines.in_readme(readme, results) == readme


@pytest.mark.tier("default")
def test_the_readme_has_the_lowest_and_the_highest_ratio() -> None:
    ours, theirs = ({engines.RATE: rate, engines.CPU: cpu} for rate, cpu in ((420.0, 0.11), (100.0, 1.0)))
    default = {engines.RATE: 160.0, engines.CPU: 0.6}
    one = {engines.RECORDS: default, engines.BATCHES: ours, engines.MIRROR: theirs}
    other = {engines.BATCHES: ours | {engines.RATE: 874.0}, engines.MIRROR: theirs | {engines.CPU: 2.0}}
    said = engines.summary({"median": {"plain": one, "lz4": other, "latency": {}}})
    assert "**4.2 to 8.7 times**\nas many records" in said
    assert "with 6 to 11 % of its CPU time" in said.replace("\n", " ")
    assert "the default engine copies the records of the table above **1.6 times** as fast" in said
