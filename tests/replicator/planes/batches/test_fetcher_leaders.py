"""Whom a fetcher believes that a partition has a new leader, or an old one: brokers don't all know the same."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from replicator.model.errors import Incident
from replicator.model.fetches import EpochEnd, EpochQuestion
from replicator.model.partition import Seek
from replicator.planes.batches.part_read import ToldBy, TopicLeaders
from replicator.planes.contract import ReadPlan
from tests.replicator.planes.batches.logs import EPOCH
from tests.replicator.planes.batches.test_fetcher import AT, Reader


def told(broker: int) -> ToldBy:
    """One of three brokers."""
    return ToldBy(broker, frozenset(range(3)))


def test_no_broker_that_knows_less_than_the_position_is_believed() -> None:
    """An old leader, cut off from the controllers, names itself, and its log ends before the position."""
    reader = Reader(ReadPlan(Seek(3, EPOCH)), at=(AT,))
    topic_id, stale = reader.source.topic_id, {0: (0, 1, EPOCH - 1)}
    assert not reader.fetcher.looked_up({"t": TopicLeaders(0, topic_id, stale)}, 0.0, told(1))
    assert reader.fetcher.brokers(0.0) == set()
    assert reader.fetcher.topics(1.0) == {"t"}
    assert reader.fetcher.looked_up({"t": TopicLeaders(0, topic_id, reader.source.leaders())}, 1.0, told(2))
    assert reader.fetcher.next_check(0, 1.0) == {AT: EpochQuestion(EPOCH, EPOCH)}
    assert not reader.fetcher.take().failed


def test_a_cluster_that_has_gone_back_as_a_whole_is_believed() -> None:
    """As it is after its controllers were restored from a backup: no broker is left that could know better."""
    reader = Reader(ReadPlan(Seek(3, EPOCH)), at=(AT,))
    for broker in range(3):
        assert reader.fetcher.brokers(float(broker)) == set()
        reader.fetcher.looked_up(
            {"t": TopicLeaders(0, reader.source.topic_id, {0: (0, 0, 4)})}, float(broker), told(broker)
        )
    assert reader.fetcher.next_check(0, 3.0) == {AT: EpochQuestion(4, EPOCH)}
    reader.fetcher.checked(0, {AT: EpochEnd(0, 4, 3)}, 3.0)
    failed = reader.fetcher.take().failed[AT]
    assert isinstance(failed, Incident)
    assert failed.name == "source_truncated"


def test_a_position_of_a_newer_epoch_than_is_known_has_its_leader_looked_up() -> None:
    """Another process has copied on meanwhile, under a leader that this one hasn't heard of."""
    reader = Reader(at=(AT,))
    reader.fetch()
    reader.fetcher.seek({AT: ReadPlan(Seek(3, EPOCH + 1))})
    assert reader.fetcher.topics(0.0) == {"t"}
    assert reader.fetcher.next_check(0, 0.0) == {}


@pytest.mark.parametrize(
    "code", [ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch, ErrorCode.unknown_leader_epoch]
)
def test_a_broker_that_names_a_leader_once_more_which_denies_it_is_of_no_help(code: int) -> None:
    reader = Reader(at=(AT,))
    reader.answer(reader.part(code))
    reader.now_s += 1
    topic_id, before = reader.source.topic_id, reader.source.leaders()
    assert reader.fetcher.topics(reader.now_s) == {"t"}
    assert not reader.fetcher.looked_up({"t": TopicLeaders(0, topic_id, before)}, reader.now_s)
    reader.answer(reader.part(code))
    reader.now_s += 1
    assert reader.fetcher.looked_up({"t": TopicLeaders(0, topic_id, {0: (0, 1, EPOCH + 1)})}, reader.now_s)
    assert reader.fetcher.brokers(reader.now_s) == {1}


def test_a_leader_that_others_name_is_read_though_the_old_one_answers() -> None:
    reader = Reader(at=(AT,))
    reader.fetch()
    topic_id = reader.source.topic_id
    assert reader.fetcher.led == {"t"}
    for other, leader in (
        (b"another topic id", (0, 1, EPOCH + 1)),
        (topic_id, (0, 1, EPOCH - 1)),
        (topic_id, (5, -1, 9)),
    ):
        reader.fetcher.leaders_told({"t": TopicLeaders(0, other, {0: leader})})
        assert reader.fetcher.brokers(0.0) == {0}
    reader.fetcher.leaders_told({"t": TopicLeaders(0, topic_id, {0: (0, 1, EPOCH + 1)})})
    assert reader.fetcher.brokers(0.0) == {1}
    assert reader.fetcher.next_check(1, 0.0) == {AT: EpochQuestion(EPOCH + 1, EPOCH)}
