"""Reads source partitions by assignment with librdkafka, and sorts what comes back by partition. Used by `plane`.

Invariants
- read_committed, `auto.offset.reset=error`: an offset that is gone is reported, never skipped (invariant 8).
- A rewind is a fresh `assign`: librdkafka throws away what it had buffered, so nothing read before is copied.
- What concerns one partition stops that partition: it is reported once and not read on until the next `seek`.
"""

from __future__ import annotations

import re
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from replicator.config import Flow
from replicator.kafka import failures, metadata, properties
from replicator.kafka.client_log import line_logger
from replicator.kafka.fetch_size import FetchSize
from replicator.model.errors import NotAllowed, ReplicatorError
from replicator.model.partition import Partition, Seek, Span
from replicator.planes.contract import ReadPlan
from replicator.planes.fetch_watch import FetchWatch
from replicator.planes.records import source_errors
from replicator.planes.records.message import Polled, Record
from replicator.planes.records.oversized import OversizedSearch, is_oversized

POLL_RECORDS_MAX = 2_000  # what one poll takes is handled three times: so much of it stays in a core's cache
NOT_STARTED_S = 0.001  # between two looks at partitions that are being started: there is no event for it
END = KafkaError._PARTITION_EOF
ASK_AGAIN_S = 5.0  # between two questions for topics of which the cluster has said nothing yet
STARTED_S_MAX = 0.02  # what takes longer to be started is looked at by the next polls


@dataclass(slots=True)
class Batch:
    """One poll: messages by partition in order, partition ends seen, errors of single partitions."""

    groups: dict[Partition, list[Record]] = field(default_factory=dict)
    ends: dict[Partition, Seek] = field(default_factory=dict)
    failed: dict[Partition, ReplicatorError] = field(default_factory=dict)
    heard: set[Partition] = field(default_factory=set)
    drained: bool = True


