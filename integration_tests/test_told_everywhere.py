"""`status`, `top`, the status page and the metrics tell the same of a flow with partitions in every state."""

from __future__ import annotations

import html
import signal
import subprocess
import sys

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.copying import Copying
from integration_tests.harness.failing_over import command, failover
from integration_tests.harness.observed import TIMEOUT_S
from integration_tests.harness.processes import wait_until
from integration_tests.harness.replicator import DEFAULT, Replicator
from integration_tests.harness.told import (
    IN_SYNC,
    Expected,
    Told,
    assert_shown,
    assert_status,
    metrics,
    status,
    wait_doing,
)
from integration_tests.harness.two_topics import INCIDENT
from integration_tests.test_incidents_played import LARGE, open_id, resolved
from integration_tests.test_incidents_played import asked as command_asked
from integration_tests.test_metrics import observed
from replicator.model.partition import Partition
from replicator.observe.view import Doing

pytestmark = pytest.mark.tier("long")

BEFORE, AFTER = 10, 5
"""Records of each topic that are copied before anything happens, and that are written after that."""
TOPICS = ("refused", "large", "lost", "again", "deleted", "held", "unseen", "over", "fresh")


EXPECTED = {
    "refused": Expected(Doing.STOPPED, "record_refused", "stopped"),
    "large": Expected(Doing.STOPPED, "record_too_large", "stopped"),
    "lost": Expected(Doing.STOPPED, "source_records_gone", "records_lost"),
    "again": Expected(Doing.STOPPED, "source_topic_recreated", "source_recreated"),
    "held": Expected(Doing.PAUSED, "paused", "paused"),
    "unseen": Expected(Doing.STOPPED, "target_topic_deleted", "target_deleted"),
    "over": Expected(Doing.FAILED_OVER, "failed_over", "failed_over"),
    "fresh": Expected(Doing.STOPPED, "target_topic_recreated", "target_recreated"),
    "others": Expected(Doing.STOPPED, "target_not_empty", "stopped"),
}
"""What happens to the topics but one, by what is behind the flow's name in theirs."""
DELETED = {
    "report": Expected(Doing.WAITING, "source_topic_gone", "topic_missing"),
    "keep": Expected(Doing.GONE, "copy_kept", "kept"),
}
"""What happens to the other one, by the flow's `deleted_topics`."""


class Flow:
    """A flow of thirteen partitions."""

    def __init__(self, copying: Copying, deleted_topics: str = "report") -> None:
        self.copying, self.name = copying, copying.name
        topics = {**EXPECTED, "deleted": DELETED[deleted_topics]}
        self.expected = {Partition(self.topic(name), 0): it for name, it in topics.items()}
        self.expected |= {Partition(copying.topic, number): IN_SYNC for number in range(3)}

    def topic(self, name: str) -> str:
        """The source topic of that short name."""
        return f"{self.name}.{name}"

    def put(self, name: str, *values: bytes, key: bytes | None = b"key") -> None:
        """Write to a source topic."""
        clients.put(clients.producer(self.copying.source), self.topic(name), *values, key=key)

    def copied(self) -> Replicator:
        """A worker that has copied what was there at first, of which one topic is failed over then."""
        copying = self.copying
        for name in TOPICS:
            clients.create_topic(copying.source, self.topic(name))
            self.put(name, *(b"%d" % number for number in range(BEFORE)))
        clients.create_topic(copying.target, f"{self.topic('refused')}.copy", 1, {"cleanup.policy": "compact"})
        clients.create_topic(copying.target, f"{self.topic('large')}.copy", 1, {"max.message.bytes": "3000"})
        clients.put(clients.producer(copying.source), copying.topic, b"only", partition=0)
        worker = copying.running("", "--shared")
        for name in TOPICS:
            clients.wait_value(copying.target, f"{self.topic(name)}.copy", 0, b"%d" % (BEFORE - 1))
        code, said = failover(copying, "--topics", self.topic("over"))
        assert code in (0, 1), said
        return worker

    def damage(self) -> None:
        """What happens while nobody copies."""
        copying = self.copying
        for name in ("lost", "over", "held"):
            self.put(name, *[b"more"] * AFTER)
        clients.delete_records(copying.source, self.topic("lost"), 0, BEFORE + 2)
        clients.recreate_topic(copying.source, self.topic("again"))
        clients.delete_topic(copying.source, self.topic("deleted"))
        clients.delete_topic(copying.target, f"{self.topic('unseen')}.copy")
        clients.recreate_topic(copying.target, f"{self.topic('fresh')}.copy")
        clients.create_topic(copying.source, self.topic("others"))
        clients.create_topic(copying.target, f"{self.topic('others')}.copy")
        clients.put(clients.producer(copying.target), f"{self.topic('others')}.copy", b"foreign")
        self.put("others", b"first")
        self.put("refused", b"no key", key=None)
        self.put("large", LARGE)


