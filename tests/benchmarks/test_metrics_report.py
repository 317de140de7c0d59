"""What metrics cost: the figures of scrapes and of latency."""

from __future__ import annotations

import json

from benchmarks import metrics_report, report

AT_REST = {"p50": 40.2, "p99": 55.0, "max": 56.4, "count": 4}
COPYING = {"p50": 61.0, "p99": 140.0, "max": 151.0, "count": 30}
LATENCY = {"p50": 12.4, "p99": 44.0, "max": 60.0, "count": 9_000}
RESULTS = {
    "machine": {"cpu": "a CPU", "cores": "2", "python": "3", "librdkafka": "2", "kafka": "kafka:1"},
    "settings": {
        "started": "2026-01-02T03:04:05",
        "topics": 10,
        "partitions": 100,
        "rate": 1_000,
        "load_average_before": 0.31,
    },
    "figures": {
        "idle_cpu_percent": 3.01,
        "scrape_bytes": 614_400,
        "scrape_at_rest_ms": AT_REST,
        "scrape_ms": COPYING,
        "latency_ms": {"with": LATENCY, "without": LATENCY},
    },
}


def test_figures_are_told() -> None:
    text = metrics_report.section(RESULTS)
    assert "a scrape has 600 KiB." in text
    assert "| a scrape while it copies, ms | 61 | 140 | 151 |" in text
    assert "3.0 % of a core." in text


def test_the_document_has_the_place_for_them() -> None:
    document = report.DOCUMENT.read_text()
    assert document.count(metrics_report.BEGIN) == document.count(metrics_report.END) == 1


def test_the_document_shows_the_newest_results() -> None:
    path = report.newest(metrics_report.RESULTS)
    assert path is not None
    document = report.DOCUMENT.read_text()
    assert metrics_report.written(document, json.loads(path.read_text())) == document
