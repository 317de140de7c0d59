"""Reads topics by assignment: whole small ones, the last records of partitions, single offsets; and asks for offsets
at both ends of partitions.

Used by `kafka.clusters`, `state`, `flow`, `jobs`, `inspect` and `spark`. All waits are bounded.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from replicator.config import Cluster, Flow
from replicator.kafka import failures, metadata, properties
from replicator.kafka.offset_questions import EARLIEST, LATEST, STABLE, ListedOffset, ListedOffsets, Wanted
from replicator.kafka.topic_questions import TopicInfo, TopicQuestions, raised, within
from replicator.model.errors import ReplicatorError, Retriable, TopicMissing, Unreachable
from replicator.model.partition import EndRecords, Partition

KeyAndValue = tuple[bytes | None, bytes | None]
LogBounds = tuple[int, int]
"""Log start, and high watermark or last stable offset."""
BoundsByPartition = dict[Partition, LogBounds | ReplicatorError]
_LATE = Retriable | Unreachable
Polled = Callable[[Collection[Partition], float], Iterator[tuple[Partition, Message, KafkaError | None]]]
"""Polls for partitions, a collection that may shrink meanwhile, until a time on the monotonic clock."""
T = TypeVar("T")
LOOK_S = 1.0
"""Each time so long is over, it is asked whether what is being read is still there."""
LEARNED_S = 10.0
"""So long a consumer isn't told of a topic again."""


