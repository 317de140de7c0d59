"""What the demo understands of the replicator's log, cut off lines included."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.demo.worker import Worker, committed_records

COMMITTED = json.dumps({"event": "committed", "records": 7, "positions": {}}).encode()


@pytest.mark.parametrize(
    ("line", "records"),
    [
        (COMMITTED, 7),
        (json.dumps({"event": "lane_started", "records": 7}).encode(), 0),
        (COMMITTED[:-4], 0),
        (b"%3|1|FAIL| text of a library", 0),
        (b"7", 0),
        (b"", 0),
    ],
)
def test_only_whole_commits_count(line: bytes, records: int) -> None:
    assert committed_records(line) == records


def test_a_half_line_waits_for_its_other_half(tmp_path: Path) -> None:
    log = tmp_path / "log"
    worker = Worker(tmp_path / "flow.yaml", log)
    log.write_bytes(COMMITTED + b"\n" + COMMITTED[:10])
    worker.look()
    assert worker.copied == 7
    assert worker.committing_since is not None
    with log.open("ab") as more:
        more.write(COMMITTED[10:] + b"\n")
    worker.look()
    worker.look()
    assert worker.copied == 14
