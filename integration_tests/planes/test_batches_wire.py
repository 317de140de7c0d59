"""The core of the batches plane over its codecs, in both transaction protocols: what it reads and writes on a broker is
what Kafka's own client reads there. One connection to each broker, one request at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.planes.conftest import make_flow
from replicator.model.errors import Incident, TopicMissing
from replicator.model.partition import Committed, Partition, Seek
from replicator.planes.batches.answer_classes import AnswerClass, TxnApi
from replicator.planes.batches.fetcher import BatchFetcher
from replicator.planes.batches.fetcher_terms import FetchedNews, FetcherSettings
from replicator.planes.batches.merge import BatchMerger, MergeLimits
from replicator.planes.batches.part_read import TopicLeaders
from replicator.planes.batches.phases import TxnPhase
from replicator.planes.batches.produce import ProduceAnswer
from replicator.planes.batches.rewrite import ProducerIdentity
from replicator.planes.batches.session import SendTxn, TransactionalSession, TxnEffect, TxnRequest
from replicator.planes.batches.txn_protocol import TxnProtocol, version_of
from replicator.planes.contract import ReadPlan
from replicator.wire import epoch_ends, fetch, metadata_response, produce, transaction_requests
from replicator.wire.access import access
from replicator.wire.any_broker import body_at
from replicator.wire.connection import Connection, address_of
from replicator.wire.fetch import FetchLimits
from replicator.wire.metadata_request import metadata_request
from replicator.wire.protocol import SPOKEN
from replicator.wire.transaction_requests import TransactionOf

pytestmark = pytest.mark.tier("full")

CLIENT, GROUP, PATIENCE_S, AGAIN_S = "test", "batches-wire", 40.0, 0.05


class Wire:
    """One connection, on which each request waits for its answer."""

    def __init__(self, bootstrap: str) -> None:
        flow = make_flow(bootstrap, bootstrap)
        until_s = time.monotonic() + PATIENCE_S
        self.connection = Connection(
            address_of(bootstrap), access(flow.source), CLIENT, deadline_s=until_s, response_bytes_max=1 << 28
        )

    def close(self) -> None:
        self.connection.close()

    def ask(self, request: bytes) -> bytes:
        """The response behind its correlation id."""
        until_s = time.monotonic() + PATIENCE_S
        answer = self.connection.receive(self.connection.send(request, until_s), until_s)
        assert answer is not None, "no answer"
        return answer


class Source(Wire):
    """A fetcher on a cluster with one broker."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.fetcher = BatchFetcher(FetcherSettings("east", part_bytes_max=20_000, patience_s=PATIENCE_S))

    def step(self) -> FetchedNews:
        """Ask what is to be asked now, and return what is new."""
        fetcher, connection, now_s = self.fetcher, self.connection, time.monotonic()
        for topic in fetcher.topics(now_s):
            version = connection.version("metadata", metadata_response.VERSIONS[1])
            data = self.ask(metadata_request(connection, CLIENT, [topic]))
            found = metadata_response.read(data, body_at(data), version, leaders=True).topics[0]
            fetcher.looked_up({topic: TopicLeaders(found.error, bytes(found.topic_id), found.leaders)}, now_s)
        for broker in fetcher.brokers(now_s):
            if questions := fetcher.next_check(broker, now_s):
                version = connection.version(epoch_ends.API)
                answers = epoch_ends.read(self.ask(epoch_ends.request(CLIENT, version, questions)), version)
                fetcher.checked(broker, answers, now_s)
            if (request := fetcher.next_fetch(broker, now_s)) is not None:
                version = connection.version(fetch.API)
                data = self.ask(fetch.request(CLIENT, version, request.ask, FetchLimits(50_000, 100)))
                fetcher.fetched(broker, request.number, fetch.read(data, body_at(data)), now_s)
        return fetcher.take()

    def read(self, until: Callable[[FetchedNews], bool]) -> FetchedNews:
        """Read until `until` says of what was read so far that it is enough."""
        whole, until_s = FetchedNews(), time.monotonic() + PATIENCE_S
        while not until(whole):
            assert time.monotonic() < until_s, whole
            news = self.step()
            for at, batches in news.selected.items():
                whole.selected.setdefault(at, []).extend(batches)
            whole.ends |= news.ends
            whole.failed |= news.failed
            wait_s = self.fetcher.wake_s(time.monotonic())
            time.sleep(0.0 if wait_s is None else min(AGAIN_S, max(0.0, wait_s - time.monotonic())))
        return whole