@pytest.mark.parametrize("deleted_topics", ["report", "keep"])
def test_they_tell_the_same_of_partitions_in_every_state(make_copying: MakeCopying, deleted_topics: str) -> None:
    copying = make_copying(partitions=3, deleted_topics=deleted_topics, limits={"discovery_interval_ms": 1_000})
    flow = Flow(copying, deleted_topics)
    copying.file.write(topics=[f"^{flow.name}[.].*"])
    asked = observed(copying)
    worker = flow.copied()
    command(copying, "pause", "--topics", flow.topic("held"))
    assert worker.stop() == 0, worker.tail()
    flow.damage()
    worker = copying.running("", "--shared")
    held_back = clients.transactional(copying.source, f"{flow.name}-open")
    held_back.begin_transaction()
    clients.put(held_back, copying.topic, b"not committed", partition=2)
    wait_doing(asked, copying, flow.expected)
    asked.wait(
        "a transaction holds records back",
        lambda it: it.value("eos_partition_held_back_records", flow=flow.name, topic=copying.topic, partition="2") == 1,
    )
    assert_status(asked, copying, flow.expected)
    assert_shown(asked, copying)
    held_back.abort_transaction()
    assert worker.stop() == INCIDENT, worker.tail()


def test_they_tell_the_position_that_a_decision_has_given(make_copying: MakeCopying) -> None:
    """Also where nothing comes afterwards: the lag doesn't get older."""
    copying = make_copying(partitions=1)
    clients.create_topic(copying.target, copying.copy, 1, {"cleanup.policy": "compact"})
    asked = observed(copying)
    worker = copying.running("", "--shared")
    clients.put(clients.producer(copying.source), copying.topic, b"copied", key=b"key")
    clients.put(clients.producer(copying.source), copying.topic, b"refused", key=None)
    resolved(copying, open_id(copying, "record_refused", copying.topic, worker), "--skip", "skipped")
    labels = {"flow": copying.name, "topic": copying.topic, "partition": "0"}
    _, said = copying.asked("status")
    assert [(row["position"], row["lag_records"]) for row in said["partitions"]] == [(2, 0)]
    asked.wait("the position", lambda it: it.value("eos_partition_position", **labels) == 2)
    asked.wait("no lag", lambda it: it.value("eos_partition_lag_records", **labels) == 0)
    assert asked.value("eos_partition_lag_seconds", **labels) == 0
    assert worker.stop() == 0, worker.tail()


