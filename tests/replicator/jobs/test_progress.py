"""Progress of a job is read beside it: no slot waits for an answer, and what can't be read is said."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

import pytest

from replicator.jobs import progress
from replicator.jobs.engine import PartitionProgress
from replicator.jobs.partition_state import PartitionOffsets
from replicator.jobs.progress import ProgressReader, progress_of
from replicator.jobs.range_copy import RangeDone
from replicator.jobs.ranges import Plan, Range
from replicator.model.checkpoint import Evidence
from replicator.model.errors import NotAllowed, Retriable
from replicator.model.partition import Partition

A, B = Partition("a", 0), Partition("b", 0)
THERE = {A: PartitionProgress(0, 10, 5, 5)}


class Told:
    """An observer that counts."""

    def __init__(self) -> None:
        self.moves: list[Mapping[Partition, PartitionProgress]] = []
        self.unknown: list[str] = []

    def planned(self, generation: int, ranges: object, progress: object) -> None: ...

    def moved(self, progress: Mapping[Partition, PartitionProgress]) -> None:
        self.moves.append(progress)

    def positions_unknown(self, reason: str) -> None:
        self.unknown.append(reason)

    def answered(self, cut: Range, done: RangeDone) -> None: ...


def tell_until_moved(reader: ProgressReader, told: Told) -> None:
    deadline = time.monotonic() + 5
    while not told.moves:
        reader.tell(told)
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_nobody_waits_for_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "POSITIONS_READ_S", 0.0)
    asked, answer, told, reads = threading.Event(), threading.Event(), Told(), list[int]()

    def read() -> Mapping[Partition, PartitionProgress]:
        reads.append(1)
        asked.set()
        assert answer.wait(30)
        return THERE

    with ProgressReader(read) as reader:
        for _ in range(5):
            reader.tell(told)  # returns at once, and asks no second time meanwhile
        assert asked.wait(30)
        assert (told.moves, len(reads)) == ([], 1)
        answer.set()
        tell_until_moved(reader, told)
    assert told.moves[0] == THERE


def test_what_cannot_be_read_is_said_and_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "POSITIONS_READ_S", 0.0)
    told, errors = Told(), [Retriable("loading")]

    def read() -> Mapping[Partition, PartitionProgress]:
        if errors:
            raise errors.pop()
        return THERE

    with ProgressReader(read) as reader:
        tell_until_moved(reader, told)
    assert told.unknown == ["loading"]


def test_a_right_that_is_missing_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "POSITIONS_READ_S", 0.0)

    def read() -> Mapping[Partition, PartitionProgress]:
        raise NotAllowed("Read on the group")

    with ProgressReader(read) as reader, pytest.raises(NotAllowed):
        tell_until_moved(reader, Told())


def test_it_is_never_less_than_nothing() -> None:
    """A position past the end that was asked for; evidence that can't be read any more."""
    counted = Evidence(
        generation=1,
        owner="me",
        source_topic="a",
        source_cluster="west",
        source_topic_id="",
        target_topic_id="",
        count=7,
    )
    before = {A: PartitionOffsets(0, 900, 800, counted), B: PartitionOffsets(0, 10)}
    plan = Plan([], {A: (800, 500), B: (0, 10)}, {})
    assert progress_of(plan, before, {**before, A: PartitionOffsets(0, 900, 850)}) == {
        A: PartitionProgress(800, 800, 850, 0),
        B: PartitionProgress(0, 10, 0, 0),
    }
