"""A transactional producer whose transaction fails: the reason is known at once, no timeout is waited for."""

from __future__ import annotations

import json
import threading
import time

import pytest
from confluent_kafka import KafkaError, KafkaException

from replicator.config import Cluster, Flow, Properties
from replicator.kafka import producer, properties
from replicator.kafka.coordinator_patience import CoordinatorPatience
from replicator.kafka.producer import OFFSET_OVERHEAD_BYTES, TXN_OFFSETS_BYTES_MAX, TransactionalProducer
from replicator.model.errors import Abortable, Fenced, NotAllowed, UnknownOutcome
from replicator.model.partition import Committed, Partition
from tests.replicator.kafka.fakes import Factory, FakeProducer

SOON_S = 5.0


def make_flow() -> Flow:
    clusters = {
        name: Cluster(name=name, properties=Properties({"bootstrap.servers": f"{name}:9092"}))
        for name in ("east", "west")
    }
    return Flow(name="f", source=clusters["east"], target=clusters["west"], topics=("orders",))


@pytest.fixture
def factory(monkeypatch: pytest.MonkeyPatch) -> Factory:
    made = Factory()
    monkeypatch.setattr(producer, "Producer", made)
    return made


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def transactions(factory: Factory, said: list[str]) -> TransactionalProducer:
    flow = make_flow()
    made = TransactionalProducer(flow, properties.lane_producer(flow, "eos.f.1.0"), said.append)
    made.fence()
    made.begin()
    return made


@pytest.fixture
def client(factory: Factory, transactions: TransactionalProducer) -> FakeProducer:
    return factory.made[0]


def test_while_it_goes_on_there_is_no_failure(transactions: TransactionalProducer) -> None:
    assert transactions.failure() is None


def test_a_flush_that_stalls_tells_why_the_transaction_has_failed(
    transactions: TransactionalProducer, client: FakeProducer
) -> None:
    client.holds_acks = True
    transactions.write("t", b"v", b"k", 0)
    client.fail(KafkaError._TIMED_OUT, "too late")
    client.queued.append(("t", b"v", b"k", 0, None))  # one in flight, whose answer never comes
    began = time.monotonic()
    with pytest.raises(Abortable, match="too late"):
        transactions.flush()
    assert time.monotonic() - began < SOON_S


def test_a_flush_that_ends_asks_too(transactions: TransactionalProducer, client: FakeProducer) -> None:
    """A batch in the middle of a run has no delivery report that is listened to."""
    client.fail(KafkaError.INVALID_RECORD, "ProduceRequest for t [0] failed")
    with pytest.raises(Abortable, match="INVALID_RECORD"):
        transactions.flush()


def test_a_produce_in_the_wrong_state_is_no_unknown_outcome(
    transactions: TransactionalProducer, client: FakeProducer
) -> None:
    client.fail(KafkaError._TIMED_OUT, "too late")
    with pytest.raises(Abortable, match="too late"):
        transactions.write("t", b"v", b"k", 0)


def test_a_full_queue_of_a_failed_transaction_is_not_waited_for(
    transactions: TransactionalProducer, client: FakeProducer
) -> None:
    client.room, client.holds_acks = 1, True
    transactions.write("t", b"v", b"k", 0)
    client.on_poll.append(
        lambda: setattr(client, "failure", KafkaError(KafkaError._TIMED_OUT, txn_requires_abort=True))
    )
    began = time.monotonic()
    with pytest.raises(Abortable):
        transactions.wait_for_space()
    assert time.monotonic() - began < SOON_S


@pytest.mark.parametrize(
    ("code", "flags", "kind", "text"),
    [
        (KafkaError._FENCED, {"fatal": True}, Fenced, "FENCED"),
        (KafkaError.INVALID_TXN_STATE, {"fatal": True}, UnknownOutcome, "INVALID_TXN_STATE"),
        (
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            {"fatal": True},
            NotAllowed,
            "cluster 'west': .* needs Write and Describe on transactional id 'eos.f.1.0'",
        ),
        (
            KafkaError.GROUP_AUTHORIZATION_FAILED,
            {"txn_requires_abort": True},
            NotAllowed,
            "cluster 'west': .* needs Read on group 'eos-replicate.f'",
        ),
    ],
)
def test_the_reason_decides(
    transactions: TransactionalProducer,
    client: FakeProducer,
    code: int,
    flags: dict[str, bool],
    kind: type[Exception],
    text: str,
) -> None:
    client.fail(code, "why", **flags)
    with pytest.raises(kind, match=text):
        transactions.send_positions("eos-replicate.f", {Partition("t", 0): Committed(1, "m")}, None)


def test_partitions_that_could_not_be_added_are_read_from_the_log(
    transactions: TransactionalProducer, client: FakeProducer, said: list[str]
) -> None:
    line = (
        'ADDPARTS [rdkafka#producer-1] [thrd:main]: TxnCoordinator/1: Failed to add partition "t" [2] to transaction: '
    )
    client.on_poll.append(lambda: client.logger.error(line + "Broker: Topic authorization failed"))
    client.on_poll.append(lambda: client.logger.error(line.replace("[2]", "[3]") + "Broker: Operation not attempted"))
    client.failure = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "Failed to add partitions")
    assert transactions.failure() is client.failure
    assert transactions.denied == {Partition("t", 2)}
    assert len(said) == 2


