"""Several workers in the demo: who ran which lane when, by their logs."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path

from cli.demo.crew import Crew, Held, timeline


def write(path: Path, *events: tuple[float, str, int | None]) -> None:
    """A log with events at seconds from now on."""
    lines = []
    for at_s, name, lane in events:
        at = datetime.fromtimestamp(time.time() + at_s, UTC).isoformat()
        lines.append(json.dumps({"event": name, "timestamp": at} | ({} if lane is None else {"lane": lane})))
    path.write_text("\n".join([*lines, "text of a library", '{"event": "cut of']))


def test_who_ran_which_lane_when(tmp_path: Path) -> None:
    """A lane ends when its worker leaves it, or with its process; one that starts again within a process goes on."""
    crew = Crew(tmp_path / "flow.yaml", tmp_path, 2, seed=1)
    write(
        tmp_path / "replicator-1.log",
        (1, "started", None),
        (2, "lane_started", 0),
        (2, "lane_started", 1),
        (3, "lane_started", 0),
        (5, "lane_left", 1),
        (9, "started", None),
        (10, "lane_started", 0),
    )
    write(tmp_path / "replicator-2.log", (3, "started", None), (4, "lane_started", 1), (8, "lane_ended", 1))
    held = [Held(it.lane, it.worker, round(it.from_s), it.until_s and round(it.until_s)) for it in crew.held()]
    assert held == [Held(0, 1, 2, 9), Held(0, 1, 10, None), Held(1, 1, 2, 5), Held(1, 2, 4, 8)]
    assert list(timeline(held)) == [
        "lane 0: worker 1 from 2.0 s, worker 1 from 10.0 s",
        "lane 1: worker 1 from 2.0 s, worker 2 from 4.0 s",
    ]