class Target(Wire):
    """A session on a cluster with one broker, which is leader and coordinator of everything."""

    def __init__(self, bootstrap: str, transactional_id: str, protocol: TxnProtocol) -> None:
        super().__init__(bootstrap)
        self.id, self.protocol, self.session = transactional_id, protocol, TransactionalSession(protocol)
        self.offsets: dict[Partition, Committed] = {}

    def version(self, api: TxnApi) -> int:
        name = api.name.lower()
        found = version_of(self.protocol, api, (SPOKEN[name][1], self.connection.version(name)))
        assert found is not None
        return found

    def written(self, request: TxnRequest) -> bytes:
        to, of = self.version(request.api), TransactionOf(self.id, *request.producer)
        match request.api:
            case TxnApi.INIT_PRODUCER_ID:
                return transaction_requests.init_producer_id(CLIENT, to, of, 60_000)
            case TxnApi.ADD_PARTITIONS_TO_TXN:
                return transaction_requests.add_partitions(CLIENT, to, of, request.partitions)
            case TxnApi.ADD_OFFSETS_TO_TXN:
                return transaction_requests.add_offsets(CLIENT, to, of, GROUP)
            case TxnApi.TXN_OFFSET_COMMIT:
                return transaction_requests.commit_offsets(CLIENT, to, of, GROUP, self.offsets)
            case _:
                return transaction_requests.end_transaction(CLIENT, to, of, commit=request.commit)

    def do(self, effects: list[TxnEffect]) -> None:
        """Send what is to be sent until nothing is; an answer that asks for patience is the only other effect."""
        until_s = time.monotonic() + PATIENCE_S
        while effects:
            effect = effects.pop(0)
            assert isinstance(effect, SendTxn), effect
            assert time.monotonic() < until_s, effect
            if effect.again is not AnswerClass.DONE:
                time.sleep(AGAIN_S)
            request = effect.request
            answer = self.ask(self.written(request))
            found = transaction_requests.read(request.api.name.lower(), self.version(request.api), answer)
            producer = ProducerIdentity(found.producer_id, found.epoch)
            effects += self.session.answered(request.number, found.code, found.by_partition, producer)

    def flush(self, leads: list[Partition]) -> None:
        """Write all that the session has."""
        until_s, session = time.monotonic() + PATIENCE_S, self.session
        while not session.flushed:
            assert time.monotonic() < until_s, session.failures
            request = session.next_produce(0, leads)
            assert request is not None
            pieces = produce.request(0, CLIENT, self.version(TxnApi.PRODUCE), self.id, 30_000, request.batches)
            found = produce.read(self.ask(b"".join(pieces[1:]))).parts
            answers = {
                at: ProduceAnswer(part.code, part.base_offset, part.append_time_ms) for at, part in found.items()
            }
            if session.produced(request.number, answers):
                time.sleep(AGAIN_S)


@pytest.fixture
def source_wire(source: BrokerHandle) -> Iterator[Source]:
    with closing(Source(source.bootstrap)) as found:
        yield found


def shown(messages: list[Any]) -> list[tuple[object, ...]]:
    return [(one.key(), one.value(), one.headers(), one.timestamp()) for one in messages]


def fill(bootstrap: str, topic: str, unique: Callable[[str], str]) -> None:
    """Records with and without transactions, of which some are aborted, in small and large batches."""
    writer = clients.transactional(bootstrap, unique("writer"), **{"compression.type": "lz4", "linger.ms": 20})
    for number in range(6):
        writer.begin_transaction()
        clients.put(writer, topic, *[b"%d" % number * 50] * 300, key=b"k", headers=[("h", b"1"), ("h", None)])
        writer.commit_transaction() if number % 3 else writer.abort_transaction()
    plain = clients.producer(bootstrap)
    for number in range(20):
        clients.put(plain, topic, b"small %d" % number, key=None)


