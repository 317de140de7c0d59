"""A range of one partition, read committed: bounded fetches, what retention removes meanwhile, what never comes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from replicator.model.errors import Incident, Retriable, Unsupported
from replicator.model.partition import Partition
from replicator.wire.committed_log import CommittedLog
from replicator.wire.holes import OffsetOutOfRange
from replicator.wire.partition_log import CommittedFetch
from tests.replicator.wire.logs import batch, old_message

pytestmark = pytest.mark.tier("default")

AT = Partition("t", 0)


class Log:
    """Batches by their offsets, one in each answer."""

    def __init__(self, spans: Sequence[tuple[int, int]], start: int = 0) -> None:
        self.content = [(first, last, batch(first, last)) for first, last in spans]
        self.begin, self.asked, self.silent = start, list[int](), 0

    def start(self) -> int:
        return self.begin

    def fetch_committed(self, offset: int, bytes_max: int) -> CommittedFetch:
        self.asked.append(offset)
        if offset < self.begin:
            raise OffsetOutOfRange
        if self.silent:
            self.silent -= 1
            return CommittedFetch(b"")
        return CommittedFetch(next((data for _, last, data in self.content if last >= offset), b""))


def read(log: Log, first: int, end: int, patience_s: float = 5.0) -> list[tuple[int, int]]:
    found = CommittedLog(AT, log, patience_s=patience_s).batches(first, end)
    return [(one.first_offset, one.last_offset) for one in found]


def test_the_batches_of_a_range_come_one_fetch_after_the_other_and_no_more() -> None:
    log = Log([(0, 4), (6, 9), (12, 20), (21, 30)])
    assert read(log, 7, 15) == [(6, 9), (12, 20)]
    assert log.asked == [7, 10]


def test_what_lies_behind_the_range_ends_it() -> None:
    log = Log([(0, 4), (40, 50)])
    assert read(log, 0, 30) == [(0, 4)]


def test_progress_is_told_up_to_the_end() -> None:
    told = list[int]()
    list(CommittedLog(AT, Log([(0, 4), (5, 50)]), patience_s=1.0).batches(0, 20, told.append))
    assert told == [5, 20]


def test_a_leader_that_shows_nothing_for_a_moment_is_asked_again() -> None:
    log = Log([(0, 4)])
    log.silent = 2
    assert read(log, 0, 5) == [(0, 4)]
    assert log.asked == [0, 0, 0]


def test_a_log_that_ends_before_it_should_is_no_end() -> None:
    with pytest.raises(Retriable, match="shows nothing at offset 5"):
        read(Log([(0, 4)]), 0, 9, patience_s=0.01)


def test_what_retention_removes_meanwhile_is_passed_over() -> None:
    log = Log([(0, 4), (5, 9), (10, 14)], start=10)
    assert read(log, 0, 15) == [(10, 14)]


def test_a_log_that_was_truncated_says_so() -> None:
    class Truncated(Log):
        def fetch_committed(self, offset: int, bytes_max: int) -> CommittedFetch:
            raise OffsetOutOfRange

    with pytest.raises(Retriable, match="ends before offset 9"):
        read(Truncated([]), 0, 9)


def test_a_corrupt_batch_is_named_with_its_offset() -> None:
    log = Log([(0, 4)])
    first, last, data = log.content[0]
    log.content[0] = first, last, data[:-1] + bytes([data[-1] ^ 1])
    with pytest.raises(Incident, match="batch_corrupt at t\\[0\\] offset 0"):
        read(log, 0, 5)


def test_old_formats_are_refused() -> None:
    log = Log([(0, 4)])
    log.content[0] = 0, 4, old_message(4, 1)
    with pytest.raises(Unsupported, match="before v2"):
        read(log, 0, 5)
