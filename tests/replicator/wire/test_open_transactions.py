"""What a partition's leader and a coordinator say of open transactions, and the marker that ends one."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from replicator.model.errors import Fenced, NotAllowed, Retriable, Unreachable, Unsupported
from replicator.model.partition import Partition
from replicator.model.transactions import Marker, OpenTransaction, ProducerState
from replicator.wire.open_transactions import WireOpenTransactions
from tests.replicator.wire.fake_broker import TOPIC, Answer, FakeBroker, Leader, flow_of

pytestmark = pytest.mark.tier("default")  # brokers are asked again and again
AT, ID = Partition(TOPIC, 0), "eos.f.1.0"
OPEN = OpenTransaction(1_000, 5, 40, 7)
MARKER = Marker(AT, OPEN, commit=False)
CONCURRENT = 51
NOT_LEADER, NOT_COORDINATOR, LOADING, INVALID_EPOCH, TOPIC_DENIED, CLUSTER_DENIED, ID_DENIED = 6, 16, 14, 47, 29, 31, 53
COORDINATOR_FENCED, NOT_FOUND = 52, 105


class Coordinator(Leader):
    """Leads the partition, and coordinates transactions."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[int] = []
        """What is answered first, by the last request of each question."""
        self.state: dict[str, Any] = {"transaction_state": "Empty", "producer_id": 1_000, "producer_epoch": 6}
        self.start_ms = -1

    def _error(self) -> int:
        return self.errors.pop(0) if self.errors else 0

    def answer_describe_producers(self, request: Any) -> Answer:
        one = {"producer_id": 1_000, "producer_epoch": 5, "coordinator_epoch": 7, "current_txn_start_offset": 40}
        idle = {"producer_id": 9, "producer_epoch": 0, "coordinator_epoch": -1, "current_txn_start_offset": -1}
        found = {"partition_index": 0, "error_code": self._error(), "active_producers": [idle, one]}
        return {"topics": [{"name": TOPIC, "partitions": [found]}]}

    def answer_find_coordinator(self, request: Any) -> Answer:
        assert (request.key, request.key_type, self.broker) == (ID, 1, self.broker)
        return {"error_code": 0, "node_id": 1, "host": "127.0.0.1", "port": self.broker.port if self.broker else 0}

    def answer_describe_transactions(self, request: Any) -> Answer:
        named = {"error_code": self._error(), "transactional_id": request.transactional_ids[0]}
        return {"transaction_states": [{**named, **self.state}]}

    def answer_init_producer_id(self, request: Any) -> Answer:
        assert (request.transactional_id, request.producer_id) == (ID, -1)
        return {"error_code": self._error(), "producer_id": 1_000, "producer_epoch": 7}

    def answer_write_txn_markers(self, request: Any) -> Answer:
        (marker,) = request.markers
        found = {"partition_index": 0, "error_code": self._error()}
        topics = [{"name": TOPIC, "partitions": [found]}]
        return {"markers": [{"producer_id": marker.producer_id, "topics": topics}]}

    @property
    def markers(self) -> list[Any]:
        assert self.broker is not None
        return [request.markers[0] for api, _, request in self.broker.asked if api == "write_txn_markers"]


@contextmanager
def asking(**settings: Any) -> Iterator[tuple[Coordinator, WireOpenTransactions]]:
    answers = Coordinator()
    with FakeBroker(answers) as broker:
        answers.broker = broker
        flow = flow_of(broker, **settings)
        transactions = WireOpenTransactions(flow, flow.target, threading.Event())
        yield answers, transactions
        transactions.close()


def test_the_leader_tells_what_is_open() -> None:
    with asking() as (_, transactions):
        assert list(transactions.open_in(AT)) == [OPEN]


def test_the_coordinator_tells_of_the_id() -> None:
    with asking() as (_, transactions):
        assert transactions.producer(ID) == ProducerState("Empty", 1_000, 6)


@pytest.mark.parametrize("commit", [True, False])
def test_the_marker_is_the_one_that_is_asked_for(commit: bool) -> None:
    with asking() as (answers, transactions):
        transactions.end(Marker(AT, OPEN, commit))
        (written,) = answers.markers
        assert (written.producer_id, written.producer_epoch, written.coordinator_epoch) == (1_000, 5, 7)
        assert written.transaction_result is commit
        assert [(topic.name, topic.partition_indexes) for topic in written.topics] == [(TOPIC, (0,))]


