"""The flow's notes of consumer groups on Kafka: implements `Notes`.

Nothing is lost with this topic: without a note an offset at the target counts as somebody else's, and is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from replicator.config import Flow
from replicator.flow.topics import notes_topic, reading_topics, topics_of
from replicator.kafka import properties
from replicator.kafka.admin import ClusterAdmin
from replicator.kafka.producer import TransactionalProducer
from replicator.kafka.topic_questions import raised
from replicator.kafka.topic_reader import KeyAndValue, TopicReader
from replicator.model import names
from replicator.model.errors import Incident, ReplicatorError, Retriable
from replicator.model.partition import Partition
from replicator.state.envelope import NewerFormat, NotOurs
from replicator.state.group_notes import GroupNotes
from replicator.state.other_ends import OtherEnds
from replicator.state.transaction_notes import TransactionNotes


def read_notes(flow: Flow, reader: TopicReader) -> GroupNotes:
    """Read the notes; none where there is no such topic. What isn't ours says nothing.

    Raises Incident `newer_format`; Unreachable, NotAllowed, Retriable, TopicMissing.
    """
    return _group_notes(flow, last_records(flow, reader))


def read_source_notes(flow: Flow, reader: TopicReader) -> tuple[TransactionNotes, OtherEnds]:
    """Read what is noted of the source's transactions, and of the ends that the ends' group doesn't have. As
    `read_notes`."""
    return _source_notes(flow, last_records(flow, reader))


def last_records(flow: Flow, reader: TopicReader) -> dict[bytes | None, bytes | None]:
    """Read the last record of each key. Raises Unreachable, NotAllowed, Retriable, TopicMissing."""
    topic = names.groups_topic(flow.name)
    if not reader.partition_count(topic):
        return {}
    at, last = Partition(topic, 0), dict[bytes | None, bytes | None]()  # of many that aren't compacted yet

    def take(_: Partition, __: int, record: KeyAndValue) -> None:
        key, value = record
        last[key] = value

    for error in reader.each({at: raised(reader.bounds([at])[at])}, take).values():
        raise error
    return last


def _group_notes(flow: Flow, last: Mapping[bytes | None, bytes | None]) -> GroupNotes:
    found = GroupNotes()
    for record in last.items():
        try:
            found.read([record])
        except NotOurs:
            continue
        except NewerFormat as error:
            raise _newer(flow, error) from error
    return found


def _source_notes(flow: Flow, last: Mapping[bytes | None, bytes | None]) -> tuple[TransactionNotes, OtherEnds]:
    try:
        return TransactionNotes.read(last), OtherEnds.read(last)
    except NewerFormat as error:
        raise _newer(flow, error) from error


def _newer(flow: Flow, error: NewerFormat) -> Incident:
    return Incident("newer_format", str(error), topic=names.groups_topic(flow.name), partition=0)


class NoteTopic:
    """Of one flow. Used by one thread; `forget` lets go of all connections."""

    def __init__(self, flow: Flow, on_client_error: Callable[[str], None]) -> None:
        self._flow, self._on_client_error = flow, on_client_error
        self._spec = notes_topic(flow)
        self._producer: TransactionalProducer | None = None
        self._transactions, self._other_ends = TransactionNotes(), OtherEnds()

    def begin(self) -> GroupNotes:
        """See `Notes`."""
        self.forget()
        self._make_sure()
        self._producer = TransactionalProducer(
            self._flow, properties.groups_producer(self._flow), self._on_client_error
        )
        self._producer.fence()
        with reading_topics(self._flow, self._flow.target) as reader:
            last = last_records(self._flow, reader)
        self._transactions, self._other_ends = _source_notes(self._flow, last)
        return _group_notes(self._flow, last)

    def transaction_notes(self) -> TransactionNotes:
        """See `Notes`."""
        return self._transactions

    def other_ends(self) -> OtherEnds:
        """See `Notes`."""
        return self._other_ends

    def _make_sure(self) -> None:
        flow, name = self._flow, self._spec.name
        limits = flow.limits
        admin = ClusterAdmin(
            flow.target,
            topics_of(flow, flow.target, "groups"),
            request_timeout_ms=limits.request_timeout_ms,
            connect_timeout_ms=limits.connect_timeout_ms,
        )
        try:
            if name in admin.topics((name,)):
                return
            answer = admin.create_topics([self._spec])[name]
            if isinstance(answer, ReplicatorError):
                raise answer
            if not admin.until(lambda: name in admin.topics((name,))):
                raise Retriable(f"cluster {flow.target.name!r} doesn't show {name} yet")
        finally:
            admin.close()

    def write(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """See `Notes`."""
        producer = self._producer
        assert producer is not None, "it is begun first"
        producer.begin()
        for key, value in records:
            producer.write(self._spec.name, value, key, 0)
        producer.flush()
        producer.end()

    def forget(self) -> None:
        """See `Notes`."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()
