"""What a lane's reader costs with thousands of topics: counted in passes over its partitions, not in seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, ItemsView
from unittest.mock import Mock

from replicator.kafka.fetch_size import FetchSize
from replicator.model.partition import Partition, Seek
from replicator.planes.batches.fetcher_terms import FetcherSettings
from replicator.planes.batches.part_read import PartRead, ToldBy
from replicator.planes.batches_io.budget import FetchBudget
from replicator.planes.batches_io.reader import LEADERS_AGE_S, ReaderSettings, SourceReader
from replicator.planes.contract import ReadPlan
from replicator.planes.fetch_watch import FetchWatch
from replicator.wire.fetch import FetchLimits
from replicator.wire.metadata_response import Metadata, TopicMetadata

TOPICS = 2_000
ID = b"0123456789abcdef"


class CountedParts(dict[Partition, PartRead]):
    passes = 0

    def items(self) -> ItemsView[Partition, PartRead]:  # type: ignore[override]
        self.passes += 1
        return super().items()


class Answering:
    """Brokers that aren't connected to, and that answer at once who leads: 1, since `epoch`."""

    def __init__(self) -> None:
        self.epoch = 5
        self.passes: list[int] = []
        self.parts = CountedParts()

    def link(self, node: int, purpose: str) -> Mock:
        return Mock(ready=False)

    def ask_topics(
        self, topics: Collection[str], answered: Callable[[Metadata, ToldBy], bool], lost: Callable[[str], None]
    ) -> None:
        leaders = {0: (0, 1, self.epoch)}
        found = [TopicMetadata(0, name, ID, 1, None, {}, leaders) for name in sorted(topics)]
        before = self.parts.passes
        answered(Metadata({}, found), ToldBy("a", frozenset("a")))
        self.passes.append(self.parts.passes - before)


def reader_of(brokers: Answering) -> SourceReader:
    settings = ReaderSettings(FetcherSettings("east"), FetchLimits(1 << 20, 500), "me", 1 << 20, 5.0)
    return SourceReader(settings, brokers, FetchBudget(1 << 20), FetchWatch("east", FetchSize()))  # type: ignore[arg-type]


def test_all_topics_that_a_broker_tells_of_are_taken_in_one_pass() -> None:
    brokers = Answering()
    reader = reader_of(brokers)
    reader.seek({Partition(f"t{number}", 0): ReadPlan(Seek(0, -1)) for number in range(TOPICS)})
    brokers.parts = reader._fetcher._parts = CountedParts(reader._fetcher._parts)
    reader.pump(time.monotonic())
    brokers.epoch, reader._refresh_s = 6, 0.0
    reader.pump(time.monotonic())
    assert {read.leader_epoch for read in brokers.parts.values()} == {6}
    assert brokers.passes == [1, 1]


def test_lanes_that_begin_together_dont_ask_together_who_leads() -> None:
    now_s = time.monotonic()
    first = [reader_of(Answering())._refresh_s - now_s for _ in range(20)]
    assert min(first) >= 0.0
    assert max(first) <= LEADERS_AGE_S + 1.0
    assert max(first) - min(first) > LEADERS_AGE_S / 10
