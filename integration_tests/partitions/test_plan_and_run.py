"""`plan` says of each incident what `run` does of it: the same name for the same topic, and the same exit code."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.copying import Copying
from integration_tests.harness.processes import wait_until
from integration_tests.harness.replicator import Replicator
from replicator.model import checkpoint
from replicator.model.checkpoint import Evidence

INCIDENT = 4
RECORDS = 20
HOUR_MS = 3_600_000


def planned(found: Mapping[str, Any]) -> dict[str, set[str]]:
    """Names of incidents by topic."""
    named: dict[str, set[str]] = {}
    for finding in found["findings"]:
        if finding["incident"]:
            named.setdefault(finding["topic"], set()).add(finding["incident"])
    return named


class Damage:
    """One topic of the flow with its copy, and what can happen to them while the flow doesn't run."""

    def __init__(self, copying: Copying, topic: str) -> None:
        self.copying, self.topic, self.copy = copying, topic, f"{topic}.copy"
        self.source, self.target = copying.source, copying.target

    def put(self, count: int, **more: Any) -> None:
        """Write to the source."""
        clients.put(clients.producer(self.source), self.topic, *[b"%d" % n for n in range(count)], **more)

    def commit(self, change: Callable[[Evidence], Evidence] = lambda it: it, *, ahead: int = 0, text: str = "") -> None:
        """Commit another position: with changed evidence, or other metadata, and this much ahead."""
        stands = clients.committed(self.target, self.copying.group, self.copy)
        metadata = text or checkpoint.encode(change(checkpoint.decode(str(stands.metadata))))
        client = clients.consumer(self.target, group_id=self.copying.group)
        where = TopicPartition(self.copy, 0, stands.offset + ahead, metadata)
        client.commit(offsets=[where], asynchronous=False)
        client.close()

    def moved(self, at_ms: int) -> None:
        """Have the position say that its offset moved last then."""
        self.commit(lambda it: replace(it, moved_ms=at_ms))

    def source_records_gone(self) -> None:
        self.put(10)
        clients.delete_records(self.source, self.topic, 0, clients.stable_end(self.source, self.topic) - 2)

    def source_truncated(self) -> None:
        self.commit(ahead=1_000)

    def source_topic_deleted(self) -> None:
        clients.delete_topic(self.source, self.topic)

    def source_topic_recreated(self) -> None:
        clients.recreate_topic(self.source, self.topic)

    def source_cluster_changed(self) -> None:
        self.commit(lambda it: replace(it, source_cluster="another"))

    def source_topic_changed(self) -> None:
        self.commit(lambda it: replace(it, source_topic="another"))

    def source_partitions_added(self) -> None:
        clients.grow_topic(self.source, self.topic, 2)

    def target_topic_deleted(self) -> None:
        clients.delete_topic(self.target, self.copy)

    def target_topic_recreated(self) -> None:
        clients.recreate_topic(self.target, self.copy)

    def target_lost_data(self) -> None:
        self.commit(lambda it: replace(it, next_target_offset=it.next_target_offset + 1_000))

    def target_has_later_records(self) -> None:
        clients.put(clients.producer(self.target), self.copy, b"not ours")

    def target_records_hidden(self) -> None:
        self.commit(lambda it: replace(it, next_target_offset=it.next_target_offset + 1))  # where the marker stands

    def target_rewrites_timestamps(self) -> None:
        clients.set_topic_config(self.target, self.copy, "message.timestamp.type", "LogAppendTime")

    def target_timestamp_bounds(self) -> None:
        clients.set_topic_config(self.target, self.copy, "message.timestamp.before.max.ms", str(HOUR_MS))
        self.put(1, timestamp=time.time_ns() // 1_000_000 - 2 * HOUR_MS)

    def position_newer_than_control(self) -> None:
        self.commit(lambda it: replace(it, generation=it.generation + 5))

    def position_unreadable(self) -> None:
        self.commit(text="somebody's")

    def newer_format(self) -> None:
        self.commit(text=json.dumps({"v": 99, "kind": "position", "must_understand": True}))


KINDS = [name for name in vars(Damage) if name not in ("put", "commit", "moved") and not name.startswith("_")]
NEW = ("target_not_empty", "target_topic_too_small")
"""Of topics that the flow has not copied yet."""


def told(worker: Replicator) -> dict[str, set[str]]:
    """Names of incidents that a process has logged, by topic."""
    named: dict[str, set[str]] = {}
    for event in worker.seen("incident"):
        named.setdefault(event["topic"], set()).add(event["name"])
    return named


def copied_once(copying: Copying, topics: Mapping[str, str]) -> None:
    """Some records of each topic, copied by a process that has stopped cleanly."""
    for topic in topics.values():
        clients.put(clients.producer(copying.source), topic, *[b"%d" % n for n in range(RECORDS)])
    worker = copying.running()
    for topic in topics.values():
        clients.wait_value(copying.target, f"{topic}.copy", 0, b"%d" % (RECORDS - 1))
    assert worker.stop() == 0, worker.tail()


@pytest.mark.tier("full")
def test_plan_names_what_run_stops_of_each_topic(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=1)
    topics = {kind: f"{copying.name}.{kind}" for kind in KINDS}
    for topic in topics.values():
        clients.create_topic(copying.source, topic)
    copying.file.write(topics=[f"^{copying.name}[.].*"], new_partitions="stop")
    copied_once(copying, {**topics, "": copying.topic})
    assert copying.asked("plan")[0] == 0

    for kind, topic in topics.items():
        getattr(Damage(copying, topic), kind)()
    for kind in NEW:
        topics[kind] = f"{copying.name}.{kind}"
        clients.create_topic(copying.source, topics[kind], 2)
        clients.create_topic(copying.target, f"{topics[kind]}.copy", 1 if kind == "target_topic_too_small" else 2)
    clients.put(clients.producer(copying.target), f"{topics['target_not_empty']}.copy", b"somebody's")

    expected = {topic: {kind} for kind, topic in topics.items()}
    code, found = copying.asked("plan")
    assert code == INCIDENT
    assert planned(found) == expected, found["findings"]
    worker = copying.run()
    for kind, topic in topics.items():
        worker.wait_event("incident", topic=topic, name=kind)
    clients.put(clients.producer(copying.source), copying.topic, b"the untouched topic goes on")
    clients.wait_value(copying.target, copying.copy, 0, b"the untouched topic goes on")
    assert worker.stop() == INCIDENT, worker.tail()
    assert told(worker) == expected, worker.tail()


def open_at_the_target(copying: Copying) -> Producer:
    """Somebody else's open transaction; it stays open as long as the producer lives."""
    producer = clients.transactional(copying.target, f"{copying.name}-stranger")
    producer.begin_transaction()
    producer.produce(copying.copy, b"open", partition=0)
    assert producer.flush(clients.TIMEOUT_S) == 0
    return producer


@pytest.mark.tier("full")
def test_plan_names_a_transaction_that_somebody_has_open_at_the_target(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=1)
    copied_once(copying, {"": copying.topic})
    producer = open_at_the_target(copying)
    code, found = copying.asked("plan")
    assert (planned(found), code) == ({copying.topic: {"target_transaction_open"}}, INCIDENT)
    (told,) = [each["message"] for each in found["findings"] if each["incident"]]
    assert "isn't this lane's" in told, told
    worker = copying.run()
    worker.wait_event("incident", name="target_transaction_open", topic=copying.topic)
    assert worker.wait_exit() == INCIDENT
    producer.abort_transaction(clients.TIMEOUT_S)


def without_positions(copying: Copying) -> None:
    """The flow's committed positions are deleted."""
    admin = clients.admin(copying.target)
    admin.delete_consumer_groups([copying.group])[copying.group].result(clients.TIMEOUT_S)


def internal(copying: Copying, kind: str) -> str:
    """One of the flow's own topics."""
    return f"__eos.{copying.name}.{kind}"


def foreign_record(copying: Copying, kind: str) -> None:
    """Something else writes into one of the flow's own topics."""
    clients.put(clients.producer(copying.target), internal(copying, kind), b"not ours", key=b"somebody")


WHOLE_FLOW: dict[str, Callable[[Copying], None]] = {
    "position_expired": without_positions,
    "control_topic_lost": lambda it: clients.delete_topic(it.target, internal(it, "control")),
    "control_topic_unfit": lambda it: clients.set_topic_config(
        it.target, internal(it, "control"), "cleanup.policy", "delete"
    ),
    "control_topic_unreadable": lambda it: foreign_record(it, "control"),
    "claims_topic_lost": lambda it: clients.delete_topic(it.target, internal(it, "claims")),
    "claims_topic_unreadable": lambda it: foreign_record(it, "claims"),
}


@pytest.mark.tier("full")
@pytest.mark.parametrize("name", WHOLE_FLOW)
def test_plan_names_what_stops_a_whole_flow(make_copying: MakeCopying, name: str) -> None:
    copying = make_copying(partitions=1)
    copied_once(copying, {"": copying.topic})
    WHOLE_FLOW[name](copying)
    code, found = copying.asked("plan")
    names = set().union(*planned(found).values())
    assert (names, code) == ({name}, INCIDENT), found
    worker = copying.run()
    code = worker.wait_exit()
    assert (code, set().union(*told(worker).values())) == (INCIDENT, {name}), worker.tail()


@pytest.mark.tier(embedded="default", kafka="full")
def test_plan_names_a_topic_that_a_new_flow_names_and_that_is_not_there(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=1)
    copying.file.write(topics=[copying.topic, f"{copying.name}.absent"])
    code, found = copying.asked("plan")
    assert (planned(found), code) == ({f"{copying.name}.absent": {"unknown_source_topic"}}, INCIDENT)
    worker = copying.run()
    assert worker.wait_exit() == INCIDENT
    assert told(worker) == planned(found), worker.tail()


@pytest.mark.tier("full")
def test_plan_finds_nothing_wrong_with_a_flow_that_runs_under_load(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=3)
    worker = copying.running()
    with copying.writing():
        found = [copying.asked("plan") for _ in range(4)]
    assert [(code, planned(it)) for code, it in found] == [(0, {})] * 4
    copying.finish(worker)


@pytest.mark.tier("long", kafka="long")
def test_plan_names_the_flows_own_topics_that_run_makes_then_and_no_others(make_copying: MakeCopying) -> None:
    policy = {"record_refused": {"decide": "set_aside", "gap_offsets_max_per_day": 1}}
    copying = make_copying(partitions=1, lanes=2, groups={"include": ["g"]}, policy=policy)
    code, found = copying.asked("plan")
    assert (code, planned(found)) == (0, {})
    named = {spec["name"]: spec["partitions"] for spec in found["internal"]}
    assert named == {
        internal(copying, "control"): 1,
        internal(copying, "claims"): 2,
        internal(copying, "lanes.2"): 2,
        internal(copying, "offsets"): 16,
        internal(copying, "offsets-index"): 17,
        internal(copying, "groups"): 1,
        internal(copying, "aside"): 1,
    }
    worker = copying.running("", "--shared")

    def made() -> set[str]:
        return {name for name in clients.topics(copying.target) if name.startswith(internal(copying, ""))}

    wait_until(lambda: made() >= named.keys(), "they are made", lambda: f"{made()}\n{worker.tail()}")
    assert made() == named.keys()
    assert copying.asked("plan")[1]["internal"] == []
    assert worker.stop() == 0, worker.tail()


@pytest.mark.tier("long", kafka="long")
def test_plan_names_a_topic_of_the_lanes_that_does_not_fit(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=1, lanes=2)
    clients.create_topic(copying.target, internal(copying, "lanes.2"), 3)
    code, found = copying.asked("plan")
    assert (code, planned(found)) == (INCIDENT, {internal(copying, "lanes.2"): {"lanes_topic_unfit"}})
    worker = copying.run("", "--shared")
    worker.wait_incident("lanes_topic_unfit")
