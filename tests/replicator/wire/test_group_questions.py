"""Questions to group coordinators: what changes something is sent once; who is too old to be asked is said to be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as E

from replicator.groups.decision import OffsetToCommit
from replicator.groups.ownership import GroupOffset
from replicator.model.errors import ReplicatorError, Unsupported
from replicator.wire import group_questions, leaders
from replicator.wire.group_pieces import COMMIT_BYTES_MAX
from replicator.wire.group_questions import TOO_MUCH_AT_ONCE, GroupQuestions
from replicator.wire.offset_fetch_groups import GroupValues
from tests.replicator.wire.fake_broker import FakeBroker, Leader, flow_of

TO_COMMIT = {"g": {"t": {0: OffsetToCommit(7, "")}}}


class Coordinator(Leader):
    """Of all groups."""

    def answer_find_coordinator(self, request: Any) -> dict[str, Any]:
        assert self.broker is not None
        found = {"node_id": 1, "host": self.host, "port": self.broker.port, "error_code": 0}
        return {"coordinators": [{"key": key, **found} for key in request.coordinator_keys]}

    def __init__(self) -> None:
        super().__init__()
        self.committed: list[list[int]] = []  # the partitions of each request
        self.refuses: tuple[int, int] = (9999, 0)  # requests with more partitions, and with which code
        self.stored: dict[str, dict[str, range]] = {}  # offset, metadata of the group's partitions

    def answer_offset_commit(self, request: Any) -> dict[str, Any]:
        numbers = [it.partition_index for topic in request.topics for it in topic.partitions]
        self.committed.append(numbers)
        most, code = self.refuses
        return {
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {"partition_index": it.partition_index, "error_code": code if len(numbers) > most else 0}
                        for it in topic.partitions
                    ],
                }
                for topic in request.topics
            ]
        }

    def answer_offset_fetch(self, request: Any) -> dict[str, Any]:
        return {"groups": [self.of_group(it.group_id, it.topics) for it in request.groups]}

    def of_group(self, group: str, wanted: Any) -> dict[str, Any]:
        here = self.stored.get(group, {})
        asked = here if wanted is None else {it.name: it.partition_indexes for it in wanted}
        topics = [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": at,
                        "committed_offset": at if at in here.get(topic, ()) else -1,
                        "metadata": "m" * 100 if at in here.get(topic, ()) else "",
                        "committed_leader_epoch": -1,
                        "error_code": 0,
                    }
                    for at in numbers
                ],
            }
            for topic, numbers in asked.items()
        ]
        return {"group_id": group, "topics": topics, "error_code": 0}


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


def test_what_is_too_much_for_a_batch_of_the_coordinator_is_committed_in_several(
    coordinator: Coordinator, questions: GroupQuestions
) -> None:
    wanted = {"t": {at: OffsetToCommit(at, "m" * 4096) for at in range(300)}, "u": {0: OffsetToCommit(1, "")}}
    assert questions.commit({"g": wanted}, 5.0) == {"g": {"t": dict.fromkeys(range(300), 0), "u": {0: 0}}}
    assert [at for piece in coordinator.committed for at in piece] == [*range(300), 0]
    assert max(map(len, coordinator.committed)) * 4096 < COMMIT_BYTES_MAX


@pytest.mark.parametrize("code", [E.invalid_commit_offset_size, E.message_too_large, E.record_list_too_large])
def test_of_what_was_refused_for_its_size_less_is_committed_at_once(
    coordinator: Coordinator, questions: GroupQuestions, code: E
) -> None:
    """What a broker takes is its own setting; one partition that is refused alone says so."""
    wanted = {"t": {at: OffsetToCommit(at, "m" * 4096) for at in range(8)}}
    coordinator.refuses = 3, int(code)
    seen = []
    for _ in range(20):
        found = questions.commit({"g": wanted, "other": {"t": {0: OffsetToCommit(1, "")}}}, 5.0)
        assert found["other"] == {"t": {0: 0}}
        seen.append(found["g"])
        if found["g"] == {"t": dict.fromkeys(range(8), 0)}:
            break
    assert seen[0] == {"t": dict.fromkeys(range(8), TOO_MUCH_AT_ONCE)}
    assert seen[-1] == {"t": dict.fromkeys(range(8), 0)}
    coordinator.refuses = 0, int(code)
    assert questions.commit(TO_COMMIT, 5.0) == {"g": {"t": {0: code}}}


def test_commits_that_wait_too_long_for_others_are_not_sent(
    coordinator: Coordinator, questions: GroupQuestions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Notes of them are forgotten one day."""
    monkeypatch.setattr(group_questions, "SEND_S", -1.0)
    (found,) = questions.commit(TO_COMMIT, 5.0).values()
    assert isinstance(found, ReplicatorError)
    assert coordinator.committed == []


