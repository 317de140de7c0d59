"""Offsets that leaders tell: one that is dead, frozen or no leader any more delays its own partitions alone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from replicator.config import Cluster, Properties
from replicator.kafka.offset_questions import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    STABLE,
    ListedOffset,
    ListedOffsets,
    Wanted,
)
from replicator.kafka.topic_questions import within
from replicator.model.errors import Incident, NotAllowed, Retriable, TopicMissing, Unreachable
from replicator.model.partition import Partition
from replicator.wire import leaders, list_offsets, offsets
from replicator.wire.protocol import SPOKEN
from replicator.wire.topics import AnyBrokerTopics, topic_questions
from tests.replicator.wire.fake_broker import Answer, FakeBroker, Leader, uuid_of

pytestmark = pytest.mark.tier("default")  # brokers are waited for that do not answer
LIMIT_S = 10.0
TOPICS = {"a": b"0123456789abcdef", "b": b"fedcba9876543210"}
FENCED, UNKNOWN_EPOCH, NOT_LEADER, MISSING, STORAGE = 74, 75, 6, 3, 56


class Logs:
    """What all brokers of a cluster know: who leads what since which epoch, and where its log ends."""

    def __init__(self, partitions: int, brokers: int) -> None:
        self.leaders = {Partition(t, n): n % brokers for t in TOPICS for n in range(partitions)}
        self.epochs = dict.fromkeys(self.leaders, 5)
        self.ends = {at: 100 * number for number, at in enumerate(self.leaders)}
        self.brokers: list[FakeBroker] = []
        self.topic_errors = dict[str, int]()
        self.ids, self.unstable = dict(TOPICS), 7  # records of open transactions, at the end of each log


class Broker(Leader):
    """One broker: answers for what it leads, as Kafka does."""

    def __init__(self, number: int, logs: Logs) -> None:
        super().__init__()
        self.refuses = 0
        self.number, self.logs, self.frozen, self.errors = number, logs, False, dict[Partition, list[int]]()

    def __call__(self, api: str, version: int, request: Any) -> Answer:
        return b"" if self.frozen else super().__call__(api, version, request)

    def answer_metadata(self, request: Any) -> Answer:
        logs = self.logs
        return {
            "brokers": [{"node_id": n, "host": "127.0.0.1", "port": b.port} for n, b in enumerate(logs.brokers)],
            "topics": [self._topic(topic.name) for topic in request.topics],
        }

    def _topic(self, name: str) -> dict[str, Any]:
        error = self.logs.topic_errors.get(name, 0 if name in TOPICS else MISSING)
        led = [
            {
                "error_code": 0 if leader >= 0 else 5,
                "partition_index": at.partition,
                "leader_id": leader,
                "leader_epoch": self.logs.epochs[at],
            }
            for at, leader in self.logs.leaders.items()
            if at.topic == name and not error
        ]
        topic_id = uuid_of(self.logs.ids.get(name, bytes(16)))
        return {"error_code": error, "name": name, "topic_id": topic_id, "partitions": led}

    def answer_describe_configs(self, request: Any) -> Answer:
        (resource,) = request.resources
        mine = (resource.resource_type, resource.resource_name) == (4, str(self.number))
        configs = [{"name": "broker.id", "value": str(self.number)}, {"name": "password", "value": None}]
        found = {"resource_type": 4, "resource_name": resource.resource_name, "error_code": self.refuses}
        return {"results": [{**found, "configs": configs}]} if mine else None

    def answer_list_offsets(self, request: Any) -> Answer:
        level = int(request.isolation_level)
        return {
            "topics": [
                {"name": topic.name, "partitions": [self._listed(topic.name, each, level) for each in topic.partitions]}
                for topic in request.topics
            ]
        }

    def _listed(self, topic: str, asked: Any, level: int) -> dict[str, Any]:
        at, logs = Partition(topic, asked.partition_index), self.logs
        error = self.errors.get(at, []).pop(0) if self.errors.get(at) else 0
        if logs.leaders.get(at) != self.number:
            error = NOT_LEADER
        elif asked.current_leader_epoch != logs.epochs[at]:
            error = FENCED if asked.current_leader_epoch < logs.epochs[at] else UNKNOWN_EPOCH
        end = logs.ends.get(at, 0)
        known = {-2: (1, -1), -1: (end - logs.unstable if level else end, -1), -3: (end - 1, 5_000)}
        offset, time_ms = known.get(asked.timestamp, (end // 2, asked.timestamp + 1))
        found = {"partition_index": at.partition, "error_code": error, "leader_epoch": logs.epochs.get(at, -1)}
        return {**found, "offset": -1, "timestamp": -1} if error else {**found, "offset": offset, "timestamp": time_ms}


class Scene:
    """A cluster and a client of it."""

    def __init__(self, logs: Logs, brokers: list[Broker], asking: AnyBrokerTopics) -> None:
        self.logs, self.brokers, self.asking = logs, brokers, asking

    def ask(
        self, *wanted: Wanted, at: Sequence[Partition] | None = None, patient: bool = False, limit_s: float = LIMIT_S
    ) -> tuple[Sequence[ListedOffsets], float]:
        began_s = time.monotonic()
        question = self.asking.list_offsets(at or list(self.logs.leaders), wanted or (LATEST,), patient=patient)
        return within(question, limit_s), time.monotonic() - began_s

    def of(self, broker: int) -> list[Partition]:
        return [at for at, leader in self.logs.leaders.items() if leader == broker]

    def requests(self, broker: int, api: str = "list_offsets") -> int:
        return sum(name == api for name, _, _ in self.logs.brokers[broker].asked)


@contextmanager
def scene(
    brokers: int = 3, partitions: int = 6, versions: Mapping[str, tuple[int, int]] | None = None
) -> Iterator[Scene]:
    logs = Logs(partitions, brokers)
    answering = [Broker(number, logs) for number in range(brokers)]
    with ExitStack() as stack:
        for each in answering:
            each.versions |= {SPOKEN[api][0]: known for api, known in (versions or {}).items()}
        logs.brokers = [stack.enter_context(FakeBroker(each)) for each in answering]
        servers = ",".join(f"127.0.0.1:{broker.port}" for broker in logs.brokers)
        made = topic_questions(
            Cluster(name="east", properties=Properties({"bootstrap.servers": servers})), "me", LIMIT_S
        )
        assert isinstance(made, AnyBrokerTopics)
        stack.callback(made.close)
        yield Scene(logs, answering, made)


@pytest.mark.parametrize("version", range(list_offsets.VERSIONS[0], list_offsets.VERSIONS[1] + 1))
def test_each_leader_is_asked_once_for_all_that_it_leads(version: int) -> None:
    with scene(versions={"list_offsets": (1, version)}) as world:
        (starts, stables, ends, times), _ = world.ask(EARLIEST, STABLE, LATEST, Wanted(1_000))
        assert ends == {at: ListedOffset(end, -1) for at, end in world.logs.ends.items()}
        under = {(it.leader_epoch, it.topic_id) for it in ends.values() if isinstance(it, ListedOffset)}
        assert under == {(5, TOPICS[topic]) for topic in {at.topic for at in ends}}
        assert stables == {at: ListedOffset(end - 7, -1) for at, end in world.logs.ends.items()}
        assert starts == dict.fromkeys(world.logs.leaders, ListedOffset(1, -1))
        assert times == {at: ListedOffset(end // 2, 1_001) for at, end in world.logs.ends.items()}
        assert [world.requests(number) for number in range(3)] == [4, 4, 4]
        assert sum(world.requests(number, "metadata") for number in range(3)) == 1
        assert {name: kept for name, kept, _ in world.logs.brokers[0].asked}["list_offsets"] == version


def test_the_largest_timestamp_and_its_record() -> None:
    with scene() as world:
        (found,), _ = world.ask(MAX_TIMESTAMP)
        assert found == {at: ListedOffset(end - 1, 5_000) for at, end in world.logs.ends.items()}


@pytest.mark.parametrize("patient", [False, True])
def test_a_frozen_leader_delays_its_own_partitions_alone(patient: bool) -> None:
    with scene() as world:
        world.ask()
        world.brokers[1].frozen = True
        others = [*world.of(0), *world.of(2)]
        (found,), took_s = world.ask(at=others, patient=patient)
        assert found == {at: ListedOffset(world.logs.ends[at], -1) for at in others}
        assert took_s < leaders.ATTEMPT_S + 0.5  # it may have been the one that was asked for metadata
        (found,), took_s = world.ask(patient=patient, limit_s=3.0)
        assert {at for at, it in found.items() if isinstance(it, ListedOffset)} == set(others)
        errors = [found[at] for at in world.of(1)]
        assert all(isinstance(error, Unreachable) and "no answer in time" in str(error) for error in errors)
        assert (took_s > 2.9) == patient


def test_what_a_frozen_leader_led_is_asked_of_its_successor() -> None:
    with scene() as world:
        world.brokers[1].frozen = True
        question = world.asking.list_offsets(list(world.logs.leaders), (LATEST,), patient=True)
        assert not question.poll(0.3)
        for at in world.of(1):
            world.logs.leaders[at], world.logs.epochs[at] = 2, 6
        assert within(question, LIMIT_S) == [{at: ListedOffset(end, -1) for at, end in world.logs.ends.items()}]


@pytest.mark.parametrize("answers", [None, b"\0\0\0\x05hello", b"\xff\xff\xff\xff"], ids=["closes", "garbage", "size"])
def test_a_leader_that_closes_or_says_nonsense_is_asked_again(answers: Answer) -> None:
    with scene() as world:
        world.ask()
        world.brokers[1].instead["list_offsets"] = [answers] * 3
        (found,), _ = world.ask(patient=True)
        assert found == {at: ListedOffset(end, -1) for at, end in world.logs.ends.items()}


def test_a_kept_connection_that_was_closed_costs_nothing() -> None:
    with scene() as world:
        world.ask()
        world.brokers[1].instead["list_offsets"] = [None]
        (found,), took_s = world.ask()
        assert found == {at: ListedOffset(end, -1) for at, end in world.logs.ends.items()}
        assert took_s < 0.5


@pytest.mark.parametrize("error", [NOT_LEADER, FENCED, UNKNOWN_EPOCH, MISSING, STORAGE])
@pytest.mark.parametrize("patient", [False, True])
def test_what_passes_is_asked_again_with_fresh_metadata_and_only_that(error: int, patient: bool) -> None:
    with scene() as world:
        at = world.of(1)[0]
        world.brokers[1].errors[at] = [error, error]
        (found,), _ = world.ask(patient=patient)
        assert found == {at: ListedOffset(end, -1) for at, end in world.logs.ends.items()}
        counts = [
            len(t.partitions)
            for name, _, it in world.logs.brokers[1].asked
            if name == "list_offsets"
            for t in it.topics
        ]
        assert counts == [2, 2, 1, 1]
        assert [world.requests(number) for number in (0, 2)] == [1, 1]


def test_a_leader_that_was_restarted_has_a_new_epoch() -> None:
    with scene() as world:
        for epoch in range(6, 9):
            world.ask()
            world.logs.epochs = dict.fromkeys(world.logs.epochs, epoch)
            (found,), _ = world.ask()
            assert found == {at: ListedOffset(end, -1) for at, end in world.logs.ends.items()}


def test_an_error_that_lasts_is_told_of_its_partition_after_a_moment() -> None:
    with scene() as world:
        at = world.of(1)[0]
        world.brokers[1].errors[at] = [FENCED] * 10_000
        (found,), took_s = world.ask()
        error = found.pop(at)
        assert isinstance(error, Retriable)
        assert f"ask for an offset of {at}: FENCED_LEADER_EPOCH" in str(error)
        assert all(isinstance(it, ListedOffset) for it in found.values())
        assert offsets.MOVING_S <= took_s < offsets.MOVING_S + 1.5


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [(29, NotAllowed, "the user needs Describe on topic 'b'"), (43, Incident, "UNSUPPORTED_FOR_MESSAGE_FORMAT")],
)
def test_an_error_that_does_not_pass_is_told_at_once(code: int, kind: type, words: str) -> None:
    with scene() as world:
        at = Partition("b", 1)
        world.brokers[1].errors[at] = [code]
        (found,), took_s = world.ask(patient=True)
        assert isinstance(found[at], kind)
        assert words in str(found.pop(at))
        assert all(isinstance(it, ListedOffset) for it in found.values())
        assert took_s < 1
        assert world.requests(1) == 1


def test_who_does_not_want_to_wait_is_told_at_once_of_what_is_not_led_or_not_there() -> None:
    with scene() as world:
        led, gone, beyond = world.of(1)[0], Partition("none", 0), Partition("a", 99)
        world.logs.leaders[led] = -1
        world.logs.topic_errors["b"] = 29
        (found,), took_s = world.ask(at=[led, gone, beyond, *world.of(0)])
        assert took_s < 0.5
        assert isinstance(found[led], Retriable)
        assert "LEADER_NOT_AVAILABLE" in str(found[led])
        assert isinstance(found[gone], TopicMissing)
        assert isinstance(found[beyond], TopicMissing)
        assert isinstance(found[Partition("b", 0)], NotAllowed)
        assert found[Partition("a", 0)] == ListedOffset(world.logs.ends[Partition("a", 0)], -1)


def test_who_wants_to_wait_is_answered_when_there_is_a_leader() -> None:
    with scene() as world:
        at = world.of(1)[0]
        world.logs.leaders[at] = -1
        question = world.asking.list_offsets([at], (LATEST,), patient=True)
        assert not question.poll(0.3)
        assert "LEADER_NOT_AVAILABLE" in str(question.values()[0][at])
        world.logs.leaders[at] = 1
        assert within(question, LIMIT_S) == [{at: ListedOffset(world.logs.ends[at], -1)}]


def test_many_partitions_are_asked_for_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "PARTITIONS_MAX", 7)
    monkeypatch.setattr(leaders, "_UNANSWERED_BYTES_MAX", 300)
    with scene(brokers=2, partitions=50) as world:
        (starts, ends), _ = world.ask(EARLIEST, LATEST)
        assert ends == {at: ListedOffset(end, -1) for at, end in world.logs.ends.items()}
        assert set(starts) == set(ends)
        assert [world.requests(number) for number in range(2)] == [2 * 8, 2 * 8]


def test_a_broker_that_does_not_speak_it_is_asked_over_librdkafka(monkeypatch: pytest.MonkeyPatch) -> None:
    with scene(versions={"list_offsets": (1, 5)}) as world:
        asked = list[tuple[object, ...]]()

        class Otherwise:
            def poll(self, timeout_s: float) -> bool:
                return True

            def values(self) -> list[Mapping[Partition, ListedOffset]]:
                return [{Partition("a", 0): ListedOffset(3, -1)}]

        def list_offsets_(*given: object, **_: object) -> Otherwise:
            asked.append(given)
            return Otherwise()

        monkeypatch.setattr(world.asking._otherwise, "list_offsets", list_offsets_)
        assert world.ask(at=[Partition("a", 0)])[0] == [{Partition("a", 0): ListedOffset(3, -1)}]
        assert asked == [([Partition("a", 0)], (LATEST,))]


def test_closing_ends_what_is_under_way() -> None:
    with scene() as world:
        for broker in world.brokers[1:]:
            broker.frozen = False
        world.ask()
        world.brokers[1].instead["list_offsets"] = [b""] * 9
        question = world.asking.list_offsets(list(world.logs.leaders), (LATEST,))
        assert not question.poll(0.2)
        world.asking.close()
        began_s = time.monotonic()
        values = within(question, LIMIT_S)[0]
        assert time.monotonic() - began_s < LIMIT_S / 2
        assert all(isinstance(values[at], ListedOffset) for at in world.of(0))


def test_no_partition_is_no_question() -> None:
    with scene() as world:
        question = world.asking.list_offsets([], (LATEST,))
        assert question.poll(0.0)
        assert question.values() == [{}]
        assert world.logs.brokers[0].asked == []


def test_configs_are_those_of_a_broker_that_answers() -> None:
    with scene() as world:
        world.brokers[0].frozen = world.brokers[2].frozen = True
        assert within(world.asking.broker_configs(), LIMIT_S) == {"broker.id": "1"}


@pytest.mark.parametrize(("code", "kind"), [(31, NotAllowed), (42, Incident)])
def test_configs_that_no_broker_gives(code: int, kind: type) -> None:
    with scene() as world:
        for broker in world.brokers:
            broker.refuses = code
        error = within(world.asking.broker_configs(), LIMIT_S)
        assert isinstance(error, kind)
        assert "read the configs of the cluster" in str(error)
        for broker in world.brokers:
            broker.frozen = True
        asked = world.asking.broker_configs()
        assert not asked.poll(0.2)
        assert isinstance(asked.values(), Unreachable)


def test_who_is_asked_once_more_is_another_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first may be cut off from the controllers: it names a leader of before, for ever."""
    monkeypatch.setattr("replicator.wire.any_broker.random.shuffle", lambda addresses: None)
    with scene(brokers=2, partitions=1) as world:
        at, logs = Partition("a", 0), world.logs
        stale = {"brokers": [{"node_id": n, "host": "127.0.0.1", "port": b.port} for n, b in enumerate(logs.brokers)]}
        led = {"error_code": 0, "partition_index": 0, "leader_id": 0, "leader_epoch": 4}
        topic = {"error_code": 0, "name": "a", "topic_id": uuid_of(TOPICS["a"]), "partitions": [led]}
        world.brokers[0].answer_metadata = lambda request: {**stale, "topics": [topic]}  # type: ignore[method-assign]
        logs.leaders[at] = 1
        (found,), seconds = world.ask(at=[at], patient=True)
        assert found == {at: ListedOffset(logs.ends[at], -1)}
        answer = found[at]
        assert isinstance(answer, ListedOffset)
        assert answer.leader_epoch == 5
        assert seconds < LIMIT_S / 2
        assert world.requests(0, "metadata") == 1
