"""Questions that any broker answers: no dead, frozen or strange one holds them up."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

from replicator.config import Cluster, Properties
from replicator.kafka.topic_questions import AdminTopicQuestions, TopicInfo, within
from replicator.model.errors import NotAllowed, TopicMissing, Unreachable
from replicator.wire import any_broker, metadata_response, topics
from replicator.wire.metadata_response import TopicMetadata
from replicator.wire.protocol import SPOKEN, exchange
from replicator.wire.response_limits import BadResponse
from replicator.wire.topics import AnyBrokerTopics, topic_questions
from tests.replicator.wire.fake_broker import TOPIC, TOPIC_ID, Answer, FakeBroker, Leader, response, uuid_of

pytestmark = pytest.mark.tier("default")

LIMIT_S = 10.0
ID = "MDEyMzQ1Njc4OWFiY2RlZg"  # TOPIC_ID as librdkafka writes it
SLACK_S = 0.9  # less than an attempt


class Answering(Leader):
    """One broker of a cluster, which knows the addresses of all."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[FakeBroker] = []
        self.frozen = False

    def __call__(self, api: str, version: int, request: Any) -> Answer:
        return b"" if self.frozen else super().__call__(api, version, request)

    def metadata(self, topic: Mapping[str, Any] | None = None, **partition: Any) -> dict[str, Any]:
        brokers = [{"node_id": n, "host": "127.0.0.1", "port": b.port} for n, b in enumerate(self.all)]
        return {**super().metadata(topic, **partition), "brokers": brokers}


@contextmanager
def cluster(count: int) -> Iterator[tuple[list[Answering], list[FakeBroker], AnyBrokerTopics]]:
    answering = [Answering() for _ in range(count)]
    with ExitStack() as stack:
        brokers = [stack.enter_context(FakeBroker(each)) for each in answering]
        for each in answering:
            each.all = brokers
        asking = client(",".join(f"127.0.0.1:{broker.port}" for broker in brokers))
        stack.callback(asking.close)
        yield answering, brokers, asking


def client(servers: str, **properties: str) -> AnyBrokerTopics:
    given = Properties({"bootstrap.servers": servers, **properties})
    found = topic_questions(Cluster(name="east", properties=given), "me", LIMIT_S)
    assert isinstance(found, AnyBrokerTopics)
    return found


def ask(asking: AnyBrokerTopics, *names: str) -> tuple[Mapping[str, object], float]:
    began_s = time.monotonic()
    return within(asking.describe(names or (TOPIC,)), LIMIT_S), time.monotonic() - began_s


def asked(broker: FakeBroker) -> int:
    return sum(api == "metadata" for api, _, _ in broker.asked)


def test_one_connection_is_kept_and_ids_are_those_of_librdkafka() -> None:
    with cluster(2) as (_, brokers, asking):
        for _ in range(5):
            assert ask(asking)[0] == {TOPIC: TopicInfo(TOPIC, ID, 1)}
        assert sorted(broker.connections for broker in brokers) == [0, 1]
        assert sorted(map(asked, brokers)) == [0, 5]


def test_a_broker_that_dies_costs_nothing_and_the_next_one_answers() -> None:
    with cluster(3) as (answering, brokers, asking):
        for _ in range(2):
            ask(asking)
            (used,) = [n for n, broker in enumerate(brokers) if asked(broker) and not answering[n].frozen]
            answering[used].instead["metadata"] = [None] * 100  # closes the connection
            answering[used].instead["api_versions"] = [None] * 100
            found, took_s = ask(asking)
            assert found == {TOPIC: TopicInfo(TOPIC, ID, 1)}
            assert took_s < SLACK_S
            answering[used].frozen = True
            brokers[used].asked.clear()


def test_a_frozen_broker_costs_a_second_once_and_is_avoided() -> None:
    with cluster(3) as (answering, brokers, asking):
        ask(asking)
        (used,) = [n for n, broker in enumerate(brokers) if asked(broker)]
        answering[used].frozen = True
        found, took_s = ask(asking)
        assert found == {TOPIC: TopicInfo(TOPIC, ID, 1)}
        assert any_broker.ATTEMPT_S - 0.1 <= took_s < any_broker.ATTEMPT_S + SLACK_S
        frozen = asked(brokers[used])
        for number in range(5):
            if number == 2:  # a connection that is lost, to another broker, doesn't lead back to it
                asking.close()
            assert ask(asking)[1] < SLACK_S
        assert asked(brokers[used]) == frozen


