"""Whom a fetcher believes that a partition has a new leader, or an old one: brokers don't all know the same."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from replicator.model.errors import Incident, NotAllowed, TopicMissing
from replicator.model.fetches import EpochEnd, EpochQuestion, FetchAnswer
from replicator.model.partition import Seek
from replicator.planes.batches.fetcher_terms import FetchedNews
from replicator.planes.batches.part_read import ToldBy, TopicLeaders
from replicator.planes.contract import ReadPlan
from tests.replicator.planes.batches.logs import EPOCH
from tests.replicator.planes.batches.test_fetcher import AT, Reader

TOPIC_ID = b"0123456789abcdef"


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


@pytest.mark.parametrize(
    ("found", "error"),
    [
        (TopicLeaders(ErrorCode.unknown_topic_or_partition, bytes(16), {}), TopicMissing),
        (TopicLeaders(ErrorCode.topic_authorization_failed, bytes(16), {}), NotAllowed),
        (TopicLeaders(0, b"another topic id", {0: (0, 0, EPOCH)}), TopicMissing),
        (TopicLeaders(0, TOPIC_ID, {1: (0, 0, EPOCH)}), TopicMissing),
    ],
    ids=["no such topic", "denied", "another topic", "no such partition"],
)
def test_a_broker_that_has_a_partition_fail_is_of_no_help(found: TopicLeaders, error: type[Exception]) -> None:
    """It may be cut off from the controllers since before the partition was added, or the right was granted."""
    reader = Reader(at=(AT,))
    reader.look_up()
    reader.fetcher.broker_lost(0, "away", 0.0)
    assert reader.source.topic_id == TOPIC_ID
    assert not reader.fetcher.looked_up({"t": found}, 1.0, told(1))
    assert isinstance(reader.fetcher.take().failed[AT], error)


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


def new_leader(reader: Reader) -> None:
    """Broker 1 leads now, as another broker says: 0 doesn't know."""
    reader.fetcher.leaders_told({"t": TopicLeaders(0, reader.source.topic_id, {0: (0, 1, EPOCH + 1)})})


def test_what_was_asked_of_an_old_leader_counts_no_more_once_the_new_one_was_checked() -> None:
    """The election was unclean, so that both have other records at the same offsets."""
    reader = Reader(ReadPlan(Seek(0, EPOCH)), at=(AT,))
    fetcher = reader.fetcher
    reader.look_up()
    fetcher.next_check(0, 0.0)
    fetcher.checked(0, {AT: EpochEnd(0, EPOCH, 99)}, 0.0)
    asked = fetcher.next_fetch(0, 0.0)
    assert asked is not None
    new_leader(reader)
    assert fetcher.next_check(1, 0.0) == {AT: EpochQuestion(EPOCH + 1, EPOCH)}
    fetcher.checked(1, {AT: EpochEnd(0, EPOCH, 0)}, 0.0)
    fetcher.fetched(0, asked.number, reader.source.fetch(0, asked.ask), 0.0)
    assert fetcher.take() == FetchedNews()
    reader.source.parts[AT].leader, reader.source.parts[AT].epoch = 1, EPOCH + 1
    assert len(reader.fetch(1).selected[AT]) == 3


def test_an_answer_that_counts_no_more_is_asked_for_again_though_there_is_nothing_new() -> None:
    """A fetch session tells an end once. A nearer replica goes on being read when the leader changes."""
    reader = Reader(ReadPlan(Seek(8, -1)), at=(AT,))
    part = reader.part(preferred=2, last_stable=reader.source.parts[AT].log.stable)
    reader.answer(part)
    asked = reader.fetcher.next_fetch(2, 0.0)
    assert asked is not None
    new_leader(reader)
    at_end = reader.part(last_stable=8)
    reader.fetcher.fetched(2, asked.number, FetchAnswer(0, 7, (at_end,)), 0.0)
    assert reader.fetcher.take() == FetchedNews()
    again = reader.fetcher.next_fetch(2, 0.0)
    assert again is not None
    assert (again.ask.session_id, again.ask.session_epoch) == (7, 0), "all of them are named, and told, once more"
    reader.fetcher.fetched(2, again.number, FetchAnswer(0, 8, (at_end,)), 0.0)
    assert reader.fetcher.take().ends == {AT: Seek(8, -1)}


def test_what_an_old_leader_says_of_epochs_is_no_check_at_the_new_one() -> None:
    reader = Reader(ReadPlan(Seek(3, EPOCH)), at=(AT,))
    reader.look_up()
    reader.fetcher.next_check(0, 0.0)
    new_leader(reader)
    reader.fetcher.checked(0, {AT: EpochEnd(0, EPOCH, 99)}, 0.0)
    assert reader.fetcher.next_fetch(1, 0.0) is None
    assert reader.fetcher.next_check(1, 0.0) == {AT: EpochQuestion(EPOCH + 1, EPOCH)}
    reader.fetcher.checked(1, {AT: EpochEnd(0, EPOCH, 1)}, 0.0)
    failed = reader.fetcher.take().failed[AT]
    assert isinstance(failed, Incident)
    assert failed.name == "source_truncated"


def seen(reader: Reader, *, epoch: int) -> None:
    """All brokers are asked, one after the other, until one is believed."""
    for broker in range(3):
        reader.now_s += 2
        if reader.fetcher.topics(reader.now_s):
            found = {"t": TopicLeaders(0, reader.source.topic_id, {0: (0, 0, epoch)})}
            reader.fetcher.looked_up(found, reader.now_s, told(broker))


@pytest.mark.parametrize("position", [EPOCH, EPOCH - 4])
def test_a_cluster_that_goes_back_under_a_running_lane_is_believed(position: int) -> None:
    """Its controllers are restored, and its brokers started again. The lane has read under a newer leader epoch."""
    reader = Reader(ReadPlan(Seek(3, position)), at=(AT,))
    reader.look_up()
    reader.fetcher.next_check(0, 0.0)
    reader.fetcher.checked(0, {AT: EpochEnd(0, position, 9)}, 0.0)
    for _ in range(2):
        reader.fetcher.broker_lost(0, "it is restored", reader.now_s)
        seen(reader, epoch=EPOCH - 4)
        assert not reader.fetcher.take().failed
        assert reader.fetcher.next_check(0, reader.now_s) == {AT: EpochQuestion(EPOCH - 4, position)}
        reader.fetcher.seek({AT: ReadPlan(Seek(3, position))})
        seen(reader, epoch=EPOCH - 4)


def test_brokers_that_were_late_at_different_times_outvote_nobody() -> None:
    reader = Reader(ReadPlan(Seek(3, EPOCH)), at=(AT,))
    reader.look_up()
    topic_id = reader.source.topic_id
    for broker, epoch in ((0, EPOCH - 1), (1, EPOCH), (1, EPOCH - 1), (2, EPOCH - 1)):
        reader.fetcher.broker_lost(0, "away", reader.now_s)
        reader.now_s += 2
        found = {"t": TopicLeaders(0, topic_id, {0: (0, 0, epoch)})}
        assert reader.fetcher.looked_up(found, reader.now_s, told(broker)) is False
        reader.now_s += 2
    assert reader.fetcher.topics(reader.now_s) == {"t"}
