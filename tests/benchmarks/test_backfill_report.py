"""Figures of the backfill in the documents come from the file that the benchmark wrote."""

from __future__ import annotations

import json

from benchmarks import backfill_report, report

RESULTS = {
    "machine": {"cpu": "a CPU", "cores": "2", "kafka": "kafka:1"},
    "settings": {"started": "2026-01-02T03:04:05", "records": 1000, "runs": 3},
    "median": {
        "backlog": {
            "backfill": {"records_per_s": 300.0},
            "eos-replicate": {"records_per_s": 200.0},
            "MirrorMaker 2": {"records_per_s": 100.0},
        }
    },
    "runs": {
        "backlog": {
            "backfill": [{"records_per_s": 320.0}, {"records_per_s": 290.4}, {"records_per_s": 300.0}],
            "eos-replicate": [{"records_per_s": 200.0}],
            "MirrorMaker 2": [{"records_per_s": 100.0}],
        }
    },
    "peak_mib": {"1000": 100.0, "10000": 110.0},
}


def test_rates_are_compared_with_the_live_worker_and_memory_with_itself() -> None:
    text = backfill_report.section(RESULTS)
    assert "| backfill | 300 | 290 to 320 | 1.50 |" in text
    assert "| MirrorMaker 2 | 100 | 100 to 100 | 0.50 |" in text
    assert "100 MiB for 1,000 records, 110 MiB for 10,000 (1.10)" in text


def test_the_document_has_the_place_for_them() -> None:
    document = report.DOCUMENT.read_text()
    assert document.count(backfill_report.BEGIN) == document.count(backfill_report.END) == 1


def test_the_document_shows_the_newest_results() -> None:
    path = report.newest(backfill_report.RESULTS)
    assert path is not None
    document = report.DOCUMENT.read_text()
    shown = backfill_report.written(document, json.loads(path.read_text()))
    assert shown == document, "run python -m benchmarks.backfill_report"