@pytest.mark.tier("default")
def test_a_cluster_that_does_not_answer_holds_up_only_who_waits() -> None:
    """Each attempt to connect to a frozen broker takes a second or more, and a lane that stops has many questions."""
    with cluster(2) as (answering, _, asking):
        for each in answering:
            each.frozen = True
        waiting = asking.describe([TOPIC])
        assert not waiting.poll(0.1)
        began_s = time.monotonic()
        questions = [asking.describe([TOPIC, f"other {number}"]) for number in range(5)]
        assert not any(question.poll(0.0) for question in questions)
        assert isinstance(questions[0].values()[TOPIC], Unreachable)
        assert time.monotonic() - began_s < any_broker.ATTEMPT_S - 0.1
        for each in answering:
            each.frozen = False
        assert questions[0].poll(LIMIT_S)
        assert questions[0].values()[TOPIC] == TopicInfo(TOPIC, ID, 1)


def test_who_wants_another_broker_is_given_one() -> None:
    with cluster(3) as (_, brokers, _):
        given = Properties({"bootstrap.servers": ",".join(f"127.0.0.1:{broker.port}" for broker in brokers)})
        asking = topic_questions(Cluster(name="east", properties=given), "me", LIMIT_S, kept_s=0.0)
        for _ in range(20):
            before = list(map(asked, brokers))
            assert within(asking.describe([TOPIC]), LIMIT_S) == {TOPIC: TopicInfo(TOPIC, ID, 1)}
        assert min(before) > 0
        asking.close()


def test_a_cluster_that_was_away_is_found_again_by_the_question_that_waits() -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    asking = client(f"127.0.0.1:{port}")
    waiting = asking.describe([TOPIC])
    assert not waiting.poll(0.3)
    values = waiting.values()
    assert isinstance(values[TOPIC], Unreachable)
    assert "Connection refused" in str(values[TOPIC])
    answering = Answering()
    with FakeBroker(answering, port=port):
        assert waiting.poll(LIMIT_S)
        assert waiting.values() == {TOPIC: TopicInfo(TOPIC, ID, 1)}
        asking.close()


def test_questions_side_by_side_and_questions_that_nobody_waits_for() -> None:
    with cluster(1) as (answering, _, asking):
        answering[0].answer_metadata = lambda request: answering[0].metadata({"name": request.topics[0].name})  # type: ignore[method-assign]
        first, second = asking.describe(["a"]), asking.describe(["b"])
        for _ in range(100):
            asking.describe(["c"])
        assert within(second, LIMIT_S) == {"b": TopicInfo("b", ID, 1)}
        assert within(first, LIMIT_S) == {"a": TopicInfo("a", ID, 1)}


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (3, TopicMissing, "describe topic 'orders': UNKNOWN_TOPIC_OR_PART"),
        (29, NotAllowed, "the user needs Describe on topic 'orders'"),
    ],
)
def test_an_error_of_one_topic_is_its_own(code: int, kind: type, words: str) -> None:
    with cluster(1) as (answering, _, asking):
        answering[0].answer_metadata = lambda request: answering[0].metadata({"error_code": code})  # type: ignore[method-assign]
        found = ask(asking)[0][TOPIC]
        assert isinstance(found, kind)
        assert words in str(found)


def test_an_answer_that_is_none_is_told() -> None:
    with cluster(1) as (_, brokers, asking):
        brokers[0].mutate = lambda api, data: data[:-1] + b"\x09" if api == "metadata" else data
        found = ask(asking)[0][TOPIC]
        assert isinstance(found, Unreachable)
        brokers[0].mutate = lambda api, data: data
        assert ask(asking)[0] == {TOPIC: TopicInfo(TOPIC, ID, 1)}


def test_a_changed_id_is_seen_at_once() -> None:
    with cluster(1) as (answering, _, asking):
        for topic_id in (TOPIC_ID, TOPIC_ID, b"another-one-here", TOPIC_ID):
            answering[0].topic_id = topic_id
            found = ask(asking)[0][TOPIC]
            assert isinstance(found, TopicInfo)
            assert (found.topic_id == ID) == (topic_id == TOPIC_ID)


def test_what_is_not_spoken_here_goes_over_librdkafka() -> None:
    login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}
    east = Cluster(name="east", properties=Properties({"bootstrap.servers": "127.0.0.1:1", **login}))
    assert isinstance(topic_questions(east, "me", 1.0), AdminTopicQuestions)