class Source:
    """A consumer that is only ever assigned. Owned by one lane's thread."""

    def __init__(
        self,
        flow: Flow,
        on_client_error: Callable[[str], None],
        *,
        record_bytes_max: int = 0,
        bulk: bool = False,
        fetch_size: FetchSize | None = None,
    ) -> None:
        """Arguments as of `properties.source_consumer`; `on_client_error` takes what librdkafka waits out."""
        self._flow, self._on_client_error = flow, on_client_error
        self._request_s = flow.limits.request_timeout_ms / 1000
        self._read_plans: Mapping[Partition, ReadPlan] = {}
        self._bounded: dict[Partition, int] = {}
        self._spans: dict[Partition, Sequence[Span]] = {}
        self._next: dict[Partition, int] = {}  # the offset to read next
        self._at_end: set[Partition] = set()
        self._stopped: set[Partition] = set()  # reported as failed: not read on
        self._failed: dict[Partition, ReplicatorError] = {}  # to be reported by the next poll
        self._unchecked: dict[Partition, TopicPartition] = {}  # to be checked for truncation
        self._check_until_s = 0.0
        self._partitions: dict[str, Collection[int]] = {}  # of topics, as far as the client has been told
        self._untold: set[str] = set()  # topics of which it hasn't: asked for again while nothing comes
        self._ask_again_s = 0.0
        self._oversized = OversizedSearch(flow, record_bytes_max)
        self._fetches = FetchWatch(flow.source.name, fetch_size or FetchSize())
        step = self._fetches.step
        props = properties.source_consumer(flow, record_bytes_max=record_bytes_max, bulk=bulk, step=step)
        with failures.making(flow.source.name):
            self._consumer = Consumer({**props, "error_cb": self._error}, logger=line_logger(self._line))

    def _line(self, text: str) -> None:
        self._fetches.line(text)
        self._on_client_error(f"cluster {self._flow.source.name!r}: {text}")

    def _error(self, error: KafkaError) -> None:
        """Take an error of the client as a whole. It names partitions in its text at best."""
        if error.code() in failures.OF_GROUP:
            return
        text = failures.describe(error, self._flow.source.name, "read the source")
        self._on_client_error(text)
        if is_oversized(error):
            self._oversized.begin(failures.reason(error))
            return
        if error.code() not in failures.NOT_ALLOWED | failures.MISSING:
            return
        named = failures.partitions_named(error.str()) & self._read_plans.keys()
        if not named:  # all partitions of a topic that it names
            words = set(re.split(r"[^\w.-]+", error.str()))
            named = {at for at in self._read_plans if at.topic in words}
        for at in named:
            self._fail(at, source_errors.classify(error, self._flow.source.name, at, self._next.get(at, -1)))

    def connect(self, topic: str) -> None:
        """Connect before the first record is read, see `metadata.connect`."""
        self._learn({topic})

    def _fail(self, at: Partition, error: ReplicatorError | None) -> None:
        """Report `at` with the next poll, once."""
        if error is not None and at not in self._stopped:
            self._stopped.add(at)
            self._failed[at] = error
            self._unchecked.pop(at, None)

    def seek(self, read_plans: Mapping[Partition, ReadPlan]) -> None:
        """Assign exactly `read_plans`, and check them for truncation by their leader epochs.

        The check goes on in `poll`; what could not be checked, or isn't there, is reported by it as failed.
        """
        self._read_plans = read_plans
        self._spans = {at: plan.spans for at, plan in read_plans.items() if plan.spans}
        self._bounded = {at: end for at, plan in read_plans.items() if (end := _bound(plan)) is not None}
        self._next = {at: plan.start.offset for at, plan in read_plans.items()}
        self._at_end, self._stopped, self._failed, self._unchecked = set(), set(), {}, {}
        self._oversized.forget()
        self._untold = {at.topic for at in read_plans if at.partition not in self._partitions.get(at.topic, ())}
        learned = self._learn(self._untold)
        self._consumer.assign([_topic_partition(at, plan.start) for at, plan in read_plans.items()])
        # librdkafka asks leaders where epochs end (OffsetForLeaderEpoch, KIP-320) on a seek, and where it learns of a
        # new epoch of a partition that it reads; not for the epoch of an assignment. What was cut while a partition was
        # not assigned would never be told, and an assignment drops a question that wasn't answered yet.
        self._check_until_s = time.monotonic() + self._request_s
        self._unchecked = {
            at: _topic_partition(at, plan.start) for at, plan in read_plans.items() if plan.start.leader_epoch >= 0
        }
        self._check_epochs()
        while self._unchecked and time.monotonic() < self._check_until_s - self._request_s + STARTED_S_MAX:
            time.sleep(NOT_STARTED_S)  # a fetch that comes first would hide truncation behind its own error
            self._check_epochs()
        self._fail_missing(learned)

    def _learn(self, topics: Collection[str]) -> Mapping[str, Collection[int] | KafkaError]:
        learned = metadata.learn(self._consumer, topics)
        self._partitions |= {topic: found for topic, found in learned.items() if not isinstance(found, KafkaError)}
        self._untold -= learned.keys()
        self._ask_again_s = time.monotonic() + ASK_AGAIN_S
        return learned

    def _fail_missing(self, learned: Mapping[str, Collection[int] | KafkaError]) -> None:
        """Report partitions that aren't there. librdkafka tells of a topic that is missing after 30 s, and never of a
        partition that its first metadata of the topic lacks."""
        for at in self._read_plans:
            found = learned.get(at.topic)
            if isinstance(found, KafkaError):
                self._fail(at, self._missing(at, found))
            elif found is not None and at.partition not in found:
                self._fail(at, self._missing(at, KafkaError(KafkaError._UNKNOWN_PARTITION)))

    def _missing(self, at: Partition, error: KafkaError) -> ReplicatorError:
        right = f"Describe and Read on topic {at.topic!r}"
        found = failures.classify(error, self._flow.source.name, f"read {at}", right)
        return NotAllowed(str(found), [at]) if isinstance(found, NotAllowed) else found

    def _check_epochs(self) -> None:
        """Seek those that librdkafka has started by now; it does so in a thread of its own."""
        for at, where in list(self._unchecked.items()):
            try:
                self._consumer.seek(where)
            except KafkaException as error:
                starting = failures.kafka_error(error).code() == KafkaError._STATE
                if starting and time.monotonic() < self._check_until_s:
                    continue
                doing = f"check {at} for truncation"
                right = f"Describe on topic {at.topic!r}"
                self._fail(at, failures.classify(error, self._flow.source.name, doing, right))
            self._unchecked.pop(at, None)

    def check_fetches(self) -> None:
        """Raise Retriable where another reader shall ask for less at once than this one, or can ask for more."""
        self._fetches.check()

    def poll(self, records_max: int, timeout_s: float) -> Batch:
        """Wait up to `timeout_s` for the first message, then take what is there, at most `records_max`."""
        if self._unchecked:
            self._check_epochs()
        found = Batch()
        first = self._consumer.poll(min(timeout_s, NOT_STARTED_S) if self._unchecked else timeout_s)
        if first is not None:
            limit = max(1, min(records_max, POLL_RECORDS_MAX)) - 1
            messages = self._consumer.consume(limit, 0) if limit else []
            found.drained = len(messages) < limit
            messages.insert(0, first)
            self._sort(messages, found)
        elif self._untold and time.monotonic() >= self._ask_again_s:
            self._fail_missing(self._learn(self._untold))
        if self._oversized.wanted:
            self._search_oversized(found)
        if self._failed:
            found.failed, self._failed = self._failed, {}
            found.heard |= found.failed.keys()
        return found

    def _sort(self, messages: list[Message], found: Batch) -> None:
        groups: dict[tuple[str, int], list[Record]] = {}
        ends: dict[tuple[str, int], int] = {}  # the last one of each: the client tells it after every few records
        topic, partition = "", -1  # of the record before: most come in runs of one partition
        group: list[Record] | None = None
        record: Polled
        for record in messages:  # type: ignore[assignment]
            error = record.error()
            if error is not None:
                group = None
                if error.code() == END:
                    ends[record.topic(), record.partition()] = record.offset()
                else:
                    self._note_ends(ends, found)
                    self._note(record, error, found, groups)
                continue
            if group is None or record.partition() != partition or record.topic() != topic:
                topic, partition = record.topic(), record.partition()
                group = groups.get((topic, partition))
                if group is None:
                    group = groups[topic, partition] = []
            group.append(record)
        self._note_ends(ends, found)
        for key, group in groups.items():
            at = Partition(*key)
            if at not in self._stopped and at not in self._unchecked:  # what is unchecked is read again from its start
                self._take(at, group, found)
        for at, end in self._bounded.items():
            self._clip(found, at, end)
        for at, spans in self._spans.items():
            if at in found.groups:
                within = [record for record in found.groups.pop(at) if _lies_in(spans, record.offset())]
                found.groups |= {at: within} if within else {}

    def _take(self, at: Partition, group: list[Record], found: Batch) -> None:
        found.groups[at] = group
        found.heard.add(at)
        self._fetches.arrived()
        offset = group[-1].offset() + 1
        if at not in found.ends or found.ends[at].offset < offset:
            self._next[at] = offset
            self._at_end.discard(at)

    def _clip(self, found: Batch, at: Partition, end: int) -> None:
        """Let nothing at or behind `end` be copied or asked for; whoever has read so far has reached it."""
        group, stands = found.groups.get(at), found.ends.get(at)
        if group and group[-1].offset() >= end:
            within = bisect_left(group, end, key=lambda record: record.offset())
            beyond = group[within]
            stands = Seek(end, -1 if (epoch := beyond.leader_epoch()) is None else epoch)
            if within:
                found.groups[at] = group[:within]
            else:
                del found.groups[at]
        if stands is not None:
            found.ends[at] = stands._replace(offset=min(stands.offset, end))
        if self._next[at] >= end and at not in self._stopped:  # what is behind may be what it was bounded for
            self._stopped.add(at)
            self._unchecked.pop(at, None)
            self._consumer.incremental_unassign([TopicPartition(at.topic, at.partition)])

    def _note_ends(self, ends: dict[tuple[str, int], int], found: Batch) -> None:
        """Note up to where partitions have been read, and forget `ends`."""
        for key, end in ends.items():
            at = Partition(*key)
            if at in self._read_plans and at not in self._stopped and at not in self._unchecked:
                found.heard.add(at)
                found.ends[at] = Seek(end, self._epoch(at, end))
                self._next[at] = end
                self._at_end.add(at)
        ends.clear()

    def _note(
        self, message: Polled, error: KafkaError, found: Batch, groups: dict[tuple[str, int], list[Record]]
    ) -> None:
        """Sort an error; `groups` are the records of this poll that came before it."""
        topic, partition = message.topic(), message.partition()
        if topic is None:
            self._error(error)
            return
        if partition is None or partition < 0:
            for at in [at for at in self._read_plans if at.topic == topic]:
                self._fail(at, source_errors.classify(error, self._flow.source.name, at, self._next[at]))
            return
        at = Partition(topic, partition)
        if at not in self._read_plans or at in self._stopped:
            return
        found.heard.add(at)
        before = groups.pop(at, None)
        if before is not None and at not in self._unchecked:
            self._take(at, before, found)
        found_error = source_errors.classify(error, self._flow.source.name, at, self._next[at])
        if found_error is None:
            self._on_client_error(failures.describe(error, self._flow.source.name, f"read {at}"))
            if before is not None:
                groups[at] = before
        self._fail(at, found_error)

    def _epoch(self, at: Partition, end: int) -> int:
        """Return the leader epoch up to a partition's end: markers and aborted records have it, and come with no
        message."""
        here = self._consumer.position([TopicPartition(at.topic, at.partition)])[0]
        return -1 if here.offset != end or here.leader_epoch is None else here.leader_epoch

    def _search_oversized(self, found: Batch) -> None:
        """Ask first those from which nothing came now and that aren't at their end."""
        candidates = sorted(
            (at for at in self._read_plans if at not in self._stopped),
            key=lambda at: (at in found.heard, at in self._at_end),
        )
        for at, incident in self._oversized.round(candidates, self._next).items():
            self._fail(at, incident)
            self._consumer.incremental_unassign([TopicPartition(at.topic, at.partition)])

    def close(self) -> None:
        """Leave; nothing was committed on the source and nothing is."""
        self._oversized.forget()
        self._consumer.close()


def _topic_partition(at: Partition, start: Seek) -> TopicPartition:
    if start.leader_epoch >= 0:
        return TopicPartition(at.topic, at.partition, start.offset, leader_epoch=start.leader_epoch)
    return TopicPartition(at.topic, at.partition, start.offset)


def _bound(plan: ReadPlan) -> int | None:
    """Return the offset behind which nothing of a partition is wanted."""
    if not plan.spans:
        return plan.until
    end = plan.spans[-1][1]
    return end if plan.until is None else min(end, plan.until)


def _lies_in(spans: Sequence[Span], offset: int) -> bool:
    before = bisect_right(spans, offset, key=lambda span: span[0])
    return before > 0 and offset < spans[before - 1][1]
