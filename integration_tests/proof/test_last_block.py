"""`verify` and `reconcile --local` after a flow of either engine: the last block of each position is compared by its
digest."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.copying import Copying
from tests.running.users_packages import users_packages

pytestmark = pytest.mark.tier("long")


def found(copying: Copying, *command: str) -> list[dict[str, Any]]:
    asked = [sys.executable, "-m", "cli.main", *command, "-c", str(copying.file.path), "--json"]
    shown = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=120, env=users_packages())
    assert shown.returncode == 0, shown
    partitions: list[dict[str, Any]] = json.loads(shown.stdout)["partitions"]
    return partitions


@pytest.mark.parametrize(
    ("engine", "source_type", "target_type", "verdict"),
    [
        ("records", "producer", "producer", "equal"),
        ("batches", "producer", "producer", "equal"),
        ("records", "producer", "gzip", "equal"),
        ("batches", "producer", "gzip", "unverifiable"),
        ("batches", "gzip", "gzip", "equal"),
    ],
)
def test_the_last_block_of_each_position_is_compared(
    engine: str, source_type: str, target_type: str, verdict: str, make_copying: MakeCopying
) -> None:
    """`source_type`, `target_type`: how the topics compress."""
    copying = make_copying(engine=engine, source_configs={"compression.type": source_type})
    clients.create_topic(copying.target, copying.copy, copying.partitions, {"compression.type": target_type})
    running = copying.running()
    copying.load.mixed(600)
    copying.wait_copied()
    assert running.stop() == 0
    blocks = [one["last_block"] for one in found(copying, "verify")]
    assert [block["verdict"] for block in blocks] == [verdict] * copying.partitions
    assert all(block["records"] > 0 for block in blocks)
    notes = [note for one in found(copying, "reconcile", "--local") for note in one["notes"]]
    assert len([note for note in notes if "last block" in note]) == (0 if verdict == "equal" else copying.partitions)
