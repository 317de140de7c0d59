"""Figures of a backfill in two slots in the document are those of the newest results files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import report, slots, slots_report


def results(started: str, *kinds: str, rate: float = 130.0) -> dict[str, Any]:
    rates = {"backfill": rate, slots.ONE: 100.0, slots.TWO: 50.0}
    medians = {data: {name: {"records_per_s": one} for name, one in rates.items()} for data in kinds}
    return {
        "machine": {"cpu": "Z80", "cores": "1", "kafka": "k:1"},
        "settings": {"runs": 2, "records": 1_000, "started": f"{started}T00:00:00+00:00"},
        "median": medians,
        "verdicts": slots.verdicts(medians),
        "runs": {data: {name: [one, one] for name, one in found.items()} for data, found in medians.items()},
    }


def test_each_kind_of_data_has_its_newest_figures(tmp_path: Path) -> None:
    for name, made in (
        ("1", results("1999-12-30", "even", "skewed")),
        ("2", results("1999-12-31", "even", rate=120.0)),
    ):
        (tmp_path / f"{name}.json").write_text(json.dumps(made))
    text = slots_report.section(slots_report.newest_of_each(tmp_path))
    assert "1999-12-31, even: Z80, 1 cores; k:1; 1,000 records, median of 2.\n" in text
    assert "1999-12-30, skewed: " in text
    assert "| even | backfill | 120 | 120 to 120 |  |\n" in text
    assert "| even | run, one lane | 100 | 100 to 100 | 1.20 |\n" in text
    assert "| skewed | run, one lane | 100 | 100 to 100 | 1.30 |\n" in text


def test_the_document_shows_the_newest_results() -> None:
    document = report.DOCUMENT.read_text()
    shown = slots_report.written(document, slots_report.newest_of_each(slots.DIRECTORY))
    assert shown == document, "run python -m benchmarks.slots_report"


def test_a_document_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="substring not found"):
        slots_report.written("no markers", slots_report.newest_of_each(slots.DIRECTORY))
