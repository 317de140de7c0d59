"""What the target needs, decided from what both sides have."""

from __future__ import annotations

import pytest

from replicator.admin import TopicInfo, TopicSpec
from replicator.config import Flow, load_text
from replicator.errors import Incident
from replicator.topics import COPIED_CONFIGS, Changes, Growth, changes, check_control_topic, target_configs

SOURCE_CONFIGS = {
    "cleanup.policy": "compact",
    "retention.ms": "5",
    "retention.bytes": "-1",
    "compression.type": "zstd",
    "max.message.bytes": "2000000",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.after.max.ms": "3600000",
    "min.compaction.lag.ms": "7",
    "delete.retention.ms": "9",
    "segment.ms": "11",
    "min.insync.replicas": "2",
    "follower.replication.throttled.replicas": "*",
    "unclean.leader.election.enable": "true",
}


def flow(settings: str = "") -> Flow:
    text = f"""\
clusters:
  a: {{properties: {{bootstrap.servers: "a:1"}}}}
  b: {{properties: {{bootstrap.servers: "b:1"}}}}
flows:
  f: {{source: a, target: b, topics: ["^t.*"], {settings}}}
"""
    return load_text(text, env={}).flows["f"]


def topic(name: str, partitions: int, configs: dict[str, str] | None = None) -> TopicInfo:
    return TopicInfo(name, "id", partitions, configs or {})


def test_exactly_the_configs_that_decide_what_readers_find_are_copied() -> None:
    copied = target_configs(flow(), SOURCE_CONFIGS)
    assert copied == {key: SOURCE_CONFIGS[key] for key in COPIED_CONFIGS}
    assert "min.insync.replicas" not in copied


def test_more_configs_are_copied_when_asked_for() -> None:
    copied = target_configs(flow("topic_configs: {extra: [min.insync.replicas, no.such]}"), SOURCE_CONFIGS)
    assert copied["min.insync.replicas"] == "2"
    assert "no.such" not in copied


def test_times_of_a_log_append_time_source_are_kept_unless_the_flow_says_otherwise() -> None:
    source = {**SOURCE_CONFIGS, "message.timestamp.type": "LogAppendTime"}
    assert target_configs(flow(), source)["message.timestamp.type"] == "CreateTime"
    asked = flow("topic_configs: {extra: [message.timestamp.type]}")
    assert target_configs(asked, source)["message.timestamp.type"] == "LogAppendTime"


def test_the_one_bound_of_old_brokers_becomes_both() -> None:
    copied = target_configs(flow(), {"message.timestamp.difference.max.ms": "9223372036854775807"})
    assert copied == {
        "message.timestamp.before.max.ms": "9223372036854775807",
        "message.timestamp.after.max.ms": "9223372036854775807",
    }


def test_missing_topics_are_created_like_their_source() -> None:
    wanted = changes(
        flow("topic_configs: {replication_factor: 3}"), {"t1": topic("t1", 4, {"retention.ms": "5"})}, {}, ()
    )
    assert wanted == Changes(create=(TopicSpec("a.t1", 4, 3, {"retention.ms": "5"}),))


@pytest.mark.parametrize("partitions", [4, 5])
def test_enough_partitions_are_left_alone(partitions: int) -> None:
    assert not changes(flow(), {"t1": topic("t1", 4)}, {"a.t1": topic("a.t1", partitions)}, ())


def test_the_flows_own_topics_grow() -> None:
    wanted = changes(flow(), {"t1": topic("t1", 4)}, {"a.t1": topic("a.t1", 3)}, {"a.t1"})
    assert wanted == Changes(grow=(Growth("a.t1", 3, 4),))


def test_foreign_topics_with_fewer_partitions_are_refused() -> None:
    with pytest.raises(Incident, match="fewer partitions: it has 3 partitions, source topic 't1' has 4") as caught:
        changes(flow(), {"t1": topic("t1", 4)}, {"a.t1": topic("a.t1", 3)}, {"a.other"})
    assert (caught.value.name, caught.value.topic) == ("target_topic_too_small", "a.t1")


def test_a_flow_may_stop_for_added_partitions() -> None:
    stopping = flow("new_partitions: stop")
    with pytest.raises(Incident) as caught:
        changes(stopping, {"t1": topic("t1", 4)}, {"a.t1": topic("a.t1", 3)}, {"a.t1"})
    assert caught.value.name == "source_partitions_added"


@pytest.mark.parametrize(("partitions", "policy"), [(2, "compact"), (1, "delete"), (1, "compact,delete"), (1, "")])
def test_a_control_topic_that_could_lose_a_generation_is_refused(partitions: int, policy: str) -> None:
    with pytest.raises(Incident, match="control_topic_unfit"):
        check_control_topic(topic("__eos.f.control", partitions, {"cleanup.policy": policy}))
    check_control_topic(topic("__eos.f.control", 1, {"cleanup.policy": "compact"}))
