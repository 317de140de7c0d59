"""The demo's worker process."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.demo.worker import Worker

pytestmark = pytest.mark.tier("default")
FLOW = """\
clusters:
  here: {properties: {bootstrap.servers: "127.0.0.1:1"}}
  there: {properties: {bootstrap.servers: "127.0.0.1:2"}}
flows:
  f: {source: here, target: there, topics: [t]}
"""


def test_one_that_is_stopped_as_soon_as_it_is_started_ends_well(tmp_path: Path) -> None:
    """Python needs a moment before a signal is more than its death: on a busy machine, seconds."""
    (tmp_path / "flow.yaml").write_text(FLOW)
    worker = Worker(tmp_path / "flow.yaml", tmp_path / "log")
    worker.start()
    worker.stop()
