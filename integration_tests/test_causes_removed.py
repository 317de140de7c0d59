"""Incidents whose cause is removed outside, as docs/operate/incidents.md says: provoked, removed, and the flow goes on.

`tests/incidents_played.py` says where each kind is played.
"""

from __future__ import annotations

import time

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients, raw
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.processes import wait_until
from integration_tests.harness.replicator import FlowFile
from integration_tests.harness.two_topics import INCIDENT, TwoTopics, numbered
from integration_tests.partitions.test_plan_and_run import Damage, foreign_record, internal
from integration_tests.test_incidents_played import asked

pytestmark = pytest.mark.tier("full")


def test_topics_go_on_once_they_or_the_flow_file_were_corrected(make_copying: MakeCopying) -> None:
    """source_topic_deleted, unknown_source_topic, source_partitions_added, target_topic_too_small,
    target_topic_deleted, target_rewrites_timestamps, target_topic_name_invalid, refused_by_cluster."""
    copying = make_copying(partitions=1, new_partitions="stop")
    kinds = ("source_topic_deleted", "source_partitions_added", "target_topic_deleted", "target_rewrites_timestamps")
    topics = {kind: f"{copying.name}.{kind}" for kind in kinds}
    for topic in topics.values():
        clients.create_topic(copying.source, topic)
        clients.put(clients.producer(copying.source), topic, b"before")
    names = [f"^{copying.name}[.].*"]
    copying.file.write(topics=names)
    worker = copying.running()
    for topic in topics.values():
        clients.wait_value(copying.target, f"{topic}.copy", 0, b"before")
    assert worker.stop() == 0

    damage = {kind: Damage(copying, topic) for kind, topic in topics.items()}
    for kind, of in damage.items():
        getattr(of, kind)()
    topics["target_topic_too_small"] = f"{copying.name}.small"
    clients.create_topic(copying.source, topics["target_topic_too_small"], 2)
    clients.create_topic(copying.target, f"{topics['target_topic_too_small']}.copy", 1)
    topics["unknown_source_topic"] = f"{copying.name}.unknown"
    topics["target_topic_name_invalid"] = f"{copying.name}.".ljust(245, "x")
    clients.create_topic(copying.source, topics["target_topic_name_invalid"])
    topics["refused_by_cluster"] = f"{copying.name}.third"
    clients.create_topic(copying.source, topics["refused_by_cluster"])
    clients.create_topic(copying.target, f"{copying.name}.third_copy")  # `.` and `_` collide
    copying.file.write(topics=[*names, topics["unknown_source_topic"]])
    worker = copying.running()
    for kind, topic in topics.items():
        worker.wait_event("incident", name=kind, topic=topic)

    clients.grow_topic(copying.target, f"{topics['source_partitions_added']}.copy", 2)
    clients.grow_topic(copying.target, f"{topics['target_topic_too_small']}.copy", 2)
    clients.create_topic(copying.source, topics["unknown_source_topic"])
    clients.set_topic_config(
        copying.target, f"{topics['target_rewrites_timestamps']}.copy", "message.timestamp.type", "CreateTime"
    )
    clients.delete_topic(copying.target, f"{copying.name}.third_copy")
    going_on = dict(topics)
    excluded = [
        going_on.pop(kind) for kind in ("source_topic_deleted", "target_topic_deleted", "target_topic_name_invalid")
    ]
    for topic in going_on.values():
        clients.put(clients.producer(copying.source), topic, b"goes on")
        copy = f"{topic}.copy"
        wait_until(lambda copy=copy: copy in clients.topics(copying.target), f"{copy} is made", worker.tail)  # type: ignore[misc]
        clients.wait_value(copying.target, f"{topic}.copy", 0, b"goes on")
    assert worker.stop() == 4, "the others need the flow file"

    copying.file.write(topics=[*names, topics["unknown_source_topic"]], exclude=excluded)
    anew = FlowFile(
        copying.file.path.parent,
        f"{copying.name}-2",
        copying.source,
        copying.target,
        topics=[topics["target_topic_deleted"]],
        rename="{topic}.copy.2",
    )
    copying.file.include(anew)
    worker = copying.run()
    clients.wait_value(copying.target, f"{topics['target_topic_deleted']}.copy.2", 0, b"before")
    clients.put(clients.producer(copying.source), copying.topic, b"nothing is stopped")
    clients.wait_value(copying.target, copying.copy, 0, b"nothing is stopped")
    assert worker.seen("incident") == []
    assert worker.stop() == 0, worker.tail()


