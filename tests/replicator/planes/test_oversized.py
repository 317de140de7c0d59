"""The search for the partition with a response that is too large: none is named for another's answer, and the one is
found however far away the source is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from replicator.model.partition import Partition
from replicator.planes.records import oversized
from replicator.planes.records.oversized import OversizedSearch
from tests.replicator.kafka.test_producer import make_flow
from tests.replicator.planes.fakes import Message

A, B = Partition("a", 0), Partition("b", 0)
TOO_LARGE = KafkaError(KafkaError._BAD_MSG, "b1:9092/1: Invalid response size 99999999 (0..5000)")
LOOP_S = 0.01  # that the lane spends between two rounds


@dataclass
class Far:
    """A source cluster and the time. Its answer to a fetch comes `answer_s` after the partition was assigned, and
    `connect_s` later where the consumer asks its broker first; `oversized` partitions have a batch that is too large
    from the offset on. `ahead`: what comes behind the batch is too large, and is told so much later."""

    answer_s: Mapping[Partition, float]
    connect_s: float = 0.0
    oversized: Mapping[Partition, int] = field(default_factory=dict)
    ahead: Mapping[Partition, float] = field(default_factory=dict)
    now_s: float = 100.0
    made: list[FarConsumer] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)  # topics

    def monotonic(self) -> float:
        return self.now_s

    def consumer(self, conf: dict[str, Any]) -> FarConsumer:
        self.made.append(FarConsumer(self, conf))
        return self.made[-1]


@dataclass
class FarConsumer:
    far: Far
    conf: dict[str, Any]
    answers: list[tuple[float, Partition, bool]] = field(default_factory=list)  # under way, with whether too large
    at: Partition | None = None
    closed: bool = False

    def list_topics(self, topic: str = "", timeout: float = 0) -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def assign(self, partitions: list[TopicPartition]) -> None:
        (found,) = partitions
        connect_s = self.far.connect_s if self.at is None else 0.0
        self.at = Partition(found.topic, found.partition)
        self.far.asked.append(found.topic)
        come_s = self.far.now_s + connect_s + self.far.answer_s[self.at]
        self.answers.append((come_s, self.at, found.offset >= self.far.oversized.get(self.at, 10**9)))

    def poll(self, timeout: float) -> Message | None:
        assert not self.closed
        self.far.now_s += timeout
        come = [answer for answer in self.answers if answer[0] <= self.far.now_s]
        self.answers = [answer for answer in self.answers if answer not in come]
        for _, at, too_large in come:
            if too_large:  # also for a partition that isn't assigned any more
                self.conf["error_cb"](TOO_LARGE)
            elif at == self.at:
                if at in self.far.ahead:
                    self.answers.append((self.far.now_s + self.far.ahead[at], at, True))
                return Message(at.topic, at.partition, 0)
        return None

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Any:
    def made(far: Far) -> OversizedSearch:
        monkeypatch.setattr(oversized, "time", far)
        monkeypatch.setattr(oversized, "Consumer", far.consumer)
        search = OversizedSearch(make_flow(), 0)
        search.begin("Invalid response size")
        return search

    return made


def find(search: OversizedSearch, far: Far, candidates: list[Partition], positions: dict[Partition, int]) -> list[Any]:
    """Go on until the search is over, as the source reader does; what it found."""
    found: list[Any] = []
    rounds = 0
    while search.wanted:
        began_s = far.now_s
        found += search.round(candidates, positions).items()
        assert far.now_s - began_s <= oversized.ROUND_S_MAX + 0.5, "it holds up the lane"
        far.now_s += LOOP_S
        rounds += 1
        assert rounds < 10_000
    assert all(consumer.closed for consumer in far.made)
    return found


def test_an_answer_that_comes_late_accuses_no_other_partition(make: Any) -> None:
    far = Far({A: 0.55, B: 0.2}, oversized={A: 7})
    search = make(far)
    first = search.round([A, B], {A: 7, B: 100})
    assert first == {}
    ((at, incident),) = find(search, far, [A, B], {A: 7, B: 100})
    assert (at, incident.name, incident.offset) == (A, "record_too_large", 7)


def test_the_first_partition_of_a_broker_is_found_though_the_connection_takes_long(make: Any) -> None:
    far = Far({A: 0.06, B: 0.06}, connect_s=0.6, oversized={A: 7})
    ((at, _),) = find(make(far), far, [A, B], {A: 7, B: 100})
    assert at == A


def test_an_error_of_what_was_fetched_ahead_accuses_no_other_partition(make: Any) -> None:
    """librdkafka asks for the next batch as soon as the first was taken, and an assignment doesn't recall that."""
    far = Far({A: 0.1, B: 0.3}, ahead={A: 0.15})
    assert find(make(far), far, [A, B], {A: 7, B: 100}) == []


def test_a_partition_that_never_answers_ends_the_search_after_the_request_timeout(make: Any) -> None:
    far = Far({A: 10**9, B: 0.1})
    began_s = far.now_s
    assert find(make(far), far, [A, B], {A: 7, B: 100}) == []
    request_s = make_flow().limits.request_timeout_ms / 1000
    assert request_s < far.now_s - began_s < 4 * request_s