def test_a_broker_that_knows_no_topic_ids_is_asked_over_librdkafka() -> None:
    with cluster(1) as (answering, _, asking):
        answering[0].versions[SPOKEN["metadata"][0]] = (0, 9)
        assert isinstance(ask(asking)[0][TOPIC], Unreachable)
        assert not isinstance(asking.describe([TOPIC]), topics._Answers)
        asking.close()


def metadata(version: int, seed: int) -> tuple[bytes, list[TopicMetadata]]:
    """A response with its size, header and brokers, as brokers give it, and the topics in it."""
    draw = random.Random(seed)
    some = [draw.randbytes(16) for _ in range(draw.randrange(5))]

    def nodes() -> tuple[int, ...]:
        return tuple(range(draw.choice((0, 1, 3, 130))))

    told, expected = [], []
    for number, topic_id in enumerate(some):
        count, rights = draw.choice((0, 1, 3, 200)), draw.choice((-(2**31), 0, 0xFFF))
        partitions: list[dict[str, Any]] = [
            {
                "error_code": draw.choice((0, 5)),
                "partition_index": index,
                "leader_id": draw.choice((-1, 2)),
                "leader_epoch": draw.randrange(9),
                "replica_nodes": nodes(),
                "isr_nodes": nodes(),
                "offline_replicas": nodes(),
            }
            for index in range(count)
        ]
        name = f"t{number}" * draw.choice((1, 60))
        told.append(
            {
                "error_code": draw.choice((0, 3)),
                "name": name,
                "topic_id": uuid_of(topic_id),
                "partitions": partitions,
                "topic_authorized_operations": rights,
            }
        )
        short = {
            each["partition_index"]: (each["leader_id"], len(each["isr_nodes"]), len(each["replica_nodes"]))
            for each in partitions
            if each["leader_id"] < 0 or len(each["isr_nodes"]) != len(each["replica_nodes"])
        }
        known = None if rights == -(2**31) else rights
        expected.append(TopicMetadata(told[-1]["error_code"], name, topic_id, count, known, short))
    brokers = [{"node_id": n, "host": f"host-{n}", "port": 9092 + n, "rack": draw.choice((None, "r"))} for n in nodes()]
    return response("metadata", version, 7, {"brokers": brokers, "cluster_id": "c", "topics": told}), expected


@pytest.mark.parametrize("version", range(metadata_response.VERSIONS[0], metadata_response.VERSIONS[1] + 1))
@pytest.mark.parametrize("seed", range(20))
def test_metadata_is_read_as_kio_reads_it(version: int, seed: int) -> None:
    data, expected = metadata(version, seed)
    found = metadata_response.read(data, 4 + 4 + 1 + 4, version)
    _, known = exchange("metadata", version).read(data[4:])
    assert found.topics == expected
    assert found.brokers == {broker.node_id: (broker.host, broker.port) for broker in known.brokers}
    assert [len(topic.partitions) for topic in known.topics] == [topic.partitions for topic in found.topics]


@pytest.mark.parametrize("version", range(metadata_response.VERSIONS[0], metadata_response.VERSIONS[1] + 1))
def test_metadata_that_is_cut_or_altered_is_refused_or_read_but_never_more(version: int) -> None:
    data = next(data for data in (metadata(version, seed)[0] for seed in range(99)) if 300 < len(data) < 3_000)
    for end in range(13, len(data)):
        with pytest.raises(BadResponse):
            metadata_response.read(data[:end], 13, version)
    draw = random.Random(version)
    for _ in range(500):
        altered = bytearray(data)
        altered[draw.randrange(13, len(data))] = draw.randrange(256)
        began_s = time.monotonic()
        with suppress(BadResponse):
            metadata_response.read(bytes(altered), 13, version)
        assert time.monotonic() - began_s < LIMIT_S


def test_all_names_are_asked_of_any_broker_that_lives() -> None:
    with cluster(3) as (answering, brokers, asking):
        assert within(asking.names(), LIMIT_S) == {TOPIC}
        connected = next(number for number, broker in enumerate(brokers) if broker.connections)
        answering[connected].frozen = True
        began_s = time.monotonic()
        assert within(asking.names(), LIMIT_S) == {TOPIC}
        assert time.monotonic() - began_s < any_broker.ATTEMPT_S + SLACK_S
        assert all(
            request.topics is None for broker in brokers for api, _, request in broker.asked if api == "metadata"
        )


def test_names_that_no_broker_tells_are_not_known() -> None:
    with cluster(1) as (answering, _, asking):
        answering[0].instead["metadata"] = [None, None, None, None, None, None]
        found = within(asking.names(), 0.3)
        assert isinstance(found, Unreachable)
        assert "cannot list topics" in str(found)
