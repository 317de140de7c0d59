"""Figures of the offset map in the document are those of the newest results files."""

from __future__ import annotations

import pytest

from benchmarks import proof_report, report


def test_the_document_shows_the_newest_results() -> None:
    document = report.DOCUMENT.read_text()
    assert proof_report.written(document, proof_report.newest()) == document, "run python -m benchmarks.proof_report"


def test_each_figure_of_a_case_has_a_row() -> None:
    found = {
        "with_by_without": {case: {"records_per_s_ratio": [0.9, 0.987, 1.1]} for case in proof_report.CASES},
        "without_by_itself": {case: {"records_per_s_ratio": [1, 1, 1]} for case in proof_report.CASES},
    }
    rows = list(proof_report.cost_rows({"compared": found}))
    assert len(rows) == 2 + len(proof_report.CASES)
    assert rows[2] == "| a backlog without gaps | records/s, ratio | 0.99 (0.90 to 1.10) | 1.00 (1.00 to 1.00) |"


def test_a_document_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="substring not found"):
        proof_report.written("no markers", proof_report.newest())
