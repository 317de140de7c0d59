"""The coordinators' log is read on from where it was read to: all of it once, and what is gone is said."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from crc32c import crc32c

from embedded_broker.state import transaction_log
from embedded_broker.state.transactions import Transaction, TxnState
from kafka_records.batch import stamp
from kafka_records.records import encode
from replicator.config import Cluster, Properties
from replicator.model.errors import NotAllowed, Retriable, TopicMissing
from replicator.wire import transaction_log_tail
from replicator.wire.producer_questions import ProducerQuestions
from replicator.wire.transaction_log_tail import LogCut, TransactionLogTail
from tests.replicator.wire.fake_broker import TOPIC, Answer, FakeBroker, Leader

pytestmark = pytest.mark.tier("default")

OUT_OF_RANGE, DENIED = 1, 29


class Log(Leader):
    """A log of one-record batches; `gone`: offsets that compaction has removed, `start`: where it begins; `made`:
    the last batch, by its first offset."""

    def __init__(self, records: int) -> None:
        super().__init__()
        self.records_there = records
        self.gone, self.start, self.code = set[int](), 0, 0
        self.made = dict[int, bytes]()

    def answer_list_offsets(self, request: Any) -> Answer:
        return self.listed(offset=self.records_there)

    def answer_fetch(self, request: Any) -> Answer:
        offset = request.topics[0].partitions[0].fetch_offset
        if offset < self.start:
            return self.fetched(error_code=OUT_OF_RANGE)
        there = [it for it in range(offset, self.records_there) if it not in self.gone]
        batches = [batch(it) for it in there[:2]]
        for first, made in self.made.items():
            batches = [batch(it) for it in range(offset, first)] + [made]
        return self.fetched(records=b"".join(batches), error_code=self.code, high_watermark=self.records_there)


def batch(*offsets: int, last: int | None = None) -> bytes:
    """`last`: an offset behind these of which compaction has removed the record."""
    data = encode([record(it) for it in offsets], 3)
    if last is not None:
        struct.pack_into(">i", data, 23, last - offsets[0])
        struct.pack_into(">I", data, 17, crc32c(data[21:]))
    stamp(data, offsets[0], 5)
    return bytes(data)


def record(offset: int) -> tuple[bytes, bytes]:
    made = Transaction(
        transactional_id=f"id-{offset}", producer_id=offset, epoch=1, timeout_ms=9, state=TxnState.ONGOING,
        partitions=frozenset({("a", 0)}), start_ms=3, update_ms=3,
    )  # fmt: skip
    return transaction_log.encode_key(made.transactional_id), transaction_log.encode_transaction(made)


@contextmanager
def reading(log: Log, monkeypatch: pytest.MonkeyPatch) -> Iterator[TransactionLogTail]:
    monkeypatch.setattr(transaction_log_tail, "TRANSACTIONS_TOPIC", TOPIC)
    with FakeBroker(log) as broker:
        cluster = Cluster(name="east", properties=Properties({"bootstrap.servers": f"127.0.0.1:{broker.port}"}))
        with closing(ProducerQuestions(cluster, "test")) as questions:
            log.broker = broker
            yield TransactionLogTail(questions)


def ids(tail: TransactionLogTail) -> list[int]:
    found = tail.read()
    assert found.to_end
    return [it.producer_id for it in found.records]


def test_it_begins_at_the_end_and_reads_each_record_once(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(3)
    with reading(log, monkeypatch) as tail:
        assert ids(tail) == []
        log.records_there = 10
        assert ids(tail) == [3, 4, 5, 6, 7, 8, 9]
        assert ids(tail) == []
        tail.offsets = {}
        assert ids(tail) == list(range(10)), "of a partition that wasn't there all is read"


@pytest.mark.parametrize("gone", [{0}, {1}, {4, 5}, {5}], ids=str)
def test_a_gap_that_compaction_has_left_cuts_the_log_though_its_start_is_as_it_was(
    gone: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(6)
    log.gone = gone
    with reading(log, monkeypatch) as tail:
        tail.offsets = {0: 0}
        with pytest.raises(LogCut):
            tail.read()
        assert tail.offsets == {0: 0}


def test_a_batch_without_some_of_its_records_cuts_the_log_and_a_whole_one_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log(6)
    with reading(log, monkeypatch) as tail:
        log.made = {3: batch(3, last=5)}
        tail.offsets = {0: 0}
        with pytest.raises(LogCut, match="1 records at offsets 3 to 5"):
            tail.read()
        log.made = {3: batch(3, 4, 5)}
        assert ids(tail) == [0, 1, 2, 3, 4, 5]
        tail.offsets = {0: 4}
        assert ids(tail) == [3, 4, 5], "from the middle of a batch"


def test_what_is_left_when_time_is_over_is_read_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_log_tail, "READ_S_MAX", -1.0)
    with reading(Log(6), monkeypatch) as tail:
        tail.offsets = {0: 0}
        assert tail.read() == ([], False)
        assert tail.offsets == {0: 0}


def test_a_log_that_begins_later_is_cut_and_one_that_may_not_be_read_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log(6)
    log.start = 2
    with reading(log, monkeypatch) as tail:
        tail.offsets = {0: 0}
        with pytest.raises(LogCut):
            tail.read()
        tail.offsets, log.code = {0: 3}, DENIED
        with pytest.raises(NotAllowed, match="Read on topic"):
            tail.read()
        assert tail.offsets == {0: 3}
        log.code = 0
        assert ids(tail) == [3, 4, 5]


FENCED, UNKNOWN_EPOCH = 74, 75


class Member(Log):
    """One of two: names as the leader itself, since `epoch`, and answers, as Kafka does, only whoever knows that it
    leads since then."""

    def __init__(self, number: int, epoch: int, records: int, cluster: list[FakeBroker]) -> None:
        super().__init__(records)
        self.number, self.epoch, self.cluster = number, epoch, cluster
        self.names = number, epoch

    def answer_metadata(self, request: Any) -> Answer:
        leader, epoch = self.names
        known = [{"node_id": n, "host": "127.0.0.1", "port": each.port} for n, each in enumerate(self.cluster)]
        return {**self.metadata(leader_id=leader, leader_epoch=epoch), "brokers": known}

    def _refused(self, asked: int) -> int:
        return 0 if asked in (-1, self.epoch) else FENCED if asked < self.epoch else UNKNOWN_EPOCH

    def answer_list_offsets(self, request: Any) -> Answer:
        code = self._refused(request.topics[0].partitions[0].current_leader_epoch)
        return self.listed(offset=-1 if code else self.records_there, error_code=code)

    def answer_fetch(self, request: Any) -> Answer:
        if code := self._refused(request.topics[0].partitions[0].current_leader_epoch):
            return self.fetched(error_code=code)
        return super().answer_fetch(request)


@contextmanager
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Member, Member, TransactionLogTail]]:
    """The first is asked first, and leads since epoch 5; the second will since epoch 6."""
    monkeypatch.setattr(transaction_log_tail, "TRANSACTIONS_TOPIC", TOPIC)
    cluster: list[FakeBroker] = []
    old, new = Member(0, 5, 3, cluster), Member(1, 6, 10, cluster)
    with FakeBroker(old) as first, FakeBroker(new) as second:
        cluster += [first, second]
        east = Cluster(name="east", properties=Properties({"bootstrap.servers": f"127.0.0.1:{first.port}"}))
        with closing(ProducerQuestions(east, "test")) as questions:
            yield old, new, TransactionLogTail(questions)


def test_a_leader_that_was_deposed_is_left_though_it_answers_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_log_tail, "LEADERS_S", 0.0)
    with two(monkeypatch) as (old, _, tail):
        assert ids(tail) == []
        old.names = 1, 6  # it knows, but leads on
        assert ids(tail) == [3, 4, 5, 6, 7, 8, 9]


def test_a_broker_that_names_an_old_leader_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_log_tail, "LEADERS_S", 0.0)
    with two(monkeypatch) as (old, new, tail):
        old.names = 1, 6
        assert ids(tail) == []
        old.names, new.records_there = (0, 5), 12
        with pytest.raises(Retriable, match="leader epoch 5 is told, but 6 was before"):
            tail.read()
        assert tail.offsets == {0: 10}
        assert ids(tail) == [10, 11], "of another broker"


@pytest.mark.parametrize(("names", "code"), [((0, 6), "FENCED_LEADER_EPOCH"), ((1, 7), "UNKNOWN_LEADER_EPOCH")])
def test_a_leader_that_knows_of_another_epoch_has_it_looked_up_elsewhere(
    names: tuple[int, int], code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with two(monkeypatch) as (old, new, tail):
        old.names, old.epoch = names, 7
        tail.offsets = {0: 3}
        with pytest.raises(Retriable, match=code):
            tail.read()
        assert tail.offsets == {0: 3}
        new.names, new.epoch = (1, 8), 8
        assert ids(tail) == [3, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_broker_that_does_not_know_the_topic_does_not_make_it_new(
    monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    """As one that has just started; all of it would be read again."""
    monkeypatch.setattr(transaction_log_tail, "LEADERS_S", 0.0)
    with reading(Log(3), monkeypatch) as tail:
        if restarted:
            tail.offsets = {0: 3}  # as it was noted
        else:
            assert ids(tail) == []
        monkeypatch.setattr(tail._questions, "topics", lambda names: {TOPIC: TopicMissing("it isn't there")})
        with pytest.raises(Retriable, match="was there"):
            tail.read()
        assert tail.offsets == {0: 3}
