"""Limits that don't fit, found before the flow runs."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from embedded_broker.testing.handle import KafkaBroker
from replicator.config import Flow, load_text
from replicator.inspect import planning
from replicator.inspect.flow_plan import FlowPlan, PlanFinding
from replicator.inspect.plan_limits import limit_faults, offsets_topic_faults, size_warnings
from replicator.kafka.topic_questions import TopicInfo

BROKER = {"transaction.max.timeout.ms": "900000", "offsets.retention.minutes": "10080"}


def flow(limits: str = "") -> Flow:
    text = f"""\
clusters:
  a: {{properties: {{bootstrap.servers: "a:1"}}}}
  b: {{properties: {{bootstrap.servers: "b:1"}}}}
flows:
  f: {{source: a, target: b, topics: [t], limits: {{{limits}}}}}
"""
    return load_text(text, env={}).flows["f"]


def topic(name: str, max_bytes: int) -> TopicInfo:
    return TopicInfo(name, "id", 1, {"max.message.bytes": str(max_bytes)})


def test_defaults_fit_a_default_broker() -> None:
    assert list(limit_faults(flow(), BROKER)) == []
    assert list(size_warnings(flow(), {"t": topic("t", 1_048_588)}, {"a.t": topic("a.t", 1_048_588)})) == []


def test_unknown_limits_are_no_faults() -> None:
    assert list(limit_faults(flow("transaction_timeout_ms: 900001"), {})) == []


def test_a_session_beyond_the_brokers_bounds() -> None:
    bounds = BROKER | {"group.min.session.timeout.ms": "6000", "group.max.session.timeout.ms": "20000"}
    for text in ("", "session_timeout_ms: 6s", "session_timeout_ms: 20s"):
        assert list(limit_faults(flow(text), bounds)) == []
    (low,) = limit_faults(flow("session_timeout_ms: 5999"), bounds)
    assert low == ("limits.session_timeout_ms is 5999, the target wants at least 6000 (group.min.session.timeout.ms)")
    (high,) = limit_faults(flow("session_timeout_ms: 21s"), bounds)
    assert "at most 20000 (group.max.session.timeout.ms)" in high
    assert list(limit_faults(flow("session_timeout_ms: 1s"), BROKER)) == []


def test_a_transaction_timeout_above_the_brokers() -> None:
    assert list(limit_faults(flow("transaction_timeout_ms: 900000"), BROKER)) == []
    (fault,) = limit_faults(flow("transaction_timeout_ms: 900001"), BROKER)
    assert fault.startswith("limits.transaction_timeout_ms is 900001, the target allows 900000")


def test_positions_that_would_expire_between_commits() -> None:
    assert list(limit_faults(flow("recommit_interval_ms: 1800000"), {"offsets.retention.minutes": "60"})) == []
    (fault,) = limit_faults(flow("recommit_interval_ms: 1800001"), {"offsets.retention.minutes": "60"})
    assert "forgets positions after 60 minutes" in fault


@pytest.mark.tier("default")
def test_a_compacted_offsets_topic_keeps_positions() -> None:
    for configs in ({}, {"cleanup.policy": "compact"}, {"cleanup.policy": "compact", "retention.ms": "1"}):
        assert list(offsets_topic_faults(flow(), configs)) == []


@pytest.mark.tier("default")
def test_an_offsets_topic_that_expires_positions() -> None:
    for policy in ("delete", "compact,delete"):
        configs = {"cleanup.policy": policy, "retention.ms": "3600000"}
        ((stops, said),) = offsets_topic_faults(flow("recommit_interval_ms: 1800001"), configs)
        assert stops
        assert f"__consumer_offsets has cleanup.policy={policy}, and Kafka needs compact" in said
        assert "after 3600000 ms (retention.ms); limits.recommit_interval_ms is 1800001" in said
        for kept in (configs, configs | {"retention.ms": "-1"}, {"cleanup.policy": policy}):
            ((stops, said),) = offsets_topic_faults(flow("recommit_interval_ms: 1800000"), kept)
            assert not stops
            assert "removes positions that no worker commits again" in said


@pytest.mark.tier("default")
def test_a_target_whose_offsets_topic_expires_positions_is_refused() -> None:
    with KafkaBroker() as broker:
        text = f"""\
clusters:
  a: {{properties: {{bootstrap.servers: "{broker.bootstrap}"}}}}
  b: {{properties: {{bootstrap.servers: "{broker.bootstrap}"}}}}
flows:
  f: {{source: a, target: b, topics: [t]}}
"""
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 1)])["t"].result(10)
        config = load_text(text, env={})
        assert planning.plan(config.flows["f"], config, connect_timeout_ms=10_000).findings == []
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in (("cleanup.policy", "compact,delete"), ("retention.ms", "60000"))
        ]
        resource = ConfigResource(ResourceType.TOPIC, "__consumer_offsets", incremental_configs=entries)
        admin.incremental_alter_configs([resource])[resource].result(10)
        plan = planning.plan(config.flows["f"], config, connect_timeout_ms=10_000)
        (found,) = plan.findings
        assert (found.severity, found.kind, plan.exit_code()) == ("error", "limit", 4)
        assert "__consumer_offsets has cleanup.policy=compact,delete" in found.message


def test_records_larger_than_the_target_takes() -> None:
    assert list(size_warnings(flow("record_bytes_max: 5000"), {"t": topic("t", 5001)}, {})) == []
    (fault,) = size_warnings(flow(), {"t": topic("t", 5001)}, {"a.t": topic("a.t", 5000)})
    assert "target topic 'a.t' takes 5000 bytes, source topic 't' 5001" in fault


def test_the_plans_exit_code_is_that_of_the_worst_error() -> None:
    plan = FlowPlan("f", "a", "b")
    plan.findings.append(PlanFinding("warning", "limit", "", 4))
    assert plan.exit_code() == 0
    for code in (2, 3, 4):
        plan.findings.append(PlanFinding("error", "cluster", "", code))
        assert plan.exit_code() == code
