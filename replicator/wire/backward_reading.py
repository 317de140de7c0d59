"""Reads the newest part of many partitions' logs, from the end backwards and bounded: in windows that grow, each read
forwards. Used by `inspect.coupled_topics`.

Leaders are asked at the same time; one that is dead or slow delays no other's partitions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode as E

from kafka_records.batch import CorruptBatch
from kafka_records.fetched import FetchedBatch, read_batches
from replicator.model.errors import ReplicatorError, Retriable
from replicator.model.partition import Partition
from replicator.wire.broker_questions import AskedOnce
from replicator.wire.committed_log import corrupt
from replicator.wire.connection import Address
from replicator.wire.partition_requests import fetch_fields
from replicator.wire.producer_questions import LedTopic, ProducerQuestions
from replicator.wire.protocol import Exchange, made

FETCH_BYTES, AT_ONCE = 512 * 1024, 8
"""Of one partition in one request; and partitions that one leader is asked for at the same time."""
FIRST_OFFSETS, TIMES_LARGER = 500, 4
_EARLIEST, _LATEST = -2, -1
_UNCOMMITTED, _CONSUMER = 0, -1


class BackwardPlan:
    """What is read next of one log. A window that is begun is read to its end, so that nothing is missing above
    `read_from`. Pure."""

    def __init__(self, start: int, end: int, bytes_max: int) -> None:
        self._start, self._end, self._bytes_max = start, end, bytes_max
        self._offsets, self._bytes = FIRST_OFFSETS, 0
        self.read_from = end
        """All from here on was read."""
        self.next_offset: int | None = None
        """To be fetched; None: nothing more."""
        self._window = end
        self._open()

    def _open(self) -> None:
        bytes_left, offsets_read = self._bytes_max - self._bytes, self._end - self.read_from
        if self.whole or bytes_left <= 0:
            self.next_offset = None
            return
        if offsets_read:
            self._offsets *= TIMES_LARGER
        if self._bytes:
            self._offsets = max(1, min(self._offsets, bytes_left * offsets_read // self._bytes))
        self._window = self.next_offset = max(self._start, self.read_from - self._offsets)

    def took(self, next_offset: int, size_bytes: int) -> None:
        """Note that so many bytes were fetched; the next ones begin there."""
        self._bytes += size_bytes
        if self.next_offset is None or next_offset <= self.next_offset or next_offset >= self.read_from:
            self.read_from = self._window  # behind the last batch nothing is left in this window
            self._open()
        else:
            self.next_offset = next_offset

    @property
    def whole(self) -> bool:
        """Whether all of the log was read."""
        return self.read_from <= self._start


class NotRead(NamedTuple):
    """What is missing after reading: why partitions could not be read; from which offset on others were, where that
    isn't all."""

    failed: dict[Partition, ReplicatorError]
    cut: dict[Partition, int]