def test_a_partition_that_never_had_a_marker_gets_one_of_the_first_coordinator() -> None:
    with asking() as (answers, transactions):
        transactions.end(Marker(AT, OpenTransaction(1_000, 5, 40, -1), commit=False))
        assert answers.markers[0].coordinator_epoch == 0


QUESTIONS: Mapping[str, Any] = {
    "open_in": lambda transactions: transactions.open_in(AT),
    "producer": lambda transactions: transactions.producer(ID),
    "end": lambda transactions: transactions.end(MARKER),
    "fence": lambda transactions: transactions.fence(ID, 60_000),
}


@pytest.mark.parametrize(
    ("question", "error"),
    [
        ("open_in", NOT_LEADER),
        ("producer", NOT_COORDINATOR),
        ("producer", LOADING),
        ("end", NOT_LEADER),
        ("fence", LOADING),
    ],
)
def test_who_does_not_lead_any_more_is_looked_up_again(question: str, error: int) -> None:
    with asking() as (answers, transactions):
        answers.errors = [error, error]
        QUESTIONS[question](transactions)
        assert answers.errors == []


@pytest.mark.parametrize(
    ("question", "error", "kind", "words"),
    [
        ("open_in", TOPIC_DENIED, NotAllowed, f"needs Read on topic '{TOPIC}'"),
        ("producer", ID_DENIED, NotAllowed, f"needs Describe on transactional id '{ID}'"),
        ("end", CLUSTER_DENIED, NotAllowed, "needs Alter or ClusterAction on the cluster"),
        ("end", INVALID_EPOCH, Fenced, "epoch"),
        ("fence", ID_DENIED, NotAllowed, f"needs Write on transactional id '{ID}'"),
    ],
)
def test_a_refusal_is_told_and_not_tried_again(question: str, error: int, kind: type[Exception], words: str) -> None:
    with asking() as (answers, transactions):
        answers.errors = [error, error]
        with pytest.raises(kind, match=words):
            QUESTIONS[question](transactions)
        assert answers.errors == [error]


@pytest.mark.parametrize(("question", "error"), [("end", COORDINATOR_FENCED), ("producer", NOT_FOUND)])
def test_what_does_not_pass_in_time_is_retriable(question: str, error: int) -> None:
    with asking(request_timeout_ms=1_000) as (answers, transactions):
        answers.errors = [error] * 1_000
        with pytest.raises(Retriable):
            QUESTIONS[question](transactions)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_broker_that_breaks_off_is_asked_again_in_time(question: str) -> None:
    with asking(request_timeout_ms=2_000) as (answers, transactions):
        apis = ("describe_producers", "describe_transactions", "write_txn_markers", "metadata", "init_producer_id")
        answers.instead = {api: [None] for api in apis}
        QUESTIONS[question](transactions)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_broker_of_an_older_version_is_said_to_be_one(question: str) -> None:
    with asking() as (answers, transactions):
        for key in (22, 27, 61, 65):
            del answers.versions[key]
        with pytest.raises(Unsupported):
            QUESTIONS[question](transactions)


def test_the_predecessor_is_fenced_as_soon_as_its_transaction_is_aborted() -> None:
    """librdkafka would look again half a second later."""
    with asking() as (answers, transactions):
        answers.errors = [CONCURRENT] * 5
        transactions.fence(ID, 60_000)
        assert answers.errors == []
        assert answers.broker is not None
        asked = [api for api, _, _ in answers.broker.asked]
        assert asked.count("init_producer_id") == 6
        assert asked.count("find_coordinator") == 1, "it isn't looked up anew for that"


def test_who_has_connected_beforehand_only_fences() -> None:
    with asking() as (answers, transactions):
        assert answers.broker is not None
        transactions.connect(ID)
        before = len(answers.broker.asked)
        transactions.fence(ID, 60_000)
        assert [api for api, _, _ in answers.broker.asked[before:]] == ["init_producer_id"]
        before = len(answers.broker.asked)
        transactions.fence(ID, 60_000)
        assert "find_coordinator" in [api for api, _, _ in answers.broker.asked[before:]], "it was used up"


def test_a_coordinator_that_has_moved_meanwhile_is_looked_up() -> None:
    with asking() as (answers, transactions):
        transactions.connect(ID)
        answers.errors = [NOT_COORDINATOR]
        transactions.fence(ID, 60_000)
        assert not answers.errors


def test_nobody_who_listens_is_unreachable() -> None:
    with FakeBroker(lambda *_: b"") as gone:
        port = gone.port
    flow = flow_of(port, request_timeout_ms=1_000)
    with pytest.raises(Unreachable):
        WireOpenTransactions(flow, flow.target, threading.Event()).open_in(AT)