def values(found: dict[str, GroupValues | ReplicatorError], group: str) -> dict[str, list[int]]:
    """The partitions in which it has an offset."""
    it = found[group]
    assert isinstance(it, GroupValues), it
    topics = it.topics()
    assert all(value in (None, GroupOffset(at, "m" * 100)) for each in topics.values() for at, value in each.items())
    return {topic: [at for at, value in each.items() if value is not None] for topic, each in topics.items()}


def test_where_an_answer_is_too_large_less_is_asked_for(
    coordinator: Coordinator, questions: GroupQuestions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First about each group alone, then about some of its partitions."""
    monkeypatch.setattr(leaders, "RESPONSE_BYTES_MAX", 5_000)
    coordinator.stored = {f"g{number}": {"t": range(3)} for number in range(15)}
    coordinator.stored["large"] = {"t": range(60), "u": range(40), "not copied": range(10)}
    flow = {"t": range(60), "u": range(41)}
    groups = dict.fromkeys(coordinator.stored)
    found = questions.offsets(groups, 5.0, stable=True, else_only=lambda: flow)
    assert {group: values(found, group) for group in groups if group != "large"} == {
        f"g{number}": {"t": [0, 1, 2]} for number in range(15)
    }
    assert values(found, "large") == {"t": list(range(60)), "u": list(range(40))}
    asked_before = asked(coordinator, "offset_fetch")
    again = questions.offsets(groups, 5.0, stable=True, else_only=lambda: flow)
    assert all(again[group] is found[group] for group in groups)  # nothing has changed
    assert asked(coordinator, "offset_fetch") - asked_before < 30  # it is known how much they have
    coordinator.stored["large"]["t"] = range(59)
    assert values(questions.offsets(groups, 5.0, stable=True, else_only=lambda: flow), "large")["t"] == [*range(59)]


def test_a_partition_that_is_too_large_alone_names_no_setting(
    coordinator: Coordinator, questions: GroupQuestions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaders, "RESPONSE_BYTES_MAX", 150)
    coordinator.stored = {"g": {"t": range(1)}, "long" * 40: {"t": range(1)}}
    found = questions.offsets(dict.fromkeys(coordinator.stored), 5.0, stable=True, else_only=lambda: {"t": range(1)})
    assert values(found, "g") == {"t": [0]}
    error = found["long" * 40]
    assert isinstance(error, Unsupported)
    assert "record_bytes_max" not in str(error)


def test_nothing_is_kept_of_groups_that_are_gone(
    coordinator: Coordinator, questions: GroupQuestions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaders, "RESPONSE_BYTES_MAX", 5_000)
    for group in ("g", "gone"):
        coordinator.stored[group] = {"t": range(100)}
        coordinator.refuses = 1, int(E.invalid_commit_offset_size)
        questions.commit({group: {"t": {0: OffsetToCommit(1, ""), 1: OffsetToCommit(1, "")}}}, 5.0)
        values(questions.offsets({group: None}, 5.0, stable=True, else_only=lambda: {"t": range(100)}), group)
    questions.keep({"g"})
    kept = (questions._coordinators, questions._pieces, questions._joined, questions._commit_bytes)
    assert [set(it) for it in kept] == [{"g"}] * 4
    assert {groups for groups, _ in questions._last} == {("g",)}
