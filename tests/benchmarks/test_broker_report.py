"""Figures of the embedded broker in the documents are those of the newest results file."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import broker_report, report
from benchmarks.broker import FLUSHING
from benchmarks.serving import Embedded, Real


def _throughput(produce: float) -> dict[str, float]:
    return {"produce_per_s": produce, "consume_per_s": 10.0, "produce_peak_mib": 50.0}


START = {"empty_s": 0.5, "gib_s": 1.5, "idle_mib": 40.0, "first_produce_per_s": 700.0}
MEDIAN = {
    "throughput": {Embedded.name: _throughput(3_000.0), Real.name: _throughput(2_000.0)},
    "transactions": {
        Embedded.name: {"commits_per_s": 90.0, "fsyncs_each": 3.004},
        Real.name: {"commits_per_s": 100.0},
        FLUSHING: {"commits_per_s": 30.0},
    },
    "start": {Embedded.name: START, Real.name: START},
}
RESULTS: dict[str, Any] = {
    "machine": {"cpu": "Z80", "cores": "1", "kafka": "k:1", "python": "3", "librdkafka": "2"},
    "settings": {"runs": 3, "records": 1_000, "seconds": 5.0, "started": "1999-12-31T23:59:59+00:00"},
    "median": MEDIAN,
    "runs": {
        case: {name: [figures, {key: value * 2 for key, value in figures.items()}] for name, figures in found.items()}
        for case, found in MEDIAN.items()
    },
}


def test_the_table_has_ratios_and_spreads() -> None:
    text = broker_report.section(RESULTS)
    assert "| produced at work, records/s | 3,000 | 3,000 to 6,000 | 2,000 | 2,000 to 4,000 | 1.50 |" in text
    assert "| produced after a start, records/s | 700 | 700 to 1,400 | 700 | 700 to 1,400 | 1.00 |" in text
    assert "waits for the disk 3.00 times" in text
    assert "makes 30 commits/s: 3.0 times as many" in text


def test_figures_are_replaced_and_all_else_stays() -> None:
    document = f"above\n{broker_report.BEGIN}old\n{broker_report.END}below\n"
    once = broker_report.written(document, RESULTS)
    assert (once.startswith("above\n"), once.endswith("below\n"), "old" in once) == (True, True, False)
    assert broker_report.written(once, RESULTS) == once
    with pytest.raises(ValueError, match="substring not found"):
        broker_report.written("no markers", RESULTS)


def test_the_document_shows_the_newest_results() -> None:
    path = report.newest(broker_report.RESULTS)
    assert path is not None
    document = report.DOCUMENT.read_text()
    shown = broker_report.written(document, json.loads(path.read_text()))
    assert shown == document, "run python -m benchmarks.broker_report"
