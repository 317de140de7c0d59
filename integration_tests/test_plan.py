"""Plan and status on a real Kafka with passwords and ACLs."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from cli import main
from integration_tests.harness.authorizing_kafka import Kafka, World, begun, commit_position, produce, running
from replicator.config import Flow
from replicator.flow.topics import ControlPlane
from replicator.inspect import flow_plan, planning, status
from replicator.kafka import offset_reader
from replicator.model import names
from replicator.model.checkpoint import Position
from replicator.model.errors import NotAllowed
from replicator.model.partition import Partition

pytestmark = [pytest.mark.kafka, pytest.mark.tier(kafka="full")]


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with running() as broker:
        yield broker


@pytest.fixture
def world(kafka: Kafka, tmp_path: Path) -> World:
    return World(kafka, tmp_path / "flows.yaml", f"x{uuid.uuid4().hex[:8]}")


def topics_of(flow: Flow, topic: str) -> dict[str, str]:
    """What a position says of its topics."""
    with ControlPlane(flow) as plane:
        source, _ = plane.connect()
        return {
            "source_cluster": source.cluster_id,
            "source_topic_id": plane.list_source()[topic].topic_id,
            "target_topic_id": plane.list_target([topic])[f"a.{topic}"].topic_id,
        }


def findings(plan: flow_plan.FlowPlan, kind: str = "") -> list[str]:
    return [f"{it.severity}: {it.message}" for it in plan.findings if kind in ("", it.kind)]


def test_plan_finds_every_missing_right_at_once_and_then_none(world: World) -> None:
    topic = f"{world.prefix}-1"
    world.kafka.create(topic, 1)
    config = world.write(target="alice")
    flow = config.flows[world.prefix]
    plan = planning.plan(flow, config, connect_timeout_ms=10_000)
    missing = "\n".join(findings(plan, "right"))
    for resource in (f"a.{topic}", names.control_topic(flow.name), names.claims_topic(flow.name)):
        assert re.search(rf"Describe, DescribeConfigs, Read, Write(, Alter)? on topic '{resource}'", missing), missing
        assert f"Create on topic '{resource}'" in missing
    for group in (names.position_group(flow.name), names.workers_group(flow.name)):
        assert f"Describe, Read on group '{group}'" in missing
    assert f"Describe, Write on transactional ids eos.{flow.name}.*" in missing
    assert plan.exit_code() == 3

    for operation in ("DESCRIBE", "DESCRIBE_CONFIGS", "READ", "WRITE", "CREATE", "ALTER"):
        for prefix in ("a." + world.prefix, f"__eos.{world.prefix}"):
            world.kafka.allow(operation, "TOPIC", prefix)
    world.kafka.allow("READ", "GROUP", f"eos-replicate.{world.prefix}")
    world.kafka.allow("WRITE", "TRANSACTIONAL_ID", f"eos.{world.prefix}.")
    plan = planning.plan(flow, config, connect_timeout_ms=10_000)
    assert [text for text in findings(plan) if text.startswith("error")] == []
    assert any(text.endswith("; whether __consumer_offsets keeps positions is not known") for text in findings(plan))
    assert plan.exit_code() == 0
    with begun(flow) as (setup, _):
        setup.routes(setup.begin())
    assert planning.plan(flow, config, connect_timeout_ms=10_000).exit_code() == 0


def test_plan_finds_rights_missing_on_existing_topics(world: World) -> None:
    topic = f"{world.prefix}-1"
    world.kafka.create(topic, 1)
    world.kafka.create(f"a.{topic}", 1)
    for prefix in (f"a.{world.prefix}", f"__eos.{world.prefix}"):
        world.kafka.allow("DESCRIBE", "TOPIC", prefix)
    config = world.write(target="alice")
    plan = planning.plan(config.flows[world.prefix], config, connect_timeout_ms=10_000)
    assert f"error: cluster 'alice': the user needs DescribeConfigs, Read, Write on topic 'a.{topic}'" in findings(plan)


def test_plan_changes_nothing_and_says_what_would_be_created(world: World) -> None:
    one, two = f"{world.prefix}-1", f"{world.prefix}-2"
    world.kafka.create(one, 3, retention_ms="777")
    world.kafka.create(two, 1)
    world.kafka.create(f"a.{two}", 1)
    before = world.mine()
    config = world.write()
    plan = planning.plan(config.flows[world.prefix], config, connect_timeout_ms=10_000)
    assert world.mine() == before
    assert [(item.action, item.target, item.partitions) for item in plan.topics] == [
        ("create", f"a.{one}", 3),
        ("keep", f"a.{two}", 1),
    ]
    assert plan.topics[0].configs["retention.ms"] == "777"
    assert [spec.partitions for spec in plan.internal] == [1, 1, 1, 16]
    assert (findings(plan), plan.exit_code()) == ([], 0)


def test_plan_finds_a_target_with_data_but_no_position(world: World) -> None:
    topic = f"{world.prefix}-1"
    world.kafka.create(topic, 2)
    world.kafka.create(f"a.{topic}", 2)
    produce(world, f"a.{topic}", 3, partition=1)
    config = world.write()
    flow = config.flows[world.prefix]
    plan = planning.plan(flow, config, connect_timeout_ms=10_000)
    (found,) = findings(plan)
    assert found.startswith(f"error: target_not_empty at {topic}[1]: a.{topic}[1] has data up to offset 3")
    assert plan.exit_code() == 4
    commit_position(world, flow, f"a.{topic}", 1, 5, **topics_of(flow, topic))
    plan = planning.plan(flow, config, connect_timeout_ms=10_000)
    (found,) = findings(plan)
    assert found.startswith(f"error: control_topic_lost at {names.control_topic(flow.name)}[0]")
    assert plan.topics[0].partitions_with_position == 1


def test_plan_finds_limits_partitions_and_policies_that_do_not_fit(world: World) -> None:
    topic = f"{world.prefix}-1"
    world.kafka.create(topic, 2, max_message_bytes="2000000")
    world.kafka.create(f"a.{topic}", 1)
    config = world.write("limits: {transaction_timeout_ms: 900001}, topic_configs: {replication_factor: 2}")
    plan = planning.plan(config.flows[world.prefix], config, connect_timeout_ms=10_000)
    found = "\n".join(findings(plan))
    assert "limits.transaction_timeout_ms is 900001, the target allows 900000" in found
    assert "target_topic_too_small" in found
    assert "INVALID_REPLICATION_FACTOR" in found
    assert f"warning: target topic 'a.{topic}' takes 1048588 bytes, source topic '{topic}' 2000000" in found
    assert plan.exit_code() == 4


def test_one_broker_under_two_names_is_seen_through_by_its_cluster_id(world: World) -> None:
    world.kafka.create(f"{world.prefix}-1", 1)
    config = world.write("rename: '{topic}-copy'")
    plan = planning.plan(config.flows[world.prefix], config, connect_timeout_ms=10_000)
    assert "would feed itself" in findings(plan, "conflict")[0]
    assert (plan.topics[0].action, plan.exit_code()) == ("stop", 4)


def test_status_shows_position_and_lag(world: World) -> None:
    topic = f"{world.prefix}-1"
    world.kafka.create(topic, 3)
    world.kafka.create(f"a.{topic}", 3)
    flow = world.flow()
    now_ms = time.time_ns() // 1_000_000
    produce(world, topic, 4, partition=0, timestamp_ms=now_ms - 90_000)
    produce(world, topic, 2, partition=1)
    known = topics_of(flow, topic)
    for partition, copied in ((0, 1), (1, 2)):
        produce(world, f"a.{topic}", copied, partition)
        noted = {"generation": 0, "next_target_offset": copied, "committed_ms": now_ms - 1000, **known}
        commit_position(world, flow, f"a.{topic}", partition, copied, **noted)
    shown = status.status(flow, world.config(), now_ms=now_ms, connect_timeout_ms=10_000)
    rows = [(row.partition, row.position, row.source_end, row.lag_records, row.state) for row in shown.partitions]
    assert rows == [(0, 1, 4, 3, "behind"), (1, 2, 2, 0, "in_sync"), (2, None, 0, 0, "not_started")]
    assert shown.partitions[0].lag_seconds == 90.0
    assert shown.partitions[0].last_commit_ms == now_ms - 1000


def test_status_does_not_count_an_open_transaction_at_the_source(world: World) -> None:
    topic = f"{world.prefix}-1"
    world.kafka.create(topic, 1)
    flow = world.flow()
    open_one = Producer({"bootstrap.servers": world.kafka.plain, "transactional.id": world.prefix, "log_level": 0})
    open_one.init_transactions(60)
    open_one.begin_transaction()
    open_one.produce(topic, b"x", partition=0)
    open_one.flush(30)
    (row,) = status.status(flow, world.config(), now_ms=0, connect_timeout_ms=10_000).partitions
    assert row.source_end == 0
    open_one.commit_transaction(60)
    (row,) = status.status(flow, world.config(), now_ms=0, connect_timeout_ms=10_000).partitions
    assert row.source_end == 2


def test_status_shows_a_named_topic_that_is_gone(world: World) -> None:
    (row,) = status.status(
        world.flow(topics=f"{world.prefix}-1"), world.config(), now_ms=0, connect_timeout_ms=10_000
    ).partitions
    assert (row.source_topic, row.partition, row.state) == (f"{world.prefix}-1", -1, "topic_missing")


def test_positions_are_none_only_when_the_broker_says_so(world: World) -> None:
    topic = f"a.{world.prefix}-1"
    world.kafka.create(topic, 2)
    flow = world.flow()
    commit_position(world, flow, topic, 1, 7)
    found = offset_reader.positions(flow, [Partition(topic, 0), Partition(topic, 1)])
    assert found[Partition(topic, 0)] is None
    position = found[Partition(topic, 1)]
    assert isinstance(position, Position)
    assert (position.offset, position.evidence.owner) == (7, "me")


def test_status_names_the_missing_right_on_the_group(world: World) -> None:
    world.kafka.create(f"{world.prefix}-1", 1)
    world.kafka.allow("DESCRIBE", "TOPIC", f"a.{world.prefix}")
    flow = world.flow(target="alice")
    with pytest.raises(NotAllowed, match=f"cluster 'alice'.* needs Describe on group 'eos-replicate.{flow.name}'"):
        status.status(flow, world.config(), now_ms=0, connect_timeout_ms=10_000)


def test_commands_print_json_and_end_with_their_exit_code(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.kafka.create(f"{world.prefix}-1", 1)
    world.write()
    assert main.invoke(["plan", "-c", str(world.path), "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["flows"][0]["topics"][0]["action"] == "create"
    assert main.invoke(["status", "-c", str(world.path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["flows"][0]["partitions"][0]["state"] == "not_started"

    world.write(target="wrong")
    for command in ("plan", "status"):
        assert main.invoke([command, "-c", str(world.path), "--json"]) == 3
        printed = capsys.readouterr()
        assert "cluster 'wrong' refused the credentials" in printed.out
        json.loads(printed.out)


def test_commands_for_people(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    topic = f"{world.prefix}-1"
    world.kafka.create(topic, 1)
    world.write()
    assert main.invoke(["plan", "-c", str(world.path)]) == 0
    printed = capsys.readouterr().out
    assert f"create a.{topic} with 1 partition: cleanup.policy=delete" in printed
    assert "ready to run" in printed
    assert main.invoke(["status", "-c", str(world.path)]) == 0
    printed = capsys.readouterr().out
    assert f"{topic} → a.{topic}" in printed
    assert "not_started" in printed
