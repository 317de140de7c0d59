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
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.copying import Copying
from tests.running.users_packages import users_packages

pytestmark = pytest.mark.tier("long")


def found(copying: Copying, *command: str, code: int = 0) -> list[dict[str, Any]]:
    asked = [sys.executable, "-m", "cli.main", *command, "-c", str(copying.file.path), "--json"]
    shown = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=120, env=users_packages())
    assert shown.returncode == code, shown
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


@pytest.mark.parametrize("engine", ["records", "batches"])
def test_a_target_that_has_lost_its_end_is_reported_as_a_whole(
    engine: str, make_copying: MakeCopying, target: BrokerHandle
) -> None:
    """As after an unclean leader election: all partitions have their row, also the one whose block is gone."""
    copying = make_copying(engine=engine)
    ends, producer = [], clients.producer(copying.source)
    for _ in range(2):
        running = copying.running()
        for number in range(300):  # times of now: the log is cut within its first segment
            producer.produce(copying.topic, b"%d" % number, partition=number % copying.partitions)
        assert producer.flush(30) == 0
        copying.wait_copied()
        assert running.stop() == 0  # whose markers are all there then
        ends.append(copying.target_ends()[0])
    before, _ = ends
    assert before < ends[1]
    topic_id = clients.topic_id(copying.target, copying.copy)
    target.kill()
    target.cut_log(copying.copy, topic_id, 0, before)
    target.restart()
    clients.settle(copying.target, copying.copy, copying.partitions)
    blocks = [one["last_block"] for one in found(copying, "verify", code=1)]
    assert [block["verdict"] for block in blocks] == ["differs", *["equal"] * (copying.partitions - 1)]
    assert f"the target ends at offset {before}" in blocks[0]["why"]
    compared = found(copying, "reconcile", "--local", "--repair", "plan", code=1)
    assert ["missing" in one["verdicts"] for one in compared] == [True, *[False] * (copying.partitions - 1)]


@pytest.mark.parametrize("engine", ["records", "batches"])
def test_a_target_that_gives_records_times_of_its_own_is_not_said_to_differ(
    engine: str, make_copying: MakeCopying
) -> None:
    copying = make_copying(engine=engine, topic_configs={"extra": ["message.timestamp.type"]})
    own = {"message.timestamp.type": "LogAppendTime"}
    clients.create_topic(copying.target, copying.copy, copying.partitions, own)
    running = copying.running()
    copying.load.mixed(600)
    copying.wait_copied()
    assert running.stop() == 0
    blocks = [one["last_block"] for one in found(copying, "verify")]
    assert [block["verdict"] for block in blocks] == ["unverifiable"] * copying.partitions
