"""Figures of reconciliation in the documents are those of the newest results file."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import reconcile_report, report

RESULTS: dict[str, Any] = {
    "machine": {"cpu": "Z80", "cores": "1", "kafka": "k:1"},
    "settings": {
        "runs": 3,
        "records": 1_000,
        "started": "1999-12-31T23:59:59+00:00",
        "pyspark": "4",
        "master": "local",
    },
    "median": {"read_s": 8.0, "quick_s": 10.0},
    "peak_mib": {"2000": 1_050.0, "100": 1_000.0},
}


def test_the_table_has_ratios() -> None:
    text = reconcile_report.section(RESULTS)
    assert "| quick pass over both sides, s | 10.0 | 1.25 |" in text
    assert "| peak memory of all processes, 100 records, MiB | 1,000 | |" in text
    assert "| peak memory of all processes, 2,000 records, MiB | 1,050 | 1.05 |" in text


def test_figures_are_replaced_and_all_else_stays() -> None:
    document = f"above\n{reconcile_report.BEGIN}old\n{reconcile_report.END}below\n"
    once = reconcile_report.written(document, RESULTS)
    assert (once.startswith("above\n"), once.endswith("below\n"), "old" in once) == (True, True, False)
    assert reconcile_report.written(once, RESULTS) == once
    with pytest.raises(ValueError, match="substring not found"):
        reconcile_report.written("no markers", RESULTS)


def test_the_document_shows_the_newest_results() -> None:
    path = report.newest(reconcile_report.RESULTS)
    assert path is not None
    document = report.DOCUMENT.read_text()
    shown = reconcile_report.written(document, json.loads(path.read_text()))
    assert shown == document, "run python -m benchmarks.reconcile_report"


def test_the_newest_figures_of_shapes_are_in_the_document() -> None:
    document = report.DOCUMENT.read_text()
    path = report.newest(reconcile_report.SHAPES)
    assert path is not None
    shown = reconcile_report.shapes_written(document, json.loads(path.read_text()))
    assert shown == document, "run python -m benchmarks.reconcile_report"


def test_memory_is_shown_by_process() -> None:
    run = {"records": 1_000, "partitions": 500, "sides": "equal", "driver": 99.6, "jvm": 1_200.0, "all": 1_300.0}
    settings = {"pyspark": "4", "started": "1999-12-31T23:59:59+00:00"}
    text = reconcile_report.memory_section(
        {"machine": RESULTS["machine"], "settings": settings, "runs": [{**run, "seconds": 12.3, "load": 2.4}]}
    )
    assert "| 1,000 | 500 | equal | 100 | 1,200 | 0 | 1,300 | 12 | 2 |\n" in text


def test_the_newest_figures_of_memory_are_in_the_document() -> None:
    document = report.DOCUMENT.read_text()
    path = report.newest(reconcile_report.MEMORY)
    assert path is not None
    shown = reconcile_report.memory_written(document, json.loads(path.read_text()))
    assert shown == document, "run python -m benchmarks.reconcile_report"