def test_positions_go_in_requests_that_fit_a_batch(transactions: TransactionalProducer, client: FakeProducer) -> None:
    offsets = {Partition("t" * 249, number): Committed(number, "ü" * 1_000) for number in range(300)}
    transactions.send_positions("g", offsets, None)
    sizes = [
        sum(len(one.topic) + len(one.metadata.encode()) + OFFSET_OVERHEAD_BYTES for one in sent)
        for sent in client.offsets
    ]
    assert len(sizes) == 3
    assert max(sizes) <= TXN_OFFSETS_BYTES_MAX
    sent = [(one.topic, one.partition, one.offset) for chunk in client.offsets for one in chunk]
    assert sent == [(at.topic, at.partition, value.offset) for at, value in offsets.items()]


def test_no_positions_are_no_request(transactions: TransactionalProducer, client: FakeProducer) -> None:
    transactions.send_positions("g", {}, None)
    assert client.offsets == []


def test_an_abort_is_not_preceded_by_a_flush(transactions: TransactionalProducer, client: FakeProducer) -> None:
    transactions.write("t", b"v", b"k", 0)
    client.calls.clear()
    transactions.abort()
    assert client.calls == ["abort"]
    assert not transactions.open


def test_positions_without_answer_end_the_session_and_hold_nobody_up(factory: Factory) -> None:
    """librdkafka keeps no time-out while it waits for a coordinator that has left the cluster."""
    flow, patience = make_flow(), CoordinatorPatience(60.0, late_s=0.05)
    transactions = TransactionalProducer(flow, properties.lane_producer(flow, "eos.f.1.0"), print, patience=patience)
    factory.made[0].held_up = over = threading.Event()
    transactions.begin()
    began = time.monotonic()
    with pytest.raises(UnknownOutcome, match=r"group 'eos-replicate.f': its coordinator, .* for 0.05 s"):
        transactions.send_positions("eos-replicate.f", {Partition("t", 0): Committed(1, "")}, object())
    transactions.close()
    assert time.monotonic() - began < SOON_S
    assert patience.limit_s == 0.1
    served = threading.Event()
    factory.made[0].on_poll.append(served.set)
    assert served.wait(SOON_S), "what it has to say piles up"
    over.set()
    for serving in [thread for thread in threading.enumerate() if thread.name == "abandoned.f"]:
        serving.join(SOON_S)
        assert not serving.is_alive()


def test_a_producer_that_has_lost_its_coordinator_commits_nothing_more(
    transactions: TransactionalProducer, client: FakeProducer
) -> None:
    """librdkafka would wait for it for ever."""
    at = {Partition("t", 0): Committed(1, "")}
    transactions.send_positions("g", at, object())
    broker = {"state": "UP", "wakeups": 1, "req": {"TxnOffsetCommit": 1}}
    told = {"msg_size": 0, "brokers": {"west:9092/1": broker}}
    client.on_poll.append(lambda: client.conf["stats_cb"](json.dumps(told)))
    transactions.serve()
    line = "FAIL [lane#producer-1] [thrd:west:9092/1]: west:9092/1: Disconnected (after 1731ms in state UP)"
    client.on_poll.append(lambda: client.logger.error(line))
    with pytest.raises(UnknownOutcome, match="coordinator of the positions was lost, west:9092/1: Disconnected"):
        transactions.send_positions("g", at, object())
    assert client.calls.count("offsets") == 1
    with pytest.raises(UnknownOutcome):
        transactions.begin()


def test_an_abort_purges_again_what_has_come_back_into_the_queue(
    transactions: TransactionalProducer, client: FakeProducer
) -> None:
    """A record for a topic that is gone is in flight at the purge, is refused, and is queued again."""
    transactions.write("t", b"v", b"k", 0)
    client.comes_back = 2
    client.calls.clear()
    transactions.abort()
    assert client.calls == ["abort"] * 3
    assert not transactions.open


def test_an_abort_that_takes_too_long_is_not_certain(
    transactions: TransactionalProducer, client: FakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer, "ABORT_S_MAX", 0.05)
    transactions.write("t", b"v", b"k", 0)
    client.comes_back = 1_000_000
    with pytest.raises(UnknownOutcome, match="abort the transaction"):
        transactions.abort()


def test_an_abort_that_fails_of_something_else_is_made_once(
    transactions: TransactionalProducer, client: FakeProducer
) -> None:
    transactions.write("t", b"v", b"k", 0)
    client.calls.clear()
    client.abort_fails = KafkaError(KafkaError._FENCED, fatal=True)
    with pytest.raises(Fenced):
        transactions.abort()
    assert client.calls == ["abort"]


def test_a_fatal_error_that_a_callback_has_lost_is_asked_of_the_state(
    transactions: TransactionalProducer, client: FakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """confluent-kafka (2.16) returns nothing from a call whose callbacks were run with the error raised already."""

    def flush(timeout_s: float) -> int:
        raise SystemError("<method 'flush' of 'cimpl.Producer' objects> returned NULL without setting an exception")

    def begin() -> None:
        raise KafkaException(KafkaError(KafkaError._FENCED, "fenced by a newer instance", fatal=True))

    monkeypatch.setattr(client, "flush", flush)
    monkeypatch.setattr(client, "begin_transaction", begin)
    with pytest.raises(Fenced):
        transactions.flush()


def test_any_other_system_error_is_a_bug(
    transactions: TransactionalProducer, client: FakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flush(timeout_s: float) -> int:
        raise SystemError("bad argument to internal function")

    monkeypatch.setattr(client, "flush", flush)
    with pytest.raises(SystemError, match="internal function"):
        transactions.flush()
