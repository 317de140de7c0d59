"""Fetch sessions (KIP-227), request by request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as E

from integration_tests.harness import clients, wire
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.wire import MILLISECOND, Wire

PARTITIONS = 3


class FetchSessionClient:
    """A topic, and a client that fetches it."""

    def __init__(self, connection: Wire, bootstrap: str, topic: str) -> None:
        self.wire, self.bootstrap, self.topic = connection, bootstrap, topic
        self.session_id, self.epoch = 0, 0

    def put(self, partition: int) -> None:
        """One record."""
        clients.put(clients.producer(self.bootstrap), self.topic, b"v", partition=partition)

    def __call__(
        self,
        offsets: dict[int, int] | None = None,
        forget: Sequence[int] = (),
        *,
        version: int = 12,
        epoch: int | None = None,
        session_id: int | None = None,
        wait_ms: int = 0,
    ) -> Any:
        """Fetch; `offsets` are the partitions that are named in the request."""
        partitions = [
            {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
            for index, offset in (offsets or {}).items()
        ]
        return self.wire(
            "fetch",
            version,
            max_wait=wait_ms * MILLISECOND,
            min_bytes=1,
            session_id=self.session_id if session_id is None else session_id,
            session_epoch=self.epoch if epoch is None else epoch,
            topics=[{"topic": self.topic, "partitions": partitions}] if partitions else [],
            forgotten_topics_data=[{"topic": self.topic, "partitions": tuple(forget)}] if forget else [],
        )

    def told(self, *args: Any, **options: Any) -> dict[int, tuple[E, int, bool]]:
        """Of each partition that the answer has: error, high watermark, whether there are records. The next epoch."""
        answer = self(*args, **options)
        assert answer.error_code is E.none
        assert answer.session_id == self.session_id or self.epoch == 0
        self.session_id = answer.session_id
        self.epoch += 1
        return {
            each.partition_index: (each.error_code, each.high_watermark, bool(each.records))
            for topic in answer.responses
            for each in topic.partitions
        }


@pytest.fixture
def session(target: BrokerHandle, unique: Callable[[str], str]) -> Iterator[FetchSessionClient]:
    topic = unique("session")
    clients.create_topic(target.bootstrap, topic, PARTITIONS)
    with wire.connected(target.bootstrap) as connection:
        yield FetchSessionClient(connection, target.bootstrap, topic)


def test_only_news_is_told(session: FetchSessionClient) -> None:
    session.put(1)
    nothing, one = (E.none, 0, False), (E.none, 1, True)
    assert session.told({0: 0, 1: 0, 2: 0}) == {0: nothing, 1: one, 2: nothing}
    assert session.session_id > 0
    assert session.told({1: 1}) == {}
    session.put(2)
    assert session.told(wait_ms=10_000) == {2: one}
    assert session.told() == {2: one}, "its offset has not moved"
    assert session.told({2: 1}) == {}
    clients.delete_records(session.bootstrap, session.topic, 1, 1)
    assert session.told() == {1: (E.none, 1, False)}, "the log start has moved"
    assert session.told() == {}


def test_partitions_come_and_go(session: FetchSessionClient) -> None:
    assert set(session.told({0: 0})) == {0}
    session.put(1)
    assert set(session.told({1: 0})) == {1}
    session.put(0)
    assert set(session.told({1: 1}, forget=[0])) == set()
    answer = session(forget=[1])
    assert (answer.error_code, answer.session_id, answer.responses) == (E.none, 0, ())
    assert session(epoch=session.epoch).error_code is E.fetch_session_id_not_found


def test_errors_are_told_each_time(session: FetchSessionClient) -> None:
    wrong = session.told({0: 9, 7: 0})
    assert {index: each[0] for index, each in wrong.items()} == {
        0: E.offset_out_of_range,
        7: E.unknown_topic_or_partition,
    }
    again = session.told()
    assert {index: each[0] for index, each in again.items()} == {
        0: E.offset_out_of_range,
        7: E.unknown_topic_or_partition,
    }
    assert session.told({0: 0}, forget=[7]) == {0: (E.none, 0, False)}
    assert session.told() == {}


def test_requests_out_of_turn(session: FetchSessionClient) -> None:
    session.told({0: 0})
    assert session(epoch=2).error_code is E.invalid_fetch_session_epoch
    assert session(epoch=1, session_id=session.session_id + 1).error_code is E.fetch_session_id_not_found
    assert session(epoch=1, version=13).error_code is E.fetch_session_topic_id_error
    assert session.told() == {}
    assert session(epoch=1).error_code is E.invalid_fetch_session_epoch


@pytest.mark.parametrize("last", [0, -1])
def test_a_whole_request_ends_the_session(session: FetchSessionClient, last: int) -> None:
    session.told({0: 0})
    answer = session({0: 0}, epoch=last)
    assert answer.error_code is E.none
    assert answer.session_id != session.session_id
    assert (answer.session_id > 0) is (last == 0)
    assert session(epoch=1).error_code is E.fetch_session_id_not_found


def test_a_session_is_its_ids_and_no_connections(session: FetchSessionClient) -> None:
    session.told({0: 0})
    session.put(0)
    with wire.connected(session.bootstrap) as other:
        session.wire = other
        assert session.told(wait_ms=10_000) == {0: (E.none, 1, True)}
