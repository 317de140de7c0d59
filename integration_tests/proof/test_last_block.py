"""`verify` and `reconcile` after a flow of either engine: the last block of each position is compared by its digest."""

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
from replicator.model.checkpoint import DIGEST_KIND
from tests.running.users_packages import users_packages

pytestmark = pytest.mark.tier("long")


def found(copying: Copying, *command: str, code: int = 0) -> list[dict[str, Any]]:
    asked = [sys.executable, "-m", "cli.main", *command, "-c", str(copying.file.path), "--json"]
    shown = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=300, env=users_packages())
    assert shown.returncode == code, shown
    partitions: list[dict[str, Any]] = json.loads(shown.stdout)["partitions"]
    return partitions


@pytest.mark.parametrize(
    ("engine", "source_type", "target_type", "verdict"),
    [
        ("records", "producer", "producer", "equal"),
        ("batches", "producer", "producer", "equal"),
        ("records", "producer", "gzip", "equal"),
        ("batches", "producer", "gzip", "equal"),
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
    for _ in range(2):  # a first block whose batches differ from each other may not be comparable
        copying.load.mixed(300)
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


@pytest.mark.parametrize("engine", ["records", "batches"])
def test_one_altered_record_is_found_where_the_target_compresses_anew(
    engine: str, make_copying: MakeCopying, target: BrokerHandle
) -> None:
    """The end of a partition is written again, first as it was, then with one record that has another header."""
    copying = make_copying(engine=engine, partitions=1)
    clients.create_topic(copying.target, copying.copy, 1, {"compression.type": "gzip"})
    producer = clients.producer(copying.source, compression_type="lz4", linger_ms=50)
    running = copying.running()
    for number in range(100):
        producer.produce(copying.topic, b"value %d" % number * 20, b"%d" % number, headers={"n": b"%d" % number})
    assert producer.flush(30) == 0
    copying.wait_copied()
    for number in range(100, 200):
        producer.produce(copying.topic, b"value %d" % number * 20, b"%d" % number, headers={"n": b"%d" % number})
    assert producer.flush(30) == 0
    copying.wait_copied()
    assert running.stop() == 0
    (block,) = (one["last_block"] for one in found(copying, "verify"))
    assert (block["verdict"], block["kind"]) == ("equal", DIGEST_KIND)
    copies = clients.read(copying.target, copying.copy, 0, block["first"])[: block["records"]]
    topic_id = clients.topic_id(copying.target, copying.copy)
    for verdict, code, altered in (("equal", 0, -1), ("differs", 1, block["records"] // 2)):
        target.kill()
        target.cut_log(copying.copy, topic_id, 0, block["first"])
        target.restart()
        clients.settle(copying.target, copying.copy, 1)
        again = clients.producer(copying.target, compression_type="zstd", linger_ms=50)
        for place, copy in enumerate(copies):
            headers: Any = {"n": b"other"} if place == altered else copy.headers()
            again.produce(
                copying.copy, copy.value(), copy.key(), 0, timestamp=copy.timestamp()[1], headers=headers or []
            )
        assert again.flush(30) == 0
        (looked,) = (one["last_block"] for one in found(copying, "verify", code=code))
        assert (looked["verdict"], looked["records"]) == (verdict, block["records"])
        notes = [note for one in found(copying, "reconcile", "--local", code=code) for note in one["notes"]]
        assert ("last block" in str(notes)) == (verdict == "differs")


@pytest.mark.parametrize("engine", ["records", "batches"])
def test_reconcile_on_spark_compares_it_too(engine: str, make_copying: MakeCopying, target: BrokerHandle) -> None:
    copying = make_copying(engine=engine, partitions=1)
    written = clients.producer(copying.source, linger_ms=50)

    running = copying.running()
    for _ in range(2):  # the last block is one of several
        for number in range(100):
            written.produce(copying.topic, b"value %d" % number, b"%d" % number, 0)
        assert written.flush(30) == 0
        copying.wait_copied()
    assert running.stop() == 0
    (same,) = found(copying, "reconcile")
    assert "last block" not in str(same["notes"])
    (block,) = (one["last_block"] for one in found(copying, "verify"))
    topic_id = clients.topic_id(copying.target, copying.copy)
    target.kill()
    target.cut_log(copying.copy, topic_id, 0, block["first"])
    target.restart()
    clients.settle(copying.target, copying.copy, 1)
    copies = clients.read(copying.source, copying.topic, 0, 0)[-block["records"] :]
    again = clients.producer(copying.target, linger_ms=50)
    for place, copy in enumerate(copies):
        value = copy.value() if place < len(copies) - 1 else b"altered"
        again.produce(copying.copy, value, copy.key(), 0, timestamp=copy.timestamp()[1])
    assert again.flush(30) == 0
    (altered,) = found(copying, "reconcile", code=1)
    assert altered["verdicts"]["altered"] == 1
    assert [note for note in altered["notes"] if "its digest isn't the one that the position says" in note]