def test_waiting_for_one_partition_hardly_holds_up_the_others(make: Any) -> None:
    """The lane goes on copying them: only the first look at a partition takes long."""
    far = Far({A: 10**9})
    search = make(far)
    took: list[float] = []
    while search.wanted:
        began_s = far.now_s
        search.round([A], {A: 7})
        took.append(far.now_s - began_s)
        far.now_s += 0.5
    assert sum(took) < 0.2 * (far.now_s - 100.0)


def test_a_partition_that_was_read_on_while_it_was_asked_is_not_the_one(make: Any) -> None:
    far = Far({A: 1.9, B: 1.2}, oversized={A: 7, B: 100})
    search = make(far)
    positions = {A: 7, B: 100}
    for _ in range(5):  # both are unanswered twice, then A is being asked for longer than a round
        assert search.round([A, B], positions) == {}
    positions[A] = 8
    ((at, _),) = find(search, far, [A, B], positions)
    assert at == B


def test_another_assignment_and_the_end_let_go_of_the_consumer(make: Any) -> None:
    far = Far({A: 5.0})
    search = make(far)
    search.round([A], {A: 7})
    search.round([A], {A: 7})
    search.forget()
    assert far.made
    assert all(consumer.closed for consumer in far.made)


def test_one_that_has_moved_to_the_batch_is_asked_again_before_others_that_never_answer(make: Any) -> None:
    """It had earlier records in the queue when it was asked first; the client tells the same again each second."""
    others = [Partition("c", number) for number in range(5)]
    far = Far({B: 0.1, **dict.fromkeys(others, 10**9)}, oversized={B: 7})
    search, candidates, positions = make(far), [B, *others], {B: 5, **dict.fromkeys(others, 0)}
    assert search.round(candidates, positions) == {}
    positions[B] = 7
    began_s, found = far.now_s, dict[Partition, Any]()
    while not found and far.now_s < began_s + 10:
        search.begin("Invalid response size")
        found = search.round(candidates, positions)
        far.now_s += LOOP_S
    assert [(at, incident.offset) for at, incident in found.items()] == [(B, 7)]


def test_one_that_has_moved_is_not_asked_again_unless_the_same_is_told_again(make: Any) -> None:
    far = Far({A: 10**9, B: 0.1})
    search, positions = make(far), {A: 7, B: 100}
    while search.wanted:
        search.round([A, B], positions)
        positions[B] += 1
        far.now_s += LOOP_S
    assert sum(at == "b" for at in far.asked) == 1


@pytest.mark.parametrize("answer_s", [0.1, 0.7])
def test_one_among_many_is_found_however_many_of_them_move(make: Any, answer_s: float) -> None:
    """The client tells the same each second, and those that have moved since are asked in turn with the others."""
    many = [Partition("c", number) for number in range(200)]
    far = Far({**dict.fromkeys(many, 0.1), many[150]: answer_s}, oversized={many[150]: 7})
    search, positions = make(far), {**dict.fromkeys(many, 0), many[150]: 7}
    began_s, found = far.now_s, dict[Partition, Any]()
    while not found and far.now_s < began_s + 120:
        found = search.round(many, positions)
        far.now_s += LOOP_S
        search.begin("Invalid response size")
        for at in many[:20]:
            positions[at] += 1
    assert list(found) == [many[150]]


def test_an_error_behind_one_that_has_moved_is_believed_in_the_next_round(make: Any) -> None:
    far = Far({A: 0.1, B: 0.1}, oversized={B: 7})
    search, positions = make(far), {A: 0, B: 7}
    assert search.round([A, B], positions) == {}, "its consumer has asked for the other one"
    positions[A] += 1
    search.begin("Invalid response size")
    assert list(search.round([A, B], positions)) == [B]


def test_one_that_moves_while_it_is_asked_is_asked_again_where_it_stands(make: Any) -> None:
    many = [Partition("c", number) for number in range(30)]
    asked = many[8]  # the round ends before it answers
    far = Far({**dict.fromkeys(many, 0.1), asked: 0.4}, oversized={asked: 7})
    search, positions = make(far), dict.fromkeys(many, 0)
    assert search.round(many, positions) == {}
    assert far.asked.count("c") == 9
    positions[asked] = 7
    began_s, found = far.now_s, dict[Partition, Any]()
    while not found and far.now_s < began_s + 60:
        search.begin("Invalid response size")
        for at in many[9:29]:
            positions[at] += 1
        found = search.round(many, positions)
        far.now_s += LOOP_S
    assert list(found) == [asked]


def test_a_search_ends_though_one_that_has_moved_answers_no_more(make: Any) -> None:
    far = Far({A: 10**9, B: 0.1})
    search, positions = make(far), {A: 7, B: 100}
    search.round([B, A], positions)
    positions[B] += 1
    search.begin("Invalid response size")
    far.answer_s = dict.fromkeys((A, B), 10**9)
    assert find(search, far, [B, A], positions) == []
