"""Where our copy goes on, however far back another replicator began again, and however few records are compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from replicator.config import Flow
from replicator.jobs.mm2 import sides as module
from replicator.jobs.mm2.sides import AdoptedPartition, SidesReader
from replicator.jobs.position_change import ComparedSides
from replicator.model.partition import LogEnds, Partition, Span
from replicator.planes.contract import RecordIdentity, WholeRecord
from replicator.state.decisions import NotDecided

pytestmark = pytest.mark.tier("default")

AT, TO = Partition("t", 0), Partition("a.t", 0)
GAP = 3
"""Each record's offset is so many more than the one before it."""


class Log:
    """One side, as a reader and as its cluster: records by their number at the source, and the time of each number."""

    def __init__(self, numbers: Sequence[int], times: Sequence[int], *, compacted: bool = False) -> None:
        self.records = {GAP * place: number for place, number in enumerate(numbers)}
        self.times, self.is_compacted, self.read = times, compacted, 0

    @property
    def ends(self) -> LogEnds:
        end = GAP * len(self.records)
        return LogEnds(start=0, stable=end, end=end, topic_id="id")

    def identities(self, _at: Partition, spans: Sequence[Span]) -> Iterator[Sequence[RecordIdentity]]:
        ((first, end),) = spans
        found = [(at, number) for at, number in self.records.items() if first <= at < end]
        self.read += len(found)
        yield [RecordIdentity(at, b"%d" % number, None, 1) for at, number in found]

    def record(self, _at: Partition, offset: int) -> WholeRecord | None:
        number = self.records.get(offset)
        return None if number is None else WholeRecord(None, b"", self.times[number], ())

    def offsets_at(self, partitions: Sequence[Partition], timestamp_ms: int) -> dict[Partition, int]:
        found = (at for at, number in self.records.items() if self.times[number] >= timestamp_ms)
        return dict.fromkeys(partitions, next(found, -1))

    def compacted(self, _topic: str) -> bool:
        return self.is_compacted

    def close(self) -> None:
        """Nothing to let go of."""


def adopted(source: Log, target: Log, compare: int) -> AdoptedPartition | None:
    """What is said of one partition without Kafka Connect's offsets."""

    class Clusters:
        source, target = "source", "target"

    logs = {"source": source, "target": target}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LogReader", lambda _flow, cluster, _asked: logs[cluster])
        reader = SidesReader(cast(Flow, Clusters), cast(Any, source), cast(Any, target), compare, trust=False)
        return reader.adopted(ComparedSides(AT, TO, source.ends, target.ends), None)


@example(records=3, restarts=[(0, 1), (0, 1), (2, 1), (0, 1)], compare=2, jitter=None)
@given(
    records=st.integers(1, 40),
    restarts=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), min_size=1, max_size=6),
    compare=st.integers(1, 5),
    jitter=st.one_of(st.none(), st.randoms(use_true_random=False)),
)
def test_nothing_that_was_copied_is_copied_again(
    records: int, restarts: list[tuple[int, int]], compare: int, jitter: Any
) -> None:
    """Each restart begins at or before the furthest record that was copied. Timestamps in no order at all may make it
    impossible to tell, and so may a restart that goes on behind records which stand before those that are compared;
    they never make it wrong."""
    copied: list[int] = []
    reached = 0
    for back, length in restarts:
        first = max(0, reached - back)
        copied += range(first, min(records, first + length))
        reached = max([reached, *(number + 1 for number in copied)])
    times = [10 * number if jitter is None else jitter.randrange(10 * records) for number in range(records)]
    try:
        found = adopted(Log(range(records), times), Log(copied, times), compare)
    except NotDecided:
        assert jitter is not None or any(after > before + 1 for before, after in pairwise(copied))
        return
    assert found is not None
    assert found.end == GAP * (reached - 1) + 1
    assert found.next_offset == (GAP * reached if reached < records else -1)


def test_a_copy_without_restarts_takes_no_more_reading() -> None:
    times = range(1_000)
    target = Log(range(900), times)
    found = adopted(Log(range(1_000), times), target, 10)
    assert found is not None
    assert found.end == GAP * 899 + 1
    assert target.read < 100


@pytest.mark.parametrize("compacted", [False, True])
def test_what_was_written_and_aborted_is_no_copy(compacted: bool) -> None:
    class Aborted(Log):
        @property
        def ends(self) -> LogEnds:
            return LogEnds(start=0, stable=5, end=5, topic_id="id")

    source, target = Log(range(3), range(3)), Aborted([], [], compacted=compacted)
    if compacted:  # its records may be gone
        with pytest.raises(NotDecided, match="no committed record any more"):
            adopted(source, target, 10)
    else:
        found = adopted(source, target, 10)
        assert found is not None
        assert (found.end, found.seam, found.last) == (0, None, None)


@pytest.mark.tier("default")
def test_equal_records_that_are_further_back_are_looked_for() -> None:
    """Killed behind `4 2 3`, and again behind the `4 2` that it copied once more: one record is compared, from whose
    time on the source has one `3` and one `4`."""
    source, times = [4, 2, 3, 3, 4], [0, 1, 3, 4, 2]
    with pytest.raises(NotDecided, match="equal records"):
        adopted(Log(source, times), Log([4, 2, 3, 4, 2], times), 1)


@pytest.mark.tier("default")
@given(
    source=st.lists(st.integers(0, 5), min_size=1, max_size=30),
    times=st.lists(st.integers(0, 30), min_size=6, max_size=6),
    restarts=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30)), min_size=1, max_size=4),
    compare=st.integers(1, 5),
)
def test_of_equal_records_none_is_lost(
    source: list[int], times: list[int], restarts: list[tuple[int, int]], compare: int
) -> None:
    """Whatever is decided: each has its copies at the end, and what MirrorMaker 2 has copied isn't copied again."""
    target, reached = list[int](), 0
    for back, length in restarts:
        first = max(0, reached - back)
        target += source[first : first + length]
        reached = max(reached, min(len(source), first + length))
    try:
        found = adopted(Log(source, times), Log(target, times), compare)
    except NotDecided:
        return
    assert found is not None
    place = -(-found.end // GAP)
    assert place >= reached, "copied again"
    assert not Counter(source) - Counter(target + source[place:]), "lost"
