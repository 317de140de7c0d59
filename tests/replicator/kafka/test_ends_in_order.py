"""Records that are appended while both ends of a log are asked for are no transaction's."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any, NamedTuple

import pytest
from confluent_kafka import IsolationLevel, TopicPartition

from replicator.kafka.clusters import KafkaClusterQuestions
from replicator.kafka.offset_questions import EARLIEST, LATEST, STABLE, AdminOffsetAnswers, ListedOffset
from replicator.model.partition import LogEnds, Partition
from replicator.observe.lag import LagWatch
from tests.replicator.flow.fakes import flow
from tests.replicator.observe.test_lag import Clock
from tests.replicator.wire.test_offsets import Scene, scene

AT, OTHER = Partition("a", 0), Partition("a", 1)


def growing(world: Scene) -> Scene:
    """With each answer about a partition a record is appended to it, outside of any transaction."""
    for broker in world.brokers:
        listed = broker._listed

        def grows(topic: str, asked: Any, level: int, listed: Any = listed) -> dict[str, Any]:
            found: dict[str, Any] = listed(topic, asked, 0)
            world.logs.ends[Partition(topic, asked.partition_index)] += 1
            return found

        broker._listed = grows  # type: ignore[method-assign]
    return world


def test_the_ends_of_a_log_that_grows_show_no_open_transaction() -> None:
    with scene() as world:
        growing(world)
        made = flow()
        questions = KafkaClusterQuestions(made, made.source, "source", world.asking)
        found = questions.log_ends([AT, OTHER])
        for ends in found.values():
            assert isinstance(ends, LogEnds)
            assert ends.stable == ends.end


def test_nor_do_metrics_the_page_and_top() -> None:
    with scene() as world:
        growing(world)
        watch = LagWatch(lambda: world.asking, lambda: {AT: 0, OTHER: 0}, Clock(), 60.0)
        watch.ask(world.asking, threading.Event())
        assert {at: lag.held_back for at, lag in watch.lags({AT: 0, OTHER: 0}).items()} == {AT: 0, OTHER: 0}


def test_a_transaction_that_is_open_is_still_seen() -> None:
    with scene() as world:
        made = flow()
        (ends,) = KafkaClusterQuestions(made, made.source, "source", world.asking).log_ends([OTHER]).values()
        assert isinstance(ends, LogEnds)
        assert (ends.stable, ends.end) == (world.logs.ends[OTHER] - 7, world.logs.ends[OTHER])


class Told(NamedTuple):
    """What librdkafka returns of a partition."""

    offset: int
    timestamp: int = -1


class AnyOrderClient:
    """Answers as late as it is told, what was asked last first: librdkafka promises no order of its requests."""

    def __init__(self) -> None:
        self.end = 10
        self.asked: list[tuple[TopicPartition, IsolationLevel, Future[Told]]] = []

    def list_offsets(
        self, request: dict[TopicPartition, Any], *, isolation_level: IsolationLevel, request_timeout: float
    ) -> dict[TopicPartition, Future[Told]]:
        futures: dict[TopicPartition, Future[Told]] = {at: Future() for at in request}
        self.asked += [(at, isolation_level, future) for at, future in futures.items()]
        return futures

    def answer(self) -> None:
        """Answer all that was asked; a record is appended before each answer."""
        while self.asked:
            self.end += 1
            self.asked.pop()[2].set_result(Told(self.end))


@pytest.mark.parametrize("wanted", [(LATEST, STABLE), (EARLIEST, LATEST, STABLE), (STABLE,)])
def test_over_librdkafka_the_last_stable_offset_is_asked_for_behind_the_end(wanted: tuple[Any, ...]) -> None:
    client: Any = AnyOrderClient()
    asked = AdminOffsetAnswers(
        "west",
        ([AT], wanted),
        (lambda _: True, lambda: ()),
        lambda: (client, 1.0),
        lambda: None,
    )
    while not asked.poll(0.0):
        client.answer()
    values = [found[AT] for found in asked.values()]
    assert len(values) == len(wanted)
    offsets = [value.offset for value in values if isinstance(value, ListedOffset)]
    assert offsets[-1] == max(offsets)


def test_over_librdkafka_the_end_is_asked_for_behind_a_last_stable_offset_that_comes_first() -> None:
    client: Any = AnyOrderClient()
    asked = AdminOffsetAnswers(
        "west",
        ([AT], (STABLE, LATEST)),
        (lambda _: True, lambda: ()),
        lambda: (client, 1.0),
        lambda: None,
    )
    while not asked.poll(0.0):
        client.answer()
    stable, end = (found[AT] for found in asked.values())
    assert isinstance(stable, ListedOffset)
    assert isinstance(end, ListedOffset)
    assert stable.offset < end.offset


def test_over_librdkafka_what_was_not_answered_in_time_is_told_of_all_that_was_wanted() -> None:
    unanswered: list[bool] = []
    client: Any = AnyOrderClient()
    asked = AdminOffsetAnswers(
        "west",
        ([AT], (LATEST, STABLE)),
        (lambda _: True, lambda: ()),
        lambda: (client, 1.0),
        lambda: unanswered.append(True),
    )
    assert not asked.poll(0.0)
    assert ["no answer in time" in str(found[AT]) for found in asked.values()] == [True, True]
    assert unanswered == [True]