def test_a_flow_goes_on_once_it_leads_where_it_did(make_copying: MakeCopying, target: BrokerHandle) -> None:
    """source_cluster_changed, source_topic_changed."""
    two = TwoTopics(make_copying(partitions=1, rename="{flow}.copied"))
    copied = f"{two.name}.copied"
    two.flow.file.write(topics=[two.first])
    two.put(two.first, [b"before"])
    worker = two.flow.running()
    clients.wait_value(two.target, copied, 0, b"before")
    assert worker.stop() == 0

    two.flow.file.write(topics=[two.second])
    worker = two.flow.run()
    worker.wait_event("incident", name="source_topic_changed", topic=two.second)
    assert worker.wait_exit() == 4
    two.flow.file.write(topics=[two.first])

    clients.create_topic(target.bootstrap, two.first)
    two.flow.file.log_in(target.bootstrap)
    worker = two.flow.run()
    worker.wait_event("incident", name="source_cluster_changed", topic=two.first)
    assert worker.wait_exit() == 4
    two.flow.file.log_in(two.source)

    two.put(two.first, [b"goes on"])
    worker = two.flow.running()
    clients.wait_value(two.target, copied, 0, b"goes on")
    assert clients.values(clients.read(two.target, copied)) == [b"before", b"goes on"]
    assert worker.stop() == 0


def recreate_control(two: TwoTopics) -> None:
    """An empty control topic in place of the flow's."""
    clients.recreate_topic(two.target, internal(two.flow, "control"), 1, {"cleanup.policy": "compact"})


LOST = {
    "control_topic_lost": lambda two: clients.delete_topic(two.target, internal(two.flow, "control")),
    "control_topic_unreadable": lambda two: foreign_record(two.flow, "control"),
    "claims_topic_lost": lambda two: clients.delete_topic(two.target, internal(two.flow, "claims")),
    "claims_topic_unreadable": lambda two: foreign_record(two.flow, "claims"),
    "position_newer_than_control": lambda two: Damage(two.flow, two.first).position_newer_than_control(),
}


@pytest.mark.parametrize("name", LOST)
def test_a_flow_that_lost_its_own_topics_is_copied_by_one_of_another_name(make_copying: MakeCopying, name: str) -> None:
    two = TwoTopics(make_copying(partitions=1))
    two.assert_stops(two.running(10), 0)
    LOST[name](two)
    worker = two.flow.run()
    worker.wait_incident(name)
    of_one_topic = name == "position_newer_than_control"
    assert (worker.stop() if of_one_topic else worker.wait_exit()) == INCIDENT, worker.tail()
    anew = FlowFile(
        two.flow.file.path.parent,
        f"{two.name}-2",
        two.source,
        two.target,
        topics=[two.first, two.second],
        rename="{topic}.2",
    )
    two.flow.file.path = anew.path
    worker = two.flow.running()
    two.put(two.first, [b"goes on"])
    clients.wait_value(two.target, f"{two.first}.2", 0, b"goes on")
    assert clients.values(clients.read(two.target, f"{two.first}.2")) == [*numbered("old", 10), b"goes on"]
    assert worker.stop() == 0, worker.tail()


def test_configs_of_the_flows_own_topics_are_corrected(make_copying: MakeCopying) -> None:
    """control_topic_unfit, map_topic_unfit; and nothing_to_reconcile of a flow that has not run."""
    two = TwoTopics(make_copying(partitions=1))
    code, _, said = asked(two.flow, "reconcile", "--local")
    assert (code, "nothing_to_reconcile" in said) == (4, True), said
    two.assert_stops(two.running(10), 0)
    assert asked(two.flow, "reconcile", "--local")[0] == 0

    clients.set_topic_config(two.target, internal(two.flow, "control"), "cleanup.policy", "delete")
    worker = two.flow.run()
    worker.wait_incident("control_topic_unfit")
    assert worker.wait_exit() == INCIDENT, worker.tail()
    clients.set_topic_config(two.target, internal(two.flow, "control"), "cleanup.policy", "compact")

    clients.set_topic_config(two.target, internal(two.flow, "offsets"), "retention.ms", "86400000")
    listed = asked(two.flow, "incident", "list")[1]["incidents"]
    assert [it["name"] for it in listed] == ["map_topic_unfit"]
    clients.set_topic_config(two.target, internal(two.flow, "offsets"), "retention.ms", "-1")
    worker = two.flow.running()
    two.put(two.first, [b"goes on"])
    two.wait_copied(two.first, b"goes on")
    assert asked(two.flow, "incident", "list")[0] == 0
    two.assert_stops(worker, 0)
    assert asked(two.flow, "reconcile", "--local")[0] == 0


