"""Tiered source topics, as `plan` tells of them. The broker's answers are canned: neither the embedded broker nor Kafka
without a plugin for remote storage has such topics."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from replicator.config import Flow
from replicator.inspect.plan_tiered import tiered_warnings
from replicator.kafka.topic_questions import TopicInfo
from replicator.model.partition import Partition
from tests.replicator.wire.fake_broker import TOPIC, FakeBroker, Leader, flow_of

pytestmark = pytest.mark.tier("default")  # brokers are asked
AT = Partition(TOPIC, 0)


def topics(enabled: str = "true", partitions: int = 1) -> dict[str, TopicInfo]:
    return {TOPIC: TopicInfo(TOPIC, "id", partitions, {"remote.storage.enable": enabled})}


@pytest.fixture
def leader() -> Leader:
    made = Leader()
    made.offsets |= {-2: 3, -4: 8}
    return made


@pytest.fixture
def flow(leader: Leader) -> Iterator[Flow]:
    with FakeBroker(leader) as broker:
        leader.broker = broker
        yield flow_of(broker, request_timeout_ms=2_000)


@pytest.mark.parametrize(("stored", "left"), [(None, "5 offsets"), (0, "5 offsets"), (7, "1 offset"), (8, ""), (9, "")])
def test_what_is_left_in_remote_storage_is_counted(flow: Flow, stored: int | None, left: str) -> None:
    said = list(tiered_warnings(flow, topics(), {AT: stored}))
    assert len(said) == bool(left)
    assert all(f"{TOPIC!r} is tiered (remote.storage.enable): {left} still to be copied" in it for it in said)


def test_what_is_all_local_is_nothing_to_say(leader: Leader, flow: Flow) -> None:
    leader.offsets[-4] = leader.offsets[-2]
    assert list(tiered_warnings(flow, topics(), {})) == []


def test_a_topic_that_is_not_tiered_is_not_asked_for(leader: Leader, flow: Flow) -> None:
    assert list(tiered_warnings(flow, topics("false"), {})) == []
    assert leader.broker is not None
    assert leader.broker.asked == []


def test_both_offsets_are_asked_for(leader: Leader, flow: Flow) -> None:
    list(tiered_warnings(flow, topics(), {}))
    assert leader.broker is not None
    asked = [it for it in leader.broker.asked if it[0] == "list_offsets"]
    assert [(version >= 8, it.topics[0].partitions[0].timestamp) for _, version, it in asked] == [
        (True, -2),
        (True, -4),
    ]


def test_a_broker_that_does_not_say_is_told_of(leader: Leader, flow: Flow) -> None:
    leader.answer_list_offsets = lambda request: leader.listed(error_code=29, offset=-1)  # type: ignore[method-assign]
    (said,) = tiered_warnings(flow, topics(), {})
    assert "how much is only in remote storage is not known of 1 partition: " in said
    assert "Describe on topic" in said