class BackwardReading:
    """Of partitions of one cluster."""

    def __init__(self, questions: ProducerQuestions, topics: Mapping[str, LedTopic]) -> None:
        self._questions, self._topics = questions, topics
        self._plans: dict[Partition, BackwardPlan] = {}
        self._failed: dict[Partition, ReplicatorError] = {}

    def read(
        self, wanted: Collection[Partition], bytes_max: int, until_s: float
    ) -> Iterator[tuple[Partition, FetchedBatch]]:
        """Yield batches of these partitions, some of them more than once.

        Args:
            bytes_max: of each partition, about.
            until_s: monotonic; after that no more is asked.
        """
        leaders: dict[Address, list[Partition]] = {}
        for address, ats in self._questions.by_leader(self._topics, self._failed).items():
            leaders[address] = [at for at in ats if at in wanted]
        self._failed = {at: error for at, error in self._failed.items() if at in wanted}
        self._plan({address: ats for address, ats in leaders.items() if ats}, bytes_max)
        while time.monotonic() < until_s:
            asked = {address: self._next(ats) for address, ats in leaders.items()}
            asked = {address: ats for address, ats in asked.items() if ats}
            if not asked:
                return
            yield from self._fetch(asked)

    def missing(self) -> NotRead:
        """Return what could not be read."""
        return NotRead(
            self._failed,
            {at: it.read_from for at, it in self._plans.items() if not it.whole and at not in self._failed},
        )

    def _next(self, ats: Sequence[Partition]) -> list[Partition]:
        pending = (
            at for at in ats if at in self._plans and at not in self._failed and self._plans[at].next_offset is not None
        )
        return [at for at, _ in zip(pending, range(AT_ONCE), strict=False)]

    def _plan(self, leaders: Mapping[Address, Sequence[Partition]], bytes_max: int) -> None:
        asked = {
            address: [
                self._questions.asked("list_offsets", partial(offset_fields, ats, timestamp))
                for timestamp in (_EARLIEST, _LATEST)
            ]
            for address, ats in leaders.items()
        }
        for address, answers in self._questions.ask_each(asked):
            try:
                if isinstance(answers, ReplicatorError):
                    raise answers
                start, end = (self._offsets(one.read(data)) for one, data in zip(asked[address], answers, strict=True))
            except ReplicatorError as error:
                self._failed.update(dict.fromkeys(leaders[address], error))
                continue
            for at in leaders[address]:
                if at in start and at in end:
                    self._plans[at] = BackwardPlan(start[at], end[at], bytes_max)

    def _offsets(self, answer: Any) -> dict[Partition, int]:
        found: dict[Partition, int] = {}
        for topic in answer.topics:
            for each in topic.partitions:
                at = Partition(topic.name, each.partition_index)
                try:
                    self._questions.check(int(each.error_code), f"ask for offsets of {at}", _describing(at))
                except ReplicatorError as error:
                    self._failed[at] = error
                else:
                    found[at] = int(each.offset)
        return found

    def _fetch(self, leaders: Mapping[Address, Sequence[Partition]]) -> Iterator[tuple[Partition, FetchedBatch]]:
        asked = {address: [self._request(at) for at in ats] for address, ats in leaders.items()}
        for address, answers in self._questions.ask_each(asked):
            for number, at in enumerate(leaders[address]):
                try:
                    if isinstance(answers, ReplicatorError):
                        raise answers
                    batches = self._batches(at, asked[address][number].read(answers[number]))
                except ReplicatorError as error:
                    self._failed[at] = error
                    continue
                for batch in batches:
                    yield at, batch

    def _request(self, at: Partition) -> AskedOnce:
        offset = self._plans[at].next_offset
        assert offset is not None
        what = at, self._topics[at.topic].topic_id
        fields = partial(fetch_fields, what, -1, offset, FETCH_BYTES, _UNCOMMITTED)
        return self._questions.asked("fetch", fields)

    def _batches(self, at: Partition, answer: Any) -> list[FetchedBatch]:
        plan = self._plans[at]
        offset = plan.next_offset
        assert offset is not None
        doing, right = f"fetch {at} from offset {offset}", f"Read on topic {at.topic!r}"
        self._questions.check(int(getattr(answer, "error_code", 0)), doing, right)
        found = [each for topic in answer.responses for each in topic.partitions]
        if len(found) != 1:
            raise Retriable(f"cannot {doing}: its leader answers for {len(found)} partitions")
        if found[0].error_code == E.offset_out_of_range:  # retention has removed it meanwhile
            plan.took(offset, 0)
            return []
        self._questions.check(int(found[0].error_code), doing, right)
        data = bytes(found[0].records or b"")
        try:
            batches = list(read_batches(data))
        except CorruptBatch as error:
            raise corrupt(at, offset, error) from error
        plan.took(batches[-1].last_offset + 1 if batches else offset, len(data))
        return [batch for batch in batches if isinstance(batch, FetchedBatch)]


def _describing(at: Partition) -> str:
    return f"Describe on topic {at.topic!r}"


def offset_fields(
    ats: Sequence[Partition], timestamp: int, exchange: Exchange, epoch: Callable[[Partition], int] = lambda at: -1
) -> dict[str, Any]:
    """Make the request for the offset of one of the special timestamps in each of these. `epoch`: under which a
    partition's leader is asked; -1: any."""
    types = exchange.types
    by_topic: dict[str, list[Any]] = {}
    for at in ats:
        one = made(
            types.ListOffsetsPartition,
            partition_index=at.partition,
            current_leader_epoch=epoch(at),
            timestamp=timestamp,
        )
        by_topic.setdefault(at.topic, []).append(one)
    topics = tuple(made(types.ListOffsetsTopic, name=name, partitions=tuple(of)) for name, of in by_topic.items())
    return {
        "replica_id": _CONSUMER,
        "isolation_level": _UNCOMMITTED,
        "timeout": timedelta(seconds=1),
        "topics": topics,
    }
