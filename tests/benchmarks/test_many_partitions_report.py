"""Starts with many partitions: the table says which delay is meant."""

from __future__ import annotations

from benchmarks import many_partitions_report, report

STARTS = [{"first_commit_s": 3.0, "lanes_started_s": 2.0, "cpu_s": 1.0}, {"first_commit_s": 4.0, "cpu_s": 1.5}]
RESULTS = {
    "machine": {"cpu": "a CPU", "cores": "2", "python": "3", "librdkafka": "2", "kafka": "kafka:1"},
    "settings": {"started": "2026-01-02T03:04:05", "topics": 10, "partitions": 100, "runs": 2},
    "median": {"15": {"new": 3.5, "prepared": 3.5, "restarted": 3.5, "created": 6.0}},
    "runs": {"15": {"new": STARTS, "prepared": STARTS, "restarted": STARTS, "created": [{"led_s": 5}, {"led_s": 7}]}},
}


def test_delay_and_round_trip_are_told() -> None:
    text = many_partitions_report.section(RESULTS)
    assert "10 topics of 100 partitions, one lane, median of 2." in text
    assert "Kafka itself needs 5.0 to 7.0 s" in text
    assert "| 15 | 30 | new flow, its target topics exist | 3.5 | 3.0 to 4.0 | 1.0 to 1.5 |" in text


def test_the_document_has_the_place_for_them() -> None:
    document = report.DOCUMENT.read_text()
    begin, end = many_partitions_report.BEGIN, many_partitions_report.END
    assert document.count(begin) == document.count(end) == 1
