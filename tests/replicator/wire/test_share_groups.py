"""Questions about share groups: where they stand, what they have acknowledged; and the deletion of offsets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as E

from replicator.groups.decision import OffsetToCommit
from replicator.groups.ownership import GroupOffset
from replicator.model.errors import ReplicatorError, Unsupported
from replicator.model.partition import Partition
from replicator.wire.group_questions import GroupQuestions
from replicator.wire.share_groups import ShareValues
from tests.replicator.wire.fake_broker import FakeBroker, flow_of
from tests.replicator.wire.test_group_questions import Coordinator

pytestmark = pytest.mark.tier("default")

TO_SET = {"s": {"t": {0: OffsetToCommit(7, ""), 1: OffsetToCommit(8, "")}}}


class Shares(Coordinator):
    """Of the share group `s`, which has left 4 records of partition 0, and has never been asked for partition 1."""

    def __init__(self) -> None:
        super().__init__()
        self.starts, self.lag, self.code = {0: 5, 1: -1}, 4, 0
        self.altered: list[dict[int, int]] = []

    def answer_describe_share_group_offsets(self, request: Any) -> dict[str, Any]:
        return {"groups": [self.described(it.group_id) for it in request.groups]}

    def described(self, group: str) -> dict[str, Any]:
        partitions = [
            {"partition_index": at, "start_offset": start, "leader_epoch": 0, "lag": self.lag if start >= 0 else -1,
             "error_code": 0}
            for at, start in self.starts.items()
        ]  # fmt: skip
        topics = [{"topic_name": "t", "topic_id": None, "partitions": partitions}] if group == "s" else []
        return {"group_id": group, "topics": topics, "error_code": 0 if topics else int(E.group_id_not_found)}

    def answer_alter_share_group_offsets(self, request: Any) -> dict[str, Any]:
        self.altered.append({it.partition_index: it.start_offset for of in request.topics for it in of.partitions})
        answers = [{"partition_index": at, "error_code": at} for at in self.altered[-1]]
        topics = [] if self.code else [{"topic_name": "t", "topic_id": None, "partitions": answers}]
        return {"error_code": self.code, "responses": topics}

    def answer_offset_delete(self, request: Any) -> dict[str, Any]:
        topics = [
            {"name": of.name, "partitions": [{"partition_index": it.partition_index, "error_code": it.partition_index}
                                             for it in of.partitions]}
            for of in request.topics
        ]  # fmt: skip
        return {"error_code": self.code, "topics": [] if self.code else topics}

    def answer_delete_share_group_offsets(self, request: Any) -> dict[str, Any]:
        topics = [{"topic_name": of.topic_name, "error_code": 3 * (of.topic_name == "u")} for of in request.topics]
        return {"error_code": self.code, "responses": [] if self.code else topics}


@pytest.fixture
def coordinator() -> Iterator[Shares]:
    made = Shares()
    with FakeBroker(made) as broker:
        made.broker = broker
        yield made


@pytest.fixture
def questions(coordinator: Shares) -> Iterator[GroupQuestions]:
    assert coordinator.broker is not None
    with closing(GroupQuestions(flow_of(coordinator.broker).source, "test")) as made:
        made.share(frozenset({"s", "none"}))
        yield made


def stands(questions: GroupQuestions, group: str = "s") -> ShareValues:
    found = questions.offsets({group: None}, 5.0, stable=True)[group]
    assert isinstance(found, ShareValues)
    return found


def test_where_it_stands_and_what_it_has_acknowledged_behind(coordinator: Shares, questions: GroupQuestions) -> None:
    found = stands(questions)
    assert found.topics() == {"t": {0: GroupOffset(5), 1: None}}
    found.bound({Partition("t", 0): 12, Partition("t", 1): 99})
    assert found.delivered == {"t": {0: 3, 1: 0}}
    assert stands(questions) is found
    coordinator.lag = 3
    assert stands(questions) is not found
    assert stands(questions, "none").topics() == {}


def test_a_cluster_that_does_not_say_what_is_left(coordinator: Shares, questions: GroupQuestions) -> None:
    """Kafka 4.1 has version 0."""
    coordinator.versions[90] = (0, 0)
    assert stands(questions).acknowledged("t", 0, 12) == 7


def test_consumer_groups_are_asked_about_as_ever(coordinator: Shares, questions: GroupQuestions) -> None:
    coordinator.stored = {"c": {"t": range(1)}}
    found = questions.offsets({"c": None, "s": None}, 5.0, stable=True)
    assert {name: it.topics()["t"][0] for name, it in found.items() if not isinstance(it, ReplicatorError)} == {
        "c": GroupOffset(0, "m" * 100),
        "s": GroupOffset(5),
    }


def test_codes_of_partitions_and_of_the_group(coordinator: Shares, questions: GroupQuestions) -> None:
    assert questions.commit({**TO_SET, "c": {"t": {0: OffsetToCommit(1, "m")}}}, 5.0) == {
        "s": {"t": {0: 0, 1: 1}},
        "c": {"t": {0: 0}},
    }
    assert coordinator.altered == [{0: 7, 1: 8}]
    coordinator.code = int(E.non_empty_group)
    assert questions.commit(TO_SET, 5.0) == {"s": {"t": {0: coordinator.code, 1: coordinator.code}}}


def test_offsets_are_deleted_by_partition_and_those_of_share_groups_by_topic(
    coordinator: Shares, questions: GroupQuestions
) -> None:
    """Nothing else of a group is."""
    wanted = {"s": {"t": [0, 1], "u": [0]}, "c": {"t": [0, 3], "u": [0]}}
    assert questions.delete_offsets(wanted, 5.0) == {
        "s": {"t": {0: 0, 1: 0}, "u": {0: 3}},
        "c": {"t": {0: 0, 3: 3}, "u": {0: 0}},
    }
    coordinator.code = code = int(E.non_empty_group)
    assert questions.delete_offsets(wanted, 5.0) == {
        group: {topic: dict.fromkeys(numbers, code) for topic, numbers in topics.items()}
        for group, topics in wanted.items()
    }
    assert coordinator.broker is not None
    assert "delete_groups" not in {name for name, _, _ in coordinator.broker.asked}


@pytest.mark.parametrize("api", ["alter_share_group_offsets", "delete_share_group_offsets"])
def test_what_changes_something_is_sent_once(coordinator: Shares, questions: GroupQuestions, api: str) -> None:
    coordinator.instead[api] = [None]
    found = questions.commit(TO_SET, 5.0) if api.startswith("alter") else questions.delete_offsets(TO_SET, 5.0)
    assert isinstance(found["s"], ReplicatorError)
    assert coordinator.broker is not None
    assert sum(name == api for name, _, _ in coordinator.broker.asked) == 1


def test_a_cluster_without_share_groups_is_said_to_be_one(coordinator: Shares, questions: GroupQuestions) -> None:
    del coordinator.versions[90], coordinator.versions[91]
    for found in (questions.offsets({"s": None}, 5.0, stable=True), questions.commit(TO_SET, 5.0)):
        assert isinstance(found["s"], Unsupported)
        assert "no share groups there" in str(found["s"])