@pytest.mark.tier("long", kafka="long")
@pytest.mark.parametrize("engine", ["records", "batches"])
@pytest.mark.parametrize("listed", [False, True], ids=["raised before the next listing", "listed meanwhile"])
def test_a_bound_of_timestamps_that_was_lowered_a_moment_ago_is_raised_again(
    make_copying: MakeCopying, engine: str, *, listed: bool
) -> None:
    """target_timestamp_bounds: the target refuses what the flow doesn't know yet that it doesn't take."""
    interval_ms = 15_000
    two = TwoTopics(make_copying(partitions=1, engine=engine, limits={"discovery_interval_ms": interval_ms}))
    worker = two.running(10)
    bound, copy = "message.timestamp.before.max.ms", two.copy_of(two.first)
    clients.set_topic_config(two.target, copy, bound, "3600000")
    old = raw.record(b"k", b"old", timestamp_ms=time.time_ns() // 1_000_000 - 86_400_000)
    raw.put(two.source, two.first, 0, old)
    found = worker.wait_event("incident", topic=two.first)
    assert found["name"] == "target_timestamp_bounds"
    assert "INVALID_TIMESTAMP" in found["detail"], "the target has refused it"
    if listed:
        worker.wait_event("reassigned", timeout_s=3 * interval_ms / 1000)
    clients.set_topic_config(two.target, copy, bound, str(2**63 - 1))
    two.put(two.first, [b"behind"])
    two.wait_copied(two.first, b"behind")
    assert two.values(two.first) == [*numbered("old", 10), b"old", b"behind"]
    assert not worker.seen("incident", name="record_refused")
    two.assert_second_goes_on()
    two.assert_stops(worker, 0)


@pytest.mark.tier(kafka="full")
def test_a_lanes_topic_that_somebody_grew_is_deleted(make_copying: MakeCopying) -> None:
    """lanes_topic_unfit: a worker that shares its flow refuses to begin, and one that runs ends."""
    two = TwoTopics(make_copying(partitions=1))
    worker = two.flow.run("", "--shared")
    worker.wait_event("lane_started")
    lanes = internal(two.flow, "lanes.1")
    clients.grow_topic(two.target, lanes, 2)
    worker.wait_incident("lanes_topic_unfit")
    assert worker.wait_exit() == INCIDENT, worker.tail()
    worker = two.flow.run("", "--shared")
    worker.wait_incident("lanes_topic_unfit")
    assert worker.wait_exit() == INCIDENT, worker.tail()
    clients.delete_topic(two.target, lanes)
    worker = two.flow.run("", "--shared")
    two.put(two.first, [b"goes on"])
    two.wait_copied(two.first, b"goes on")
    two.assert_stops(worker, 0)


@pytest.mark.tier("long", kafka="long")
def test_a_consumer_of_the_new_protocol_is_seen_too(make_copying: MakeCopying) -> None:
    """foreign_group_member: Kafka takes workers into its group, and gives them the lanes that it doesn't have; the
    embedded broker refuses them. DescribeGroups knows no such group."""
    copying = make_copying(partitions=4, lanes=2)
    copying.load.mixed(100)
    clients.create_topic(copying.target, f"__eos.{copying.name}.lanes.2", 2)
    stranger = clients.consumer(
        copying.target,
        client_id="stranger",
        group_id=f"eos-replicate.{copying.name}.workers",
        group_protocol="consumer",
        enable_partition_eof=False,
    )
    stranger.subscribe([f"__eos.{copying.name}.lanes.2"])
    wait_until(lambda: stranger.poll(0.1) is None and bool(stranger.assignment()), "it has lanes", str)
    planned, found = copying.said("plan")
    (flow,) = found["flows"]
    named = [it["message"] for it in flow["findings"] if it["incident"] == "foreign_group_member"]
    assert (planned, len(named)) == (INCIDENT, 1)
    assert "has the member 'stranger'" in named[0]
    worker = copying.run("", "--shared")
    incident = worker.wait_incident("foreign_group_member")
    assert "has the member 'stranger'" in incident["detail"]
    assert not worker.seen("lanes_opened_early"), "it has seen that it isn't alone"
    code, found = copying.asked("workers")
    given = {it["host"]: {lane["lane"] for lane in it["lanes"]} for it in found["workers"] if it["pid"] is None}
    assert (code, given) == (0, {"stranger": {each.partition for each in stranger.assignment()}})
    stranger.close()
    worker.wait_event("lanes_assigned", lanes=[0, 1])
    copying.wait_copied()
    assert worker.stop() in (0, INCIDENT), worker.tail()  # by whether discovery has seen that it is over
    copying.assert_exact()


@pytest.mark.tier(kafka="full")
def test_a_consumer_in_the_group_of_the_workers_is_stopped(make_copying: MakeCopying) -> None:
    """foreign_group_member: it gets a lane, which nobody copies until it has gone."""
    copying = make_copying(partitions=4, lanes=2)
    copying.load.mixed(100)
    worker = copying.run("", "--shared")
    for lane in range(2):
        worker.wait_event("lane_started", lane=lane)
    stranger = clients.consumer(
        copying.target,
        group_id=f"eos-replicate.{copying.name}.workers",
        partition_assignment_strategy="cooperative-sticky",
        session_timeout_ms=10_000,
    )
    stranger.subscribe([f"__eos.{copying.name}.lanes.2"])
    wait_until(lambda: stranger.poll(0.1) is None and bool(stranger.assignment()), "it has a lane", worker.tail)
    worker.wait_incident("foreign_group_member")
    after = worker.mark()
    stranger.close()
    worker.wait_event("lanes_assigned", after=after, lanes=[0, 1])
    copying.wait_copied()
    assert worker.stop() in (0, INCIDENT), worker.tail()  # by whether discovery has seen that it is over
    copying.assert_exact()
