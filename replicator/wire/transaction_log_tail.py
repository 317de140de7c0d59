"""Reads `__transaction_state` on from where it was read to, again and again, over connections that are kept. Used by
`group_sync.transaction_looks`.

Its records are small, three or more for each transaction, and nothing of what producers have written is read for them.

A leader of before that is cut off from the controllers answers for its own log for ever, and has nothing new. So it is
asked again and again who leads, and leaders are asked under the newest epoch that was told: an old one refuses that.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode as E

from kafka_records.batch import CorruptBatch
from kafka_records.fetched import FetchedBatch, read_batches
from kafka_records.records import decode
from replicator.coupling.evidence import TRANSACTIONS_TOPIC
from replicator.coupling.source_transactions import LoggedTransaction
from replicator.model.errors import ReplicatorError, Retriable, TopicMissing, Unreachable
from replicator.model.newest_epochs import NewestEpochs, old_leader
from replicator.model.partition import Partition
from replicator.wire.backward_reading import offset_fields
from replicator.wire.committed_log import corrupt
from replicator.wire.connection import Address
from replicator.wire.coordinator_logs import logged_of
from replicator.wire.partition_requests import fetch_fields
from replicator.wire.producer_questions import LedTopic, ProducerQuestions
from replicator.wire.response_limits import BadResponse

FETCH_BYTES, BATCH_BYTES_MAX = 1024 * 1024, 16 * 1024 * 1024
READ_S_MAX = 2.0
"""In one call: after a long time without a reader the rest is read by the next ones."""
LEADERS_S = 5.0
"""After which it is asked anew who leads."""
_LATEST, _UNCOMMITTED = -1, 0


class LogPart(NamedTuple):
    """What was read. `to_end`: up to the ends that the log had when it was asked for."""

    records: list[LoggedTransaction]
    to_end: bool


class LogCut(Exception):
    """Some of the log is gone that was not read: compaction or retention has overtaken the reader.

    Kafka's cleaner leaves the log start as it is, so what it has removed is missing offsets, between batches or in one.
    """


class TransactionLogTail:
    """Of one cluster. Used by one thread. Raises ReplicatorError; what was read by then is read again."""

    def __init__(self, questions: ProducerQuestions) -> None:
        self._questions = questions
        self._topic: LedTopic | None = None
        self._topic_until_s = 0.0  # monotonic: when it is asked for anew
        self._epochs = NewestEpochs()
        self._there = False  # the topic, at some time
        self.offsets: dict[int, int] | None = None
        """Up to where each partition was read, by number; None: nothing is to be read of what there is now."""

    def read(self) -> LogPart:
        """Read on up to the ends that the log has now, if there is time. Raises LogCut."""
        try:
            return self._read()
        except ReplicatorError as error:
            self._topic = None  # leaders may have moved
            if isinstance(error, Retriable | Unreachable):
                self._questions.ask_another()  # who has named them may name leaders of before for ever
            raise

    def _read(self) -> LogPart:
        leaders = self._leaders()
        if leaders is None:  # no transaction was ever begun there
            self.offsets = {}
            return LogPart([], to_end=True)
        ends = self._ends(leaders)
        if self.offsets is None:
            self.offsets = ends
            return LogPart([], to_end=True)
        read, found = dict(self.offsets), list[LoggedTransaction]()
        until_s = time.monotonic() + READ_S_MAX
        while left := _left(leaders, read, ends):
            if time.monotonic() > until_s:
                break
            for at, batch in self._fetch(left, read, ends):
                found += self._decoded(at, batch)
        self.offsets = read
        return LogPart(found, to_end=not left)

    def _leaders(self) -> Mapping[Address, Sequence[Partition]] | None:
        if self._topic is None or time.monotonic() >= self._topic_until_s:
            self._topic = self._led_topic()
            self._topic_until_s = time.monotonic() + LEADERS_S
            if self._topic is None:
                return None
        failed: dict[Partition, ReplicatorError] = {}
        leaders = self._questions.by_leader({TRANSACTIONS_TOPIC: self._topic}, failed)
        for error in failed.values():
            raise error
        return leaders

    def _led_topic(self) -> LedTopic | None:
        """Ask who leads the topic; None: there is none yet. Raises Retriable where a broker has answered that knows
        less than another did."""
        topic = self._questions.topics({TRANSACTIONS_TOPIC})[TRANSACTIONS_TOPIC]
        if isinstance(topic, TopicMissing):
            if self._there or self.offsets:
                raise Retriable(f"a broker doesn't know topic {TRANSACTIONS_TOPIC}, which was there before")
            return None
        if isinstance(topic, ReplicatorError):
            raise topic
        self._there = True
        self._epochs.topic(TRANSACTIONS_TOPIC, topic.topic_id.bytes)
        for number, epoch in topic.epochs.items():
            at = Partition(TRANSACTIONS_TOPIC, number)
            if not self._epochs.take(at, epoch):
                raise Retriable(old_leader(at, epoch, self._epochs.newest(at)))
        return topic

    def _ends(self, leaders: Mapping[Address, Sequence[Partition]]) -> dict[int, int]:
        newest = self._epochs.newest
        asked = {
            address: [self._questions.asked("list_offsets", partial(offset_fields, ats, _LATEST, epoch=newest))]
            for address, ats in leaders.items()
        }
        ends: dict[int, int] = {}
        for address, answers in self._questions.ask_each(asked):
            if isinstance(answers, ReplicatorError):
                raise answers
            answer = asked[address][0].read(answers[0])
            for each in (each for topic in answer.topics for each in topic.partitions):
                self._check(int(each.error_code), "ask for the end")
                ends[each.partition_index] = int(each.offset)
        missing = {at.partition for ats in leaders.values() for at in ats} - ends.keys()
        if missing:
            raise Retriable(f"the leader of {TRANSACTIONS_TOPIC}-{min(missing)} doesn't tell where it ends")
        return ends

    def _fetch(
        self, leaders: Mapping[Address, Sequence[Partition]], read: dict[int, int], ends: Mapping[int, int]
    ) -> Iterator[tuple[Partition, FetchedBatch]]:
        assert self._topic is not None
        asked = {
            address: [
                self._questions.asked(
                    "fetch",
                    partial(
                        fetch_fields, (at, self._topic.topic_id), self._epochs.newest(at), read.get(at.partition, 0),
                        FETCH_BYTES, _UNCOMMITTED,
                    ),
                )
                for at in ats
            ]
            for address, ats in leaders.items()
        }  # fmt: skip
        for address, answers in self._questions.ask_each(asked):
            if isinstance(answers, ReplicatorError):
                raise answers
            for at, one, data in zip(leaders[address], asked[address], answers, strict=True):
                batches, high_watermark = self._batches(at, one.read(data), read.get(at.partition, 0))
                if not batches and high_watermark >= ends[at.partition]:
                    raise _gone(at, read.get(at.partition, 0))
                for batch in batches:
                    _check_whole(at, batch, read.get(at.partition, 0))
                    read[at.partition] = batch.last_offset + 1
                    yield at, batch

    def _batches(self, at: Partition, answer: Any, offset: int) -> tuple[list[FetchedBatch], int]:
        self._check(int(getattr(answer, "error_code", 0)), "read")
        found = [each for topic in answer.responses for each in topic.partitions]
        if len(found) != 1:
            raise Retriable(f"the leader of {at} answers for {len(found)} partitions")
        if found[0].error_code == E.offset_out_of_range:
            raise _gone(at, offset)
        self._check(int(found[0].error_code), "read")
        try:
            batches = list(read_batches(bytes(found[0].records or b"")))
        except CorruptBatch as error:
            raise corrupt(at, offset, error) from error
        return [batch for batch in batches if isinstance(batch, FetchedBatch)], int(found[0].high_watermark)

    def _decoded(self, at: Partition, batch: FetchedBatch) -> Iterator[LoggedTransaction]:
        if batch.header.is_control:
            return
        try:
            for record in decode(batch.data, BATCH_BYTES_MAX):
                found = logged_of(record.key, record.value)
                if found is not None:
                    yield found
        except CorruptBatch as error:
            raise corrupt(at, batch.first_offset, error) from error
        except BadResponse as error:
            raise Unreachable(f"{at} at offset {batch.first_offset}: {error}") from error

    def _check(self, code: int, doing: str) -> None:
        self._questions.check(code, f"{doing} {TRANSACTIONS_TOPIC}", f"Read on topic {TRANSACTIONS_TOPIC!r}")


def _gone(at: Partition, offset: int) -> LogCut:
    return LogCut(f"{at} has nothing at offset {offset} any more")


def _check_whole(at: Partition, batch: FetchedBatch, offset: int) -> None:
    """Raise LogCut where an offset has no record from `offset` on up to the batch's end."""
    header = batch.header
    if batch.first_offset > offset:
        raise _gone(at, offset)
    if header.record_count != header.last_offset_delta + 1:
        raise LogCut(f"{at} has {header.record_count} records at offsets {batch.first_offset} to {batch.last_offset}")


def _left(
    leaders: Mapping[Address, Sequence[Partition]], read: Mapping[int, int], ends: Mapping[int, int]
) -> dict[Address, list[Partition]]:
    """Return the partitions that aren't read to their ends, by leader."""
    left = {
        address: [at for at in ats if read.get(at.partition, 0) < ends[at.partition]]
        for address, ats in leaders.items()
    }
    return {address: ats for address, ats in left.items() if ats}
