"""Figures in the documents are those of the newest results file, and medians are medians."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import load, report
from benchmarks.__main__ import CASES, summary


def system(value: float) -> dict[str, float]:
    return {name: value for _, name in report.FIGURES}


RESULTS: dict[str, Any] = {
    "machine": {"cpu": "Z80", "cores": "1", "memory_gib": "1", "python": "3", "librdkafka": "2", "kafka": "k:1",
                "eos-replicate": "0"},
    "settings": {"runs": 3, "records": 1_000, "started": "1999-12-31T23:59:59+00:00"},
    "median": {
        "throughput": {"eos-replicate": system(300_000), "MirrorMaker 2": system(120_000)},
        "latency": {"eos-replicate": system(10), "MirrorMaker 2": system(40)},
        "stalled": {"eos-replicate": system(150)},
        "recovery": {"eos-replicate": system(1.25), "MirrorMaker 2": system(10)},
        "modes": {"exactly_once": system(5), "at_least_once": system(6)},
    },
}  # fmt: skip


def test_the_table_has_both_systems_and_their_ratio() -> None:
    text = report.section(RESULTS)
    assert "| throughput, records/s | 300,000 | 120,000 | 2.50 |" in text
    assert "| peak memory with a stalled target, MiB | 150 | - | - |" in text
    assert "| `at_least_once` | 6 | 6.00 |" in text
    assert "1999-12-31: Z80, 1 cores" in text


def test_figures_are_replaced_and_all_else_stays() -> None:
    document = f"above\n{report.BEGIN}old\n{report.END}below\n"
    once = report.written(document, RESULTS)
    assert once.startswith("above\n")
    assert once.endswith("below\n")
    assert "old" not in once
    assert report.written(once, RESULTS) == once


def test_a_document_without_its_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="substring not found"):
        report.written("no markers", RESULTS)


def test_the_document_shows_the_newest_results() -> None:
    path = report.newest(report.RESULTS)
    assert path is not None
    document = report.DOCUMENT.read_text()
    assert report.written(document, json.loads(path.read_text())) == document, "run python -m benchmarks.report"


def test_the_readme_shows_the_newest_results() -> None:
    path = report.newest(report.RESULTS)
    assert path is not None
    document = report.README.read_text()
    assert report.compared(document, json.loads(path.read_text())) == document, "run python -m benchmarks.report"


def test_the_readme_says_ratios_in_words() -> None:
    text = report.comparison(RESULTS)
    assert "| throughput, records/s | 300,000 | 120,000 | **2.5 times** |" in text
    assert "| from SIGKILL to the next committed record, s | 1.2 | 10.0 | **88 % less** |" in text


def test_the_median_of_each_figure_counts() -> None:
    runs = {"latency": {"x": [{"p50_ms": 3.0, "p99_ms": 1.0}, {"p50_ms": 1.0, "p99_ms": 9.0},
                              {"p50_ms": 2.0, "p99_ms": 5.0}]}}  # fmt: skip
    assert summary(runs) == {"latency": {"x": {"p50_ms": 2.0, "p99_ms": 5.0}}}
    assert {case for case, _ in report.FIGURES} < set(CASES)


def test_the_last_key_of_each_partition_is_the_one_that_was_written_last() -> None:
    records = 30_000
    for turns in (load.EVEN, load.SKEWED):
        last = {load._partition(number, turns): load._key(number) for number in range(records)}
        assert load.last_keys(records, turns) == last
        assert len(last) == load.PARTITIONS
    assert load.SKEWED.count(0) / len(load.SKEWED) == 0.6