class TopicReader:
    """Consumers on one cluster, opened on first use, that read what is assigned; `topics` is asked for the rest.

    Raises, in every method: NotAllowed, Unreachable, TopicMissing, Retriable, or Incident for a refusal of another
    kind.
    """

    def __init__(self, flow: Flow, cluster: Cluster, topics: TopicQuestions) -> None:
        """`cluster` is one of the flow's two. `topics` asks it for topics and offsets, and is closed by its owner: a
        consumer would ask one broker for them, and wait for it if that one is frozen."""
        self._flow, self._cluster, self._topics = flow, cluster, topics
        self._timeout_s = flow.limits.request_timeout_ms / 1000
        self._patience_s = (flow.limits.request_timeout_ms + flow.limits.transaction_timeout_ms) / 1000
        self._open, self._open_lock = dict[bool, Consumer](), threading.Lock()
        self._learned_s: dict[tuple[bool, str], float] = {}  # when a consumer was told of a topic, see `metadata`

    def _consumer(self, *, committed: bool) -> Consumer:
        with self._open_lock:
            if committed not in self._open:
                settings = {**properties.reader(self._cluster, self._flow, committed=committed), **properties.SILENT}
                with failures.making(self._cluster.name):
                    self._open[committed] = Consumer(settings)  # errors come with what is asked
            return self._open[committed]

    def connect(self, topic: str, *, committed: bool) -> None:
        """Connect before the first question, see `metadata.connect`. Several topics may be asked for at the same
        time, each from a thread of its own."""
        if metadata.connect(self._consumer(committed=committed), topic):
            self._learned_s[committed, topic] = time.monotonic()

    def _learn(self, topics: Collection[str], *, committed: bool) -> None:
        """Tell a consumer of topics that it was not told of lately: later it finds out by itself what has changed."""
        now_s, consumer = time.monotonic(), self._consumer(committed=committed)
        unknown = {it for it in topics if now_s >= self._learned_s.get((committed, it), -LEARNED_S) + LEARNED_S}
        for name, found in metadata.learn(consumer, unknown).items():
            if not isinstance(found, KafkaError):
                self._learned_s[committed, name] = now_s

    def names(self) -> frozenset[str]:
        """Return all topics that the user may see."""
        return raised(within(self._topics.names(), self._timeout_s))

    def partition_counts(self, topics: Collection[str]) -> dict[str, int | ReplicatorError]:
        """Count the partitions of each topic; 0 where there is no such topic. A topic's error is its value.

        They are asked for by name: from a list of all topics the broker leaves out those that the user may not see.
        """
        found = within(self._topics.describe(topics), self._timeout_s)
        return {name: _count(found[name]) for name in topics}

    def partition_count(self, topic: str) -> int:
        """Count the partitions of one topic, as `partition_counts`, and raise its error."""
        return raised(self.partition_counts([topic])[topic])

    def bounds(self, partitions: Collection[Partition], end: Wanted = LATEST) -> BoundsByPartition:
        """Return log start and `end` of each, asked for at the same time: open transactions are included, unless that
        is the last stable offset. A partition's error is its value."""
        starts, ends = self._offsets(partitions, EARLIEST, end)
        return {at: _both(starts[at], ends[at]) for at in partitions}

    def _bounds_unless_gone(
        self, partitions: Collection[Partition], end: Wanted, give_up_s: float
    ) -> BoundsByPartition:
        """Return what `bounds` does. A partition that the cluster says it doesn't have isn't waited for."""
        asked = self._topics.list_offsets(partitions, (EARLIEST, end))
        starts, ends = within(asked, max(0.0, give_up_s - time.monotonic()))
        found = {at: _both(starts[at], ends[at]) for at in partitions}
        late = [at for at, it in found.items() if isinstance(it, _LATE) and not isinstance(it, TopicMissing)]
        if late and time.monotonic() < give_up_s:
            found |= self.bounds(late, end)
        return found

    def _ends_lost(
        self, partitions: Collection[Partition], bounds: Mapping[Partition, LogBounds], give_up_s: float
    ) -> dict[Partition, ReplicatorError]:
        """Say which partitions will never be read to the end: the cluster doesn't have them any more, or has others.

        librdkafka waits for a topic that was deleted as for one whose leader moves.
        """
        limit_s = min(self._timeout_s, give_up_s - time.monotonic())
        (ends,) = within(self._topics.list_offsets(list(partitions), (LATEST,)), limit_s)
        errors: dict[Partition, ReplicatorError] = {}
        for at, end in ends.items():
            if isinstance(end, TopicMissing):
                errors[at] = end
            elif isinstance(end, ListedOffset) and end.offset < bounds[at][1]:
                why = f"{at} ends at {end.offset} now, and not at {bounds[at][1]}: it was cut, or made anew"
                errors[at] = Retriable(f"cluster {self._cluster.name!r}: {why}")
        return errors

    def at_time(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, int]:
        """Find the first offset at or after `timestamp_ms`; -1 where there is none."""
        (found,) = self._offsets(list(partitions), Wanted(timestamp_ms, stable=True))
        return {at: raised(it).offset for at, it in found.items()}

    def _offsets(self, partitions: Collection[Partition], *wanted: Wanted) -> Sequence[ListedOffsets]:
        return within(self._topics.list_offsets(partitions, wanted, patient=True), self._timeout_s)

    def committed_at_time(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, int]:
        """Return the offset of the first *committed* record at or after `timestamp_ms`; -1 where there is none.

        The broker's answer may be an aborted record. Those a copy does not have, so two sides that hold the same
        records would be cut at different ones.

        Raises Retriable when a partition can't be read in time.
        """
        found = self.at_time(partitions, timestamp_ms)
        starts = {at: offset for at, offset in found.items() if offset >= 0}
        first = self._first(starts, lambda message: message.timestamp()[1] >= timestamp_ms)
        return found | {at: -1 if message is None else _offset(message) for at, message in first.items()}

    def first_records(self, starts: Mapping[Partition, int]) -> dict[Partition, tuple[int, int]]:
        """Return offset and timestamp (ms) of the first committed record at or after each start; partitions without one
        are left out.

        Raises Retriable when a partition can't be read in time.
        """
        first = self._first(starts, lambda _: True)
        return {at: (_offset(it), it.timestamp()[1]) for at, it in first.items() if it is not None}

    def _first(
        self, starts: Mapping[Partition, int], wanted: Callable[[Message], bool]
    ) -> dict[Partition, Message | None]:
        """Find the first committed record that is wanted of each partition, from a start on; None where there is none.
        Where retention has removed a start meanwhile, from the log start on."""
        found, left, end_s = dict[Partition, Message | None](), dict(starts), time.monotonic() + self._patience_s
        while left:
            waiting, gone = set(left), set[Partition]()
            with self._assigned(left) as polled:
                for at, message, error in polled(waiting, end_s):
                    if error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
                        gone.add(at)
                    elif error is not None:
                        self._raise_unless_end(error, at.topic)
                        found[at] = None
                    elif wanted(message):
                        found[at] = message
                    else:
                        continue
                    waiting.discard(at)
            if waiting:
                raise Retriable(f"cluster {self._cluster.name!r}: {_list(waiting)} can't be read in time")
            left = self._log_starts({at: left[at] for at in gone})
        return found

    def _log_starts(self, below: Mapping[Partition, int]) -> dict[Partition, int]:
        """Return the log starts, which must be above these offsets: a log that begins below has lost its end."""
        starts = {at: raised(it)[0] for at, it in self.bounds(below).items()} if below else {}
        for at, start in starts.items():
            if start <= below[at]:
                raise Retriable(f"cluster {self._cluster.name!r}: {at} ends before offset {below[at]} now")
        return starts

    @contextmanager
    def _assigned(self, starts: Mapping[Partition, int], *, committed: bool = True) -> Iterator[Polled]:
        """Assign a consumer. What this yields polls it: messages of partitions that are waited for, and their errors,
        until none is waited for or the time is over. An error of a connection that is made again is left out."""
        consumer = self._consumer(committed=committed)
        if starts:
            self._learn({at.topic for at in starts}, committed=committed)
            consumer.assign([TopicPartition(at.topic, at.partition, offset) for at, offset in starts.items()])
        try:
            yield partial(_polled, consumer)
        finally:
            consumer.unassign()

    def _read_error(self, error: KafkaError, topic: str) -> ReplicatorError:
        doing, right = f"read topic {topic!r}", f"Read on topic {topic!r}"
        return failures.classify(error, self._cluster.name, doing, right)

    def _raise_unless_end(self, error: KafkaError, topic: str) -> None:
        if error.code() != KafkaError._PARTITION_EOF:
            raise self._read_error(error, topic)

    def whole(self, topic: str, partitions: Iterable[int]) -> list[KeyAndValue]:
        """Return all committed records of `topic` up to the ends that a read_uncommitted reader sees now, one partition
        after the other.

        An open transaction hides what follows it, so this waits for it to end, at most as long as one may stay
        open; then raises Retriable. A topic that is deleted meanwhile isn't waited for.
        """
        return [
            record
            for records in self.whole_partitions(Partition(topic, it) for it in partitions).values()
            for record in raised(records)
        ]

    def whole_partitions(
        self, partitions: Iterable[Partition], *, visible_only: Collection[Partition] = ()
    ) -> dict[Partition, list[KeyAndValue] | ReplicatorError]:
        """Return what `whole` does, of partitions of any topics, which are read at the same time. A partition's error
        is its value.

        Of those in `visible_only` only what no open transaction hides is returned, and none is waited for.
        """
        asked, give_up_s = list(partitions), time.monotonic() + self._timeout_s
        bounds: BoundsByPartition = {}
        for end, of in ((LATEST, [at for at in asked if at not in visible_only]), (STABLE, list(visible_only))):
            if of:
                bounds |= self._bounds_unless_gone(of, end, give_up_s)
        records = self.records({at: found for at, found in bounds.items() if not isinstance(found, ReplicatorError)})
        return {at: found if isinstance(found, ReplicatorError) else records[at] for at, found in bounds.items()}

    def records(self, bounds: Mapping[Partition, LogBounds]) -> dict[Partition, list[KeyAndValue] | ReplicatorError]:
        """Return all committed records of each partition between its bounds, which are as of `bounds`. A partition's
        error is its value; waits as `whole` does."""
        records: dict[Partition, list[KeyAndValue]] = {at: [] for at in bounds}
        errors = self.each(bounds, lambda at, offset, record: records[at].append(record))
        return {**records, **errors}

    def each(
        self, bounds: Mapping[Partition, LogBounds], take: Callable[[Partition, int, KeyAndValue], None]
    ) -> dict[Partition, ReplicatorError]:
        """Hand over each committed record between these bounds, with its offset. Waits as `whole` does.

        Returns the errors of partitions that could not be read.
        """
        waiting = {at for at, (low, high) in bounds.items() if high > low}
        errors: dict[Partition, ReplicatorError] = {}
        give_up_s = time.monotonic() + self._patience_s
        with self._assigned({at: bounds[at][0] for at in waiting}) as polled:
            while waiting and (now_s := time.monotonic()) < give_up_s:
                for at, message, error in polled(waiting, min(give_up_s, now_s + LOOK_S)):
                    if error is None and _offset(message) < bounds[at][1]:
                        take(at, _offset(message), (message.key(), message.value()))
                    elif error is not None and error.code() != KafkaError._PARTITION_EOF:
                        errors[at] = self._read_error(error, at.topic)
                        waiting.discard(at)
                        continue
                    if _offset(message) + (error is None) >= bounds[at][1]:
                        waiting.discard(at)
                if waiting:
                    errors |= self._ends_lost(waiting, bounds, give_up_s)
                    waiting -= errors.keys()
        for at in waiting:
            why = f"{at} could not be read up to offset {bounds[at][1]}"
            errors[at] = Retriable(f"cluster {self._cluster.name!r}: {why}")
        return errors

    def end_records(
        self, starts: Mapping[Partition, int], ends: Mapping[Partition, int]
    ) -> dict[Partition, EndRecords | ReplicatorError]:
        """Read each partition from its start until the last stable offset has reached its end.

        `ends` are high watermarks. Waits for transactions that are just being ended, at most `request_timeout_ms`:
        where `stable` is lower then, a transaction stays open. Stops at the second record of a partition. A partition
        that could not be read is Retriable, however many aborted records it ends with; its own error is its value.
        """
        ends_read = _EndsBeingRead(starts, ends)
        began = time.monotonic()
        with self._assigned(starts) as polled:
            self._read_ends(polled, ends_read, began + self._timeout_s)
            if ends_read.waiting:
                (stable,) = self._offsets(sorted(ends_read.waiting), STABLE)
                for at, listed in stable.items():
                    if (offset := raised(listed).offset) < ends[at]:
                        ends_read.stable[at] = offset
                        ends_read.waiting.discard(at)
            self._read_ends(polled, ends_read, began + self._patience_s)
        for at in ends_read.waiting:
            ends_read.errors[at] = Retriable(f"cluster {self._cluster.name!r}: the end of {at} can't be read")
        return ends_read.found()

    def _read_ends(self, polled: Polled, ends_read: _EndsBeingRead, deadline_s: float) -> None:
        for at, message, error in polled(ends_read.waiting, deadline_s):
            if error is None:
                ends_read.record(at, _offset(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                ends_read.end(at, _offset(message))
            else:
                ends_read.fail(at, self._read_error(error, at.topic))

    def holds(self, at: Partition, offset: int) -> bool:
        """Tell whether there is a record at this offset, of an aborted transaction too: compaction may have taken
        it."""
        with self._assigned({at: offset}, committed=False) as polled:
            for _, message, error in polled([at], time.monotonic() + self._timeout_s):
                if error is not None:
                    self._raise_unless_end(error, at.topic)
                return error is None and message.offset() == offset
        raise Retriable(f"cluster {self._cluster.name!r}: {at} can't be read at offset {offset}")

    def close(self) -> None:
        """Close what is open; the next use opens it again."""
        self._learned_s.clear()
        while self._open:
            self._open.popitem()[1].close()


class _EndsBeingRead:
    """Ends that are being read: which partitions are waited for, what was found of each."""

    def __init__(self, starts: Iterable[Partition], ends: Mapping[Partition, int]) -> None:
        self._ends = ends
        self._records: dict[Partition, list[int]] = {at: [] for at in starts}
        self.waiting = set(self._records)
        self.stable: dict[Partition, int] = {}
        self.errors: dict[Partition, ReplicatorError] = {}

    def record(self, at: Partition, offset: int) -> None:
        """Take a committed record; with the second the partition is read."""
        self._records[at].append(offset)
        if len(self._records[at]) > 1:
            self.waiting.discard(at)

    def end(self, at: Partition, offset: int) -> None:
        """Return the last stable offset, which may not have reached the end yet."""
        self.stable[at] = offset
        if offset >= self._ends[at]:
            self.waiting.discard(at)

    def fail(self, at: Partition, error: ReplicatorError) -> None:
        """Note the partition's own error."""
        self.errors[at] = error
        self.waiting.discard(at)

    def found(self) -> dict[Partition, EndRecords | ReplicatorError]:
        """Return all of them."""
        return {
            at: self.errors[at] if at in self.errors else EndRecords(tuple(records), self.stable.get(at, -1))
            for at, records in self._records.items()
        }


def _polled(
    consumer: Consumer, waiting: Collection[Partition], deadline_s: float
) -> Iterator[tuple[Partition, Message, KafkaError | None]]:
    while waiting and (left_s := deadline_s - time.monotonic()) > 0:
        message = consumer.poll(left_s)
        at = _where(message)
        if message is None or at is None or at not in waiting:
            continue
        error = message.error()
        if error is None or error.code() not in failures.UNREACHABLE:
            yield at, message, error


def _count(answer: TopicInfo | ReplicatorError) -> int | ReplicatorError:
    if isinstance(answer, TopicMissing):
        return 0
    return answer if isinstance(answer, ReplicatorError) else answer.partitions


def _both(start: ListedOffset | ReplicatorError, end: ListedOffset | ReplicatorError) -> LogBounds | ReplicatorError:
    if isinstance(start, ReplicatorError):
        return start
    return end if isinstance(end, ReplicatorError) else (start.offset, end.offset)


def _where(message: Message | None) -> Partition | None:
    """Return the partition of a message or error; None for errors of the client as a whole."""
    topic, partition = (None, None) if message is None else (message.topic(), message.partition())
    return None if topic is None or partition is None else Partition(topic, partition)


def _offset(message: Message) -> int:
    offset = message.offset()
    return -1 if offset is None else offset


def _list(partitions: Iterable[Partition]) -> str:
    return ", ".join(map(str, sorted(partitions)))