def test_they_tell_the_same_of_topics_that_were_created_again_while_the_flow_runs(make_copying: MakeCopying) -> None:
    """The process has read positions before that are gone with the target topics."""
    copying = make_copying(partitions=1, limits={"discovery_interval_ms": 1_000})
    names = {word: f"{copying.name}.{word}" for word in ("target", "both")}
    left = {Partition(names["target"], 0): BEFORE, Partition(names["both"], 0): AFTER}
    copying.file.write(topics=[f"^{copying.name}[.].*"])
    asked = observed(copying)
    for name in names.values():
        clients.create_topic(copying.source, name)
        clients.put(clients.producer(copying.source), name, *[b"old"] * BEFORE)
    worker = copying.running("", "--shared")
    wait_until(
        lambda: {told.position for at, (_, told) in metrics(asked, copying.name).items() if at in left} == {BEFORE},
        "copied",
        worker.tail,
    )
    for name in names.values():
        clients.recreate_topic(copying.target, f"{name}.copy")
    clients.recreate_topic(copying.source, names["both"])
    clients.put(clients.producer(copying.source), names["both"], *[b"new"] * AFTER)
    for name in names.values():
        open_id(copying, "target_topic_recreated", name, worker)

    kind = "target_topic_recreated"
    expected = {where: Told(kind, None, lag) for where, lag in left.items()}
    by_status = status(copying)
    assert {where: by_status[where][1] for where in left} == expected

    def by_metrics() -> dict[Partition, Told]:
        found = {name: told for name, (_, told) in metrics(asked, copying.name).items()}
        return {where: found[where] for where in left}

    wait_until(lambda: by_metrics() == expected, "metrics", lambda: str(by_metrics()))
    _, top = copying.asked("top")
    assert {
        Partition(row["topic"], row["partition"]): (row["kind"], row["position"]) for row in top["not_copied"]
    } == dict.fromkeys(left, (kind, None))
    assert {row["name"]: row["lag_records"] for row in top["topics"] if row["name"] in names.values()} == {
        where.topic: lag for where, lag in left.items()
    }
    assert top["lag_records"] == asked.value("eos_flow_lag_records", flow=copying.name) == BEFORE + AFTER
    shown = {row["topic"]: row for row in command_asked(copying, "position", "show")[1]["flows"][0]["partitions"]}
    for where, lag in left.items():
        row = shown[where.topic]
        assert (row["position"], row["lag_records"], row["wrong"].split(":")[0]) == (None, lag, kind)
    assert "both topics were created again" in shown[names["both"]]["wrong"]
    assert worker.stop() == INCIDENT, worker.tail()


def test_they_tell_that_the_settings_of_another_file_hold(make_copying: MakeCopying) -> None:
    """The flow file is put back to what it was, and the flow has had that one before: until it is applied."""
    copying = make_copying(partitions=1)
    asked = observed(copying)
    worker = copying.running("", "--shared")
    worker.wait_event("lane_started", generation=1)
    copying.file.write(commit={"linger_ms": 7})
    worker.signal(signal.SIGHUP)
    worker.wait_event("lane_started", generation=2)
    assert asked.value("eos_flow_other_settings", flow=copying.name) == 0
    copying.file.write(commit={"linger_ms": DEFAULT})
    worker.signal(signal.SIGHUP)
    worker.wait_event("file_is_older", generation=2)
    asked.wait("it goes on", lambda it: it.ready()[0])
    said = copying.asked("status")[1]["other_settings"]
    assert "eos-replicate apply" in said
    assert asked.value("eos_flow_other_settings", flow=copying.name) == 1
    assert asked.ready()[1][copying.name]["other_settings"] == said
    assert copying.asked("top")[1]["other_settings"] == said
    assert said in html.unescape(asked.get("/")[1])
    shown = subprocess.run(
        [sys.executable, "-m", "cli.main", "top", "--once", "-c", str(copying.file.path)],
        capture_output=True, text=True, check=True, timeout=TIMEOUT_S,
    ).stdout  # fmt: skip
    assert said in " ".join(shown.split())
    copying.load.mixed(50)
    copying.wait_copied()
    assert copying.said("apply")[0] == 0
    worker.wait_event("lane_started", generation=3)
    asked.wait("its own settings", lambda it: it.value("eos_flow_other_settings", flow=copying.name) == 0)
    assert "other_settings" not in asked.ready()[1][copying.name]
    assert copying.asked("top")[1]["other_settings"] == ""
    copying.finish(worker)
