"""Answers that count no more when they come: what they would have told is asked for anew."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from replicator.model.fetches import FetchAnswer, FetchedPart
from replicator.model.partition import Partition, Seek
from replicator.planes.batches import fetcher
from replicator.planes.batches.asked_broker import NumberedFetch
from replicator.planes.batches.committed import Selection
from replicator.planes.batches.fetcher import BatchFetcher
from replicator.planes.batches.fetcher_terms import FetcherSettings
from replicator.planes.batches.part_read import TopicLeaders
from replicator.planes.contract import ReadPlan

TOPIC_ID, A, B = b"1" * 16, Partition("t", 0), Partition("t", 1)
LEADER, NEARER = 1, 2
SESSIONS = {LEADER: 11, NEARER: 22}
LED = {"t": TopicLeaders(0, TOPIC_ID, {0: (0, LEADER, 5), 1: (0, LEADER, 5)})}


class Fetches:
    """Both partitions from offset 10 on, which one broker leads."""

    def __init__(self, *ats: Partition) -> None:
        self.fetcher, self.ats = BatchFetcher(FetcherSettings("c")), ats
        self.seek()
        self.fetcher.topics(0.0)
        self.fetcher.looked_up(LED, 0.0)

    def seek(self, offset: int = 10) -> None:
        self.fetcher.seek({at: ReadPlan(Seek(offset, -1)) for at in self.ats})

    def ask(self, broker: int, now_s: float) -> NumberedFetch:
        self.fetcher.brokers(now_s)
        asked = self.fetcher.next_fetch(broker, now_s)
        assert asked is not None
        return asked

    def answer(self, broker: int, asked: NumberedFetch, now_s: float, *parts: FetchedPart) -> None:
        self.fetcher.fetched(broker, asked.number, FetchAnswer(0, SESSIONS[broker], parts), now_s)

    def offsets(self, asked: NumberedFetch) -> list[int]:
        return [it.offset for _, it in asked.ask.parts]


def part(at: Partition, end: int, preferred: int = -1, records: bytes = b"") -> FetchedPart:
    return FetchedPart((TOPIC_ID, at.partition), 0, end, end, 0, preferred=preferred, records=memoryview(records))


def test_an_end_that_comes_after_the_partition_was_sought_again_is_asked_for_again() -> None:
    """A broker tells of a partition in a session only what is new, and its end isn't."""
    reader = Fetches(A)
    asked = reader.ask(LEADER, 0.1)
    reader.seek()
    reader.answer(LEADER, asked, 0.6, part(A, 10))
    again = reader.ask(LEADER, 0.7)
    assert (again.ask.session_epoch, reader.offsets(again)) == (0, [10])
    reader.answer(LEADER, again, 0.8, part(A, 10))
    assert reader.fetcher.take().ends == {A: Seek(10, -1)}


def test_an_end_that_comes_while_the_leader_is_looked_up_is_asked_for_again() -> None:
    reader = Fetches(A)
    asked = reader.ask(LEADER, 0.1)
    error = int(ErrorCode.leader_not_available)
    reader.fetcher.looked_up({"t": TopicLeaders(error, bytes(16), {})}, 0.2)
    reader.answer(LEADER, asked, 0.3, part(A, 10))
    reader.fetcher.looked_up(LED, 0.4)
    again = reader.ask(LEADER, 2.0)
    assert (again.ask.session_epoch, reader.offsets(again)) == (0, [10])


def test_an_end_is_asked_for_again_after_another_partition_of_the_topic_was_missing() -> None:
    """The topic's leaders are looked up again then: before the fetch that is under way is answered, with nothing."""
    reader = Fetches(A)
    reader.answer(LEADER, reader.ask(LEADER, 0.1), 0.1, part(A, 10))
    asked = reader.ask(LEADER, 0.2)
    only_a = {"t": LED["t"]._replace(leaders={A.partition: (0, LEADER, 5)})}
    reader.fetcher.seek({at: ReadPlan(Seek(10, -1)) for at in (A, B)})
    reader.fetcher.looked_up(only_a, 0.3)
    assert reader.fetcher.take().failed.keys() == {B}
    reader.seek()
    reader.fetcher.looked_up(only_a, 0.4)
    reader.answer(LEADER, asked, 0.5)
    again = reader.ask(LEADER, 0.6)
    assert (again.ask.session_id, again.ask.session_epoch, reader.offsets(again)) == (SESSIONS[LEADER], 0, [10])
    reader.answer(LEADER, again, 0.7, part(A, 10))
    assert reader.fetcher.take().ends == {A: Seek(10, -1)}
    assert not reader.fetcher.behind(0.7)
    assert reader.ask(LEADER, 0.8).ask.parts == ()


def test_an_end_is_asked_for_again_that_is_sought_from_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker has told of that end with the records before it, and has nothing new to tell."""
    monkeypatch.setattr(fetcher, "select", lambda at, records, *_: Selection(at.start + len(records)))
    reader = Fetches(A)
    reader.answer(LEADER, reader.ask(LEADER, 0.1), 0.1, part(A, 20, records=b"x" * 5))
    reader.seek(20)
    again = reader.ask(LEADER, 0.2)
    assert (again.ask.session_epoch, reader.offsets(again)) == (0, [20])


def test_a_leader_is_asked_for_what_comes_next_after_a_nearer_replica_has_answered_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time is over for which a nearer replica is read (KIP-392), and a request to it is still under way."""
    monkeypatch.setattr(fetcher, "select", lambda at, records, *_: Selection(at.start + len(records)))
    reader = Fetches(A, B)
    reader.answer(LEADER, reader.ask(LEADER, 0.1), 0.1, part(A, 1000, NEARER), part(B, 1000, NEARER))
    five = b"x" * 5
    reader.answer(NEARER, reader.ask(NEARER, 0.2), 0.3, part(A, 1000, records=five), part(B, 1000, records=five))
    late = reader.ask(NEARER, 0.4)
    asked = reader.ask(LEADER, 300.2)
    reader.answer(NEARER, late, 300.3, part(A, 1000, records=five), part(B, 1000, records=five))
    reader.answer(LEADER, asked, 300.4, part(A, 1000, NEARER), part(B, 1000, NEARER))
    assert reader.offsets(reader.ask(LEADER, 300.5)) == [20, 20]
