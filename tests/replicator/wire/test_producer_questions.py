"""What brokers tell of producers and transactions: one that is dead or frozen hides its own alone, and is named."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any

import pytest

from replicator.config import Cluster, Properties
from replicator.coupling.evidence import ActiveProducer, SeenTransaction
from replicator.model.errors import NotAllowed, ReplicatorError, Retriable, TopicMissing, Unreachable
from replicator.model.partition import Partition
from replicator.wire.producer_questions import LedTopic, ProducerQuestions
from tests.replicator.wire.fake_broker import Answer, FakeBroker, Leader, uuid_of

LIMIT_S = 12.0
NOT_ALLOWED, MISSING, ID_NOT_ALLOWED, ID_NOT_FOUND = 29, 3, 53, 105


class Broker(Leader):
    """One of two: leads the partitions with its number, coordinates the transactional ids that it lists."""

    def __init__(self, number: int, brokers: list[FakeBroker]) -> None:
        super().__init__()
        self.number, self.brokers = number, brokers
        self.frozen: set[str] = set()
        self.producers: dict[Partition, list[dict[str, Any]]] = {}
        self.errors: dict[Partition, int] = {}
        self.ids: dict[str, tuple[int, str]] = {}
        self.described: dict[str, dict[str, Any]] = {}
        self.code = 0

    def __call__(self, api: str, version: int, request: Any) -> Answer:
        return b"" if api in self.frozen else super().__call__(api, version, request)

    def answer_metadata(self, request: Any) -> Answer:
        asked = ["a", "b", "hidden"] if request.topics is None else [it.name for it in request.topics]
        known = {"a": 0, "b": 0, "hidden": NOT_ALLOWED}
        return {
            "brokers": [{"node_id": n, "host": "127.0.0.1", "port": b.port} for n, b in enumerate(self.brokers)],
            "topics": [
                {
                    "error_code": known.get(name, MISSING),
                    "name": name,
                    "topic_id": uuid_of(b"0123456789abcdef"),
                    "partitions": [
                        {"error_code": 0, "partition_index": n, "leader_id": n if n < 2 else -1, "leader_epoch": 5}
                        for n in range(3 if name == "b" else 2)
                    ]
                    if name in ("a", "b")
                    else [],
                }
                for name in asked
            ],
        }

    def answer_describe_cluster(self, request: Any) -> Answer:
        brokers = [{"broker_id": n, "host": "127.0.0.1", "port": b.port} for n, b in enumerate(self.brokers)]
        return {"error_code": 0, "cluster_id": "c", "controller_id": 0, "brokers": brokers}

    def answer_describe_producers(self, request: Any) -> Answer:
        topics = [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": number,
                        "error_code": self.errors.get(Partition(topic.name, number), 0),
                        "active_producers": self.producers.get(Partition(topic.name, number), []),
                    }
                    for number in topic.partition_indexes
                ],
            }
            for topic in request.topics
        ]
        return {"topics": topics}

    def answer_list_transactions(self, request: Any) -> Answer:
        states = [
            {"transactional_id": name, "producer_id": producer_id, "transaction_state": state}
            for name, (producer_id, state) in self.ids.items()
        ]
        return {"error_code": self.code, "unknown_state_filters": [], "transaction_states": states}

    def answer_describe_transactions(self, request: Any) -> Answer:
        assert set(request.transactional_ids) <= self.ids.keys(), "its coordinator is another broker"
        return {"transaction_states": [self.described[name] for name in request.transactional_ids]}


def producer(producer_id: int, coordinator_epoch: int = -1, start: int = -1) -> dict[str, Any]:
    return {
        "producer_id": producer_id,
        "producer_epoch": 0,
        "last_sequence": 3,
        "last_timestamp": 1_000 + producer_id,
        "coordinator_epoch": coordinator_epoch,
        "current_txn_start_offset": start,
    }


def transaction(transactional_id: str) -> dict[str, Any]:
    return {
        "error_code": 0,
        "transactional_id": transactional_id,
        "transaction_state": "Ongoing",
        "transaction_timeout": timedelta(milliseconds=9),
        "transaction_start_time": 77,
        "producer_id": 1,
        "producer_epoch": 3,
        "topics": [],
    }


@contextmanager
def asking() -> Iterator[tuple[ProducerQuestions, Broker, Broker]]:
    brokers: list[FakeBroker] = []
    answers = [Broker(number, brokers) for number in range(2)]
    with FakeBroker(answers[0]) as one, FakeBroker(answers[1]) as other:
        brokers += [one, other]
        servers = ",".join(f"127.0.0.1:{it.port}" for it in brokers)
        cluster = Cluster(name="east", properties=Properties({"bootstrap.servers": servers}))
        with closing(ProducerQuestions(cluster, "test")) as questions:
            yield questions, answers[0], answers[1]


def led(found: dict[str, LedTopic | ReplicatorError]) -> dict[str, LedTopic]:
    return {name: it for name, it in found.items() if isinstance(it, LedTopic)}


def test_topics_and_their_leaders_and_those_that_may_not_be_seen() -> None:
    with asking() as (questions, one, _):
        found = questions.topics(None)
        assert {number: it for number, it in led(found)["b"].leaders.items() if it} == {
            number: broker.address for number, broker in enumerate(one.brokers)
        }
        assert led(found)["b"].leaders[2] is None
        assert isinstance(found["hidden"], NotAllowed)
        assert isinstance(questions.topics({"none"})["none"], TopicMissing)


def test_producers_are_asked_of_all_leaders_and_errors_are_of_their_partitions() -> None:
    with asking() as (questions, one, other):
        one.producers = {Partition("a", 0): [producer(1), producer(2, coordinator_epoch=0), producer(3, start=7)]}
        other.errors = {Partition("a", 1): NOT_ALLOWED}
        found = questions.producers(led(questions.topics({"a", "b"})))
        assert found.found[Partition("a", 0)] == [
            ActiveProducer(1, 1_001, False),
            ActiveProducer(2, 1_002, True),
            ActiveProducer(3, 1_003, True, 7),
        ]
        assert found.found[Partition("b", 0)] == found.found[Partition("b", 1)] == []
        assert {at: type(it) for at, it in found.failed.items()} == {
            Partition("a", 1): NotAllowed,
            Partition("b", 2): Retriable,
        }
        assert "Read on topic 'a'" in str(found.failed[Partition("a", 1)])


@pytest.mark.tier("default")  # what doesn't answer is waited for
def test_a_frozen_broker_hides_its_own_partitions_and_ids_alone() -> None:
    with asking() as (questions, one, other):
        one.producers = {Partition("a", 0): [producer(1)]}
        one.ids, other.ids = {"x": (1, "Empty")}, {"y": (2, "Empty")}
        topics = led(questions.topics({"a"}))
        other.frozen = {"describe_producers", "list_transactions"}
        began_s = time.monotonic()
        found = questions.producers(topics)
        ids = questions.transactional_ids()
        assert time.monotonic() - began_s < LIMIT_S
        assert list(found.found) == [Partition("a", 0)]
        assert isinstance(found.failed[Partition("a", 1)], Unreachable)
        assert ids.producer_ids == {"x": 1}
        assert len(ids.unanswered) == 1


def test_transactions_are_asked_of_the_broker_that_listed_them() -> None:
    described = transaction("x")
    topics = [{"topic": "a", "partitions": [0, 1]}, {"topic": "__consumer_offsets", "partitions": [3]}]
    with asking() as (questions, one, other):
        one.ids = {"x": (1, "Ongoing"), "idle": (5, "CompleteCommit"), "gone": (8, "Ongoing")}
        other.ids = {"denied": (9, "PrepareCommit")}
        one.described = {
            "x": described | {"topics": topics},
            "gone": described | {"error_code": ID_NOT_FOUND, "transactional_id": "gone", "topics": []},
        }
        other.described = {"denied": described | {"error_code": ID_NOT_ALLOWED, "topics": []}}
        found = questions.transactional_ids()
    assert found.producer_ids == {"x": 1, "idle": 5, "gone": 8, "denied": 9}
    assert found.transactions == [SeenTransaction("x", 1, {"a": (0, 1), "__consumer_offsets": (3,)}, 77)]
    assert [type(it) for it in found.unanswered] == [NotAllowed]


def test_where_no_broker_lists_transactions_that_is_raised() -> None:
    with asking() as (questions, one, other):
        one.code = other.code = 31
        with pytest.raises(NotAllowed):
            questions.transactional_ids()


@pytest.mark.parametrize(("error", "may"), [(0, True), (ID_NOT_FOUND, True), (16, True), (ID_NOT_ALLOWED, False)])
def test_any_broker_says_whether_an_id_may_be_described(error: int, may: bool) -> None:
    """Another error, such as that it isn't the coordinator, comes once that was checked."""
    with asking() as (questions, *brokers):
        for each in brokers:
            each.ids["t"] = (7, "Empty")
            each.described["t"] = transaction("t") | {"error_code": error}
        assert questions.may_describe("t") is may