@pytest.mark.parametrize("protocol", TxnProtocol)
def test_what_is_committed_on_the_source_is_committed_on_the_target_with_its_position(
    protocol: TxnProtocol, target: BrokerHandle, source: BrokerHandle, source_wire: Source, unique: Callable[[str], str]
) -> None:
    topic = unique("wire")
    copy, at, to = f"{topic}.copy", Partition(topic, 0), Partition(f"{topic}.copy", 0)
    clients.create_topic(source.bootstrap, topic)
    clients.create_topic(target.bootstrap, copy)
    fill(source.bootstrap, topic, unique)
    end = clients.stable_end(source.bootstrap, topic)
    source_wire.fetcher.seek({at: ReadPlan(Seek(0, -1))})
    found = source_wire.read(lambda whole: at in whole.ends and whole.ends[at].offset == end)
    assert not found.failed
    merger = BatchMerger(at, MergeLimits(batch_bytes_max=1_000_000))
    batches = [
        each for selected in found.selected[at] for each in merger.take(selected).batches
    ] + merger.drain().batches
    with closing(Target(target.bootstrap, unique("flow"), protocol)) as wire:
        wire.do(wire.session.start())
        for commit in (False, True, True):  # aborted, committed, and once more with nothing but a position
            for batch in batches:
                wire.do(wire.session.write(to, batch))
            wire.flush([to])
            assert clients.read(target.bootstrap, copy) == [] or not batches
            wire.offsets = {to: Committed(end, f"evidence {commit}")}
            wire.do(wire.session.store(1))
            wire.do(wire.session.commit() if commit else wire.session.abort())
            assert wire.session.phase is TxnPhase.READY
            batches = [] if commit else batches
    copied = clients.read(target.bootstrap, copy)
    assert len(copied) == 4 * 300 + 20
    assert shown(copied) == shown(clients.read(source.bootstrap, topic))
    position = clients.committed(target.bootstrap, GROUP, copy)
    assert (position.offset, position.metadata) == (end, "evidence True")


def test_records_that_were_deleted_and_a_topic_that_was_created_again_are_told(
    source: BrokerHandle, source_wire: Source, unique: Callable[[str], str]
) -> None:
    topic = unique("wire")
    at = Partition(topic, 0)
    clients.create_topic(source.bootstrap, topic)
    clients.put(clients.producer(source.bootstrap), topic, *[b"v"] * 10)
    clients.delete_records(source.bootstrap, topic, 0, 5)
    source_wire.fetcher.seek({at: ReadPlan(Seek(0, -1))})
    gone = source_wire.read(lambda whole: bool(whole.failed)).failed[at]
    assert isinstance(gone, Incident)
    assert (gone.name, gone.offset) == ("source_records_gone", 0)
    source_wire.fetcher.seek({at: ReadPlan(Seek(5, -1))})
    found = source_wire.read(lambda whole: at in whole.ends)
    assert found.ends[at].offset == 10
    assert found.ends[at].leader_epoch >= 0
    clients.recreate_topic(source.bootstrap, topic)
    clients.put(clients.producer(source.bootstrap), topic, *[b"new"] * 20)
    after = source_wire.read(lambda whole: bool(whole.failed))
    assert isinstance(after.failed[at], TopicMissing)
    assert not after.selected


def test_a_position_that_is_behind_what_its_epoch_holds_is_told_as_truncated(
    source: BrokerHandle, source_wire: Source, unique: Callable[[str], str]
) -> None:
    topic = unique("wire")
    at = Partition(topic, 0)
    clients.create_topic(source.bootstrap, topic)
    clients.put(clients.producer(source.bootstrap), topic, *[b"v"] * 10)
    source_wire.fetcher.seek({at: ReadPlan(Seek(0, -1))})
    epoch = source_wire.read(lambda whole: at in whole.ends).ends[at].leader_epoch
    source_wire.fetcher.seek({at: ReadPlan(Seek(12, epoch))})
    cut = source_wire.read(lambda whole: bool(whole.failed)).failed[at]
    assert isinstance(cut, Incident)
    assert (cut.name, cut.offset) == ("source_truncated", 12)
