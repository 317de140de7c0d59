"""The source's own retention removes records before they were copied: decided, and running again, in three commands."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.harness import clients
from integration_tests.harness.advised import advised
from integration_tests.harness.broker import BrokerHandle, Kind
from integration_tests.harness.copying import Copying
from integration_tests.harness.embedded import EmbeddedBroker
from integration_tests.harness.kafka_container import KafkaContainer
from integration_tests.harness.processes import wait_until
from integration_tests.harness.two_topics import TwoTopics, numbered
from integration_tests.test_incidents_played import asked

pytestmark = pytest.mark.tier("long", kafka="long")

CHECK = "log.retention.check.interval.ms"
CHECK_MS, SEGMENT_MS, RETENTION_MS = 500, 60_000, 600_000
HOUR_MS = 3_600_000
OLD, UNREAD, KEPT = 100, 200, 50
AT, LEFT = OLD, OLD + UNREAD
"""Where the flow stands, and where the source's log begins once retention has removed what is older."""


@pytest.fixture
def retaining(kind: Kind, tmp_path: Path) -> Iterator[BrokerHandle]:
    """A source of this test alone, which often looks what is too old."""
    made: BrokerHandle
    if kind == "kafka":
        made = KafkaContainer(settings={CHECK: str(CHECK_MS)})
    else:
        made = EmbeddedBroker(tmp_path / "retaining", f"--config={CHECK}={CHECK_MS}")
    try:
        made.start()
        clients.warm_up(made.bootstrap)
        yield made
    finally:
        made.stop()


@pytest.fixture
def two(retaining: BrokerHandle, target: BrokerHandle, tmp_path: Path) -> Iterator[TwoTopics]:
    copying = Copying(
        retaining, target, tmp_path, partitions=1, source_configs={"segment.ms": str(SEGMENT_MS), "retention.ms": "-1"}
    )
    yield TwoTopics(copying)
    copying.close()


def put(two: TwoTopics, word: str, count: int, age_ms: int) -> None:
    """Records of one segment: what is an hour older stands in another."""
    at_ms = time.time_ns() // 1_000_000 - age_ms
    clients.put(clients.producer(two.source), two.first, *numbered(word, count), key=b"key", timestamp=at_ms)


def overrun(two: TwoTopics) -> None:
    """Records come, and retention removes the older ones with all that was copied."""
    put(two, "unread", UNREAD, HOUR_MS)
    put(two, "kept", KEPT, 0)
    clients.set_topic_config(two.source, two.first, "retention.ms", str(RETENTION_MS))

    def begins() -> int | None:
        return clients.read(two.source, two.first)[0].offset()

    wait_until(lambda: begins() == LEFT, "retention has removed them", lambda: str(begins()))


def copied_before(two: TwoTopics) -> None:
    """A worker copies what there is, and stops: one that is suspended has a fetch under way, whose answer waits for
    it."""
    put(two, "old", OLD, 2 * HOUR_MS)
    two.put(two.second, [b"first"])
    worker = two.flow.running()
    two.wait_position(two.first, AT)
    two.wait_position(two.second, 1)
    two.assert_stops(worker, 0)


@pytest.mark.parametrize("runs", [True, False], ids=["runs", "stopped"])
def test_it_is_decided_and_runs_again_in_three_commands(two: TwoTopics, *, runs: bool) -> None:
    """`incident list`, `incident show` and `incident resolve` of a flow that runs; of one that doesn't, `run` is the
    third, and the same advice is in the list."""
    copied_before(two)
    overrun(two)
    worker = two.flow.running()
    found = worker.wait_event("incident", name="source_records_gone", topic=two.first)
    assert (found["offset"], f"source offsets {AT} to {LEFT - 1}" in found["detail"]) == (AT, True), found
    two.assert_second_goes_on()

    def listed() -> list[dict[str, object]]:
        return list(asked(two.flow, "incident", "list")[1]["incidents"])

    wait_until(lambda: bool(listed()), "it is written down", worker.tail)
    if not runs:
        two.assert_stops(worker)
    (it,) = listed()  # the first command
    advice, id_ = str(it["advice"]), str(it["id"])
    if runs:
        advice = asked(two.flow, "incident", "show", id_)[1]["advice"]
    wait = () if runs else ("--wait", "0")
    code, done, said = asked(two.flow, *advised(advice, "incident resolve"), *wait)
    assert code == 0, said
    if runs:
        assert (done["acted"], done["moved"]) == ("skipped", [AT, LEFT]), said
    else:
        worker = two.flow.run()
    two.wait_copied(two.first, b"kept %d" % (KEPT - 1))
    two.wait_position(two.first, LEFT + KEPT)
    assert two.values(two.first)[-KEPT:] == numbered("kept", KEPT)
    assert [value for value in two.values(two.first) if value and value.startswith(b"unread")] == []
    assert asked(two.flow, "incident", "list")[1]["incidents"] == []
    (gap,) = two.status()["signed_gaps"]
    assert (gap["command"], gap["first"], gap["end"]) == ("skip", AT, LEFT)
    assert {row["state"] for row in two.status()["partitions"]} == {"in_sync"}
    two.assert_second_goes_on()
    two.assert_stops(worker, 0)
