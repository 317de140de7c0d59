"""Questions to group coordinators: what changes something is sent once; who is too old to be asked is said to be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from replicator.groups.decision import OffsetToCommit
from replicator.model.errors import ReplicatorError, Unsupported
from replicator.wire import group_questions
from replicator.wire.group_questions import GroupQuestions
from tests.replicator.wire.fake_broker import FakeBroker, Leader, flow_of

COMMITTED = {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "error_code": 0}]}]}
TO_COMMIT = {"g": {"t": {0: OffsetToCommit(7, "")}}}


class Coordinator(Leader):
    """Of the group g."""

    def answer_find_coordinator(self, request: Any) -> dict[str, Any]:
        assert self.broker is not None
        found = {"node_id": 1, "host": self.host, "port": self.broker.port, "error_code": 0}
        return {"coordinators": [{"key": key, **found} for key in request.coordinator_keys]}

    def answer_offset_commit(self, request: Any) -> dict[str, Any]:
        return COMMITTED

    def answer_offset_fetch(self, request: Any) -> dict[str, Any]:
        return {"groups": [{"group_id": it.group_id, "topics": [], "error_code": 0} for it in request.groups]}


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    made = Coordinator()
    with FakeBroker(made) as broker:
        made.broker = broker
        yield made


@pytest.fixture
def questions(coordinator: Coordinator) -> Iterator[GroupQuestions]:
    assert coordinator.broker is not None
    with closing(GroupQuestions(flow_of(coordinator.broker).source, "test")) as made:
        yield made


def asked(coordinator: Coordinator, api: str) -> int:
    assert coordinator.broker is not None
    return sum(name == api for name, _, _ in coordinator.broker.asked)


def test_a_commit_whose_connection_breaks_is_not_sent_again(
    coordinator: Coordinator, questions: GroupQuestions
) -> None:
    """The first one may still arrive: only a note of it, until it can't any more, keeps others' offsets safe."""
    assert questions.commit(TO_COMMIT, 5.0) == {"g": {"t": {0: 0}}}
    coordinator.instead["offset_commit"] = [None]
    (found,) = questions.commit(TO_COMMIT, 5.0).values()
    assert isinstance(found, ReplicatorError)
    assert asked(coordinator, "offset_commit") == 2
    assert questions.commit(TO_COMMIT, 5.0) == {"g": {"t": {0: 0}}}


def test_a_question_whose_kept_connection_breaks_is_asked_again(
    coordinator: Coordinator, questions: GroupQuestions
) -> None:
    assert not isinstance(questions.offsets({"g": None}, 5.0, stable=True)["g"], ReplicatorError)
    coordinator.instead["offset_fetch"] = [None]
    assert not isinstance(questions.offsets({"g": None}, 5.0, stable=True)["g"], ReplicatorError)
    assert asked(coordinator, "offset_fetch") == 3


def test_a_broker_before_kafka_3_is_said_to_be_too_old(coordinator: Coordinator, questions: GroupQuestions) -> None:
    coordinator.versions[10] = (3, 3)
    with pytest.raises(Unsupported, match=r"Kafka 3\.0"):
        questions.offsets({"g": None}, 5.0, stable=True)


def test_answers_that_are_compared_no_more_are_not_kept(
    questions: GroupQuestions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_questions, "_KEPT_MAX", 5)
    for number in range(20):
        questions.offsets({f"g{number}": None}, 5.0, stable=True)
        assert len(questions._last) <= 5
