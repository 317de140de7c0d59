"""What the demo understands of the replicator's log, cut off lines included."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.demo.worker import Worker, logged

COMMITTED = json.dumps({"event": "committed", "records": 7, "positions": {}}).encode()


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (COMMITTED, {"event": "committed", "records": 7, "positions": {}}),
        (COMMITTED[:-4], {}),
        (b"%3|1|FAIL| text of a library", {}),
        (b"7", {}),
        (b"", {}),
    ],
)
def test_only_whole_events_count(line: bytes, event: dict[str, object]) -> None:
    assert logged(line) == event


def test_a_worker_reads_once_its_lane_has_started(tmp_path: Path) -> None:
    log = tmp_path / "log"
    worker = Worker(tmp_path / "flow.yaml", log)
    log.write_bytes(json.dumps({"event": "topic_created"}).encode() + b"\n")
    worker.read_log()
    assert not worker.has_position
    with log.open("ab") as more:
        more.write(json.dumps({"event": "lane_started", "records": 7}).encode() + b"\n")
    worker.read_log()
    assert worker.has_position
    assert worker.copied == 0


def test_a_half_line_waits_for_its_other_half(tmp_path: Path) -> None:
    log = tmp_path / "log"
    worker = Worker(tmp_path / "flow.yaml", log)
    log.write_bytes(COMMITTED + b"\n" + COMMITTED[:10])
    worker.read_log()
    assert worker.copied == 7
    assert worker.committing_since is not None
    with log.open("ab") as more:
        more.write(COMMITTED[10:] + b"\n")
    worker.read_log()
    worker.read_log()
    assert worker.copied == 14
