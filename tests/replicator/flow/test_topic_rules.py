"""What becomes of one topic, decided from what both clusters say of it and from its claims."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replicator.flow.topic_rules import (
    COPIED_CONFIGS,
    ConfigChanges,
    Growth,
    ListedTopic,
    TopicDecision,
    changed_configs,
    decide_topic,
    needs_claims,
    target_configs,
    topic_routes,
)
from replicator.flow.topics import check_control_topic
from replicator.kafka.admin import TopicSpec
from replicator.kafka.topic_questions import TopicInfo
from replicator.model.errors import Incident, NotAllowed
from replicator.model.timestamps import TimestampBounds
from replicator.state.claims import Claim
from tests.replicator.flow.fakes import claim, flow, topic

EVERYTHING = {
    **dict.fromkeys(COPIED_CONFIGS, "1"),
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "2",
    "follower.replication.throttled.replicas": "*",
    "unclean.leader.election.enable": "true",
}
DENIED = NotAllowed("cluster 'b': the user needs Describe on topic 'a.t1'")


def decision(
    settings: str = "",
    *,
    source: TopicInfo | None = None,
    denied: NotAllowed | None = None,
    target: ListedTopic | None = None,
    claims: tuple[Claim, ...] = (),
    conflict: Incident | None = None,
    unclaimed: str | None = None,
) -> TopicDecision:
    target = target or ListedTopic()
    return decide_topic(flow(settings), source or topic("t1"), denied, target, claims, conflict, unclaimed)


def name_of(incident: Incident | None) -> str:
    assert incident is not None
    assert incident.topic == "t1", "the offsets that lanes put beside it are those of the source"
    return incident.name


def test_exactly_the_configs_that_decide_what_readers_find_are_copied() -> None:
    copied = target_configs(flow(), EVERYTHING)
    assert copied == {key: EVERYTHING[key] for key in COPIED_CONFIGS}
    assert "min.insync.replicas" not in copied


def test_more_configs_are_copied_when_asked_for() -> None:
    copied = target_configs(flow("topic_configs: {extra: [min.insync.replicas, no.such]}"), EVERYTHING)
    assert copied["min.insync.replicas"] == "2"
    assert "no.such" not in copied


def test_times_of_a_log_append_time_source_are_kept_unless_the_flow_says_otherwise() -> None:
    source = {**EVERYTHING, "message.timestamp.type": "LogAppendTime"}
    assert target_configs(flow(), source)["message.timestamp.type"] == "CreateTime"
    asked = flow("topic_configs: {extra: [message.timestamp.type]}")
    assert target_configs(asked, source)["message.timestamp.type"] == "LogAppendTime"


def test_bounds_of_timestamps_are_not_copied_unless_asked_for() -> None:
    """What the source took in time may be too old when it is copied."""
    source = {
        "retention.ms": "1",
        "message.timestamp.before.max.ms": "77",
        "message.timestamp.after.max.ms": "78",
        "message.timestamp.difference.max.ms": "79",
    }
    assert target_configs(flow(), source) == {"retention.ms": "1"}
    asked = flow("topic_configs: {extra: [message.timestamp.after.max.ms]}")
    assert target_configs(asked, source) == {"retention.ms": "1", "message.timestamp.after.max.ms": "78"}


CHANGED = [
    # config, at the source, at the target, what is set; by default and with `extra`
    ("retention.ms", "1000", "2000", "1000"),
    ("retention.ms", "1000", "1000", None),
    ("cleanup.policy", "compact,delete", "delete,compact", None),
    ("cleanup.policy", "compact", "delete", "compact"),
    ("max.message.bytes", "2000", "1000", "2000"),
    ("max.message.bytes", "999", "1000", None),
    ("message.timestamp.type", "LogAppendTime", "CreateTime", None),
    ("message.timestamp.type", "CreateTime", "LogAppendTime", None),
    ("min.insync.replicas", "2", "1", None),
    ("message.timestamp.before.max.ms", "1", "2", None),
]


@pytest.mark.parametrize(("key", "source", "target", "becomes"), CHANGED)
def test_what_changes_at_the_source_is_set_on_an_existing_topic(
    key: str, source: str, target: str, becomes: str | None
) -> None:
    here, there = replace(topic("t1"), configs={key: source}), replace(topic("a.t1"), configs={key: target})
    found = changed_configs(flow("topic_configs: {sync: true}"), here, there)
    assert found == (None if becomes is None else ConfigChanges("a.t1", {key: target}, {key: becomes}))
    assert changed_configs(flow(), here, there) is None, "it was not asked for"


@pytest.mark.parametrize("key", ["message.timestamp.type", "min.insync.replicas"])
def test_what_a_flow_copies_besides_is_set_as_well(key: str) -> None:
    asked = flow(f"topic_configs: {{sync: true, extra: [{key}]}}")
    here, there = (
        replace(topic("t1"), configs={key: "LogAppendTime"}),
        replace(topic("a.t1"), configs={key: "CreateTime"}),
    )
    found = changed_configs(asked, here, there)
    assert found is not None
    assert found.said() == f"{key}: CreateTime → LogAppendTime"


def test_a_config_that_the_target_does_not_have_is_left_alone() -> None:
    asked = flow("topic_configs: {sync: true, extra: [of.a.newer.version]}")
    newer = replace(topic("t1"), configs={"of.a.newer.version": "1"})
    assert changed_configs(asked, newer, topic("a.t1")) is None


def test_a_missing_topic_is_created_like_its_source() -> None:
    source = TopicInfo("t1", "id", 4, {"retention.ms": "5"})
    wanted = decision("topic_configs: {replication_factor: 3}", source=source)
    assert wanted == TopicDecision(create=TopicSpec("a.t1", 4, 3, {"retention.ms": "5"}))


@pytest.mark.parametrize("partitions", [2, 3])
def test_enough_partitions_are_left_alone(partitions: int) -> None:
    assert decision(target=ListedTopic(topic("a.t1", partitions))) == TopicDecision()


def test_nothing_is_created_over_a_claim() -> None:
    assert name_of(decision(claims=(claim("t1", 1),)).stopped) == "target_topic_deleted"
    assert decision(claims=(claim("t1", 1),)).create is None


def test_the_flows_own_topics_grow() -> None:
    found = decision(target=ListedTopic(topic("a.t1", 1)), claims=(claim("t1"),))
    assert found == TopicDecision(grow=Growth("a.t1", 1, 2))


def test_a_foreign_topic_with_fewer_partitions_is_refused() -> None:
    assert name_of(decision(target=ListedTopic(topic("a.t1", 1))).stopped) == "target_topic_too_small"


def test_a_topic_that_the_flow_has_not_claimed_yet_grows() -> None:
    small = ListedTopic(topic("a.t1", 1))
    assert decision(target=small, unclaimed="") == TopicDecision(grow=Growth("a.t1", 1, 2))
    assert name_of(decision("new_partitions: stop", target=small, unclaimed="").stopped) == "source_partitions_added"
    found = decision(target=small, unclaimed="a.t1[0] has no leader")
    assert found == TopicDecision(waiting="whether 'a.t1' may grow isn't known: a.t1[0] has no leader")


def test_a_recreated_topic_does_not_grow_and_its_partitions_are_left_to_the_lane() -> None:
    found = decision(target=ListedTopic(topic("a.t1", 1, "new")), claims=(claim("t1"), claim("t1", 1)))
    assert found.grow is None
    assert found.stopped is None
    assert name_of(found.stopped_beyond) == "target_topic_recreated"
    routes = topic_routes(flow(), topic("t1"), topic("a.t1", 1, "new"), found)
    assert [(route.stopped and route.stopped.name, route.target_topic_id) for route in routes] == [
        (None, "new"),
        ("target_topic_recreated", ""),
    ]


def test_a_flow_may_stop_for_added_partitions() -> None:
    found = decision("new_partitions: stop", target=ListedTopic(topic("a.t1", 1)), claims=(claim("t1"),))
    assert name_of(found.stopped) == "source_partitions_added"
    grown = decision("new_partitions: stop", target=ListedTopic(topic("a.t1", 2)), claims=(claim("t1"),))
    assert grown == TopicDecision(), "whoever adds them at the target has decided"


def test_a_target_that_stamps_its_own_times_is_refused_unless_asked_for() -> None:
    stamping = ListedTopic(topic("a.t1", message_timestamp_type="LogAppendTime"))
    assert name_of(decision(target=stamping).stopped) == "target_rewrites_timestamps"
    assert decision("topic_configs: {extra: [message.timestamp.type]}", target=stamping) == TopicDecision()


def test_the_timestamps_that_a_target_takes_go_with_its_routes() -> None:
    tight = topic("a.t1", message_timestamp_before_max_ms="5")
    assert decision(target=ListedTopic(tight)) == TopicDecision(), "what the source holds decides"
    (route, _) = topic_routes(flow(), topic("t1"), tight, TopicDecision())
    assert route.timestamps == TimestampBounds(5, 3_600_000)


@pytest.mark.parametrize("target", [ListedTopic(None, DENIED), ListedTopic(topic("a.t1"), DENIED)])
def test_a_missing_right_makes_the_topic_wait(target: ListedTopic) -> None:
    assert decision(target=target) == TopicDecision(waiting=str(DENIED))


def test_a_missing_right_at_the_source_creates_nothing() -> None:
    assert decision(denied=DENIED) == TopicDecision(waiting=str(DENIED))


def test_a_conflict_stops_the_topic_before_anything_else() -> None:
    found = decision(conflict=Incident("flows_in_conflict", "would feed itself", topic="t1"), denied=DENIED)
    assert name_of(found.stopped) == "flows_in_conflict"


def test_claims_are_asked_for_only_where_something_would_be_created() -> None:
    assert needs_claims(topic("t1"), ListedTopic())
    assert needs_claims(topic("t1"), ListedTopic(topic("a.t1", 1)))
    assert not needs_claims(topic("t1"), ListedTopic(topic("a.t1")))
    assert not needs_claims(topic("t1"), ListedTopic(None, DENIED))


def test_routes_carry_ids_and_what_keeps_them_back() -> None:
    routes = topic_routes(flow(), topic("t1"), topic("a.t1", 1), TopicDecision(waiting_beyond="needs Alter"))
    assert [(r.source, r.target, r.source_topic_id, r.target_topic_id, r.waiting) for r in routes] == [
        (("t1", 0), ("a.t1", 0), "id-t1", "id-a.t1", ""),
        (("t1", 1), ("a.t1", 1), "id-t1", "", "needs Alter"),
    ]


@pytest.mark.parametrize(("partitions", "policy"), [(2, "compact"), (1, "delete"), (1, "compact,delete"), (1, "")])
def test_a_control_topic_that_could_lose_a_generation_is_refused(partitions: int, policy: str) -> None:
    with pytest.raises(Incident, match="control_topic_unfit"):
        check_control_topic(TopicInfo("__eos.f.control", "id", partitions, {"cleanup.policy": policy}))
    check_control_topic(TopicInfo("__eos.f.control", "id", 1, {"cleanup.policy": "compact"}))
