"""Delivery reports of records that were handed to a producer, and what they say of refused ones. Used by `copying`
and `plane`.

How a refusal comes back (KIP-467, seen on Kafka 4.3 and librdkafka 2.16): where the broker names two records or more of
a batch, these have its error and all others `_INVALID_DIFFERENT_RECORD`. Where it names one or none, all records of the
batch have the error of the batch: librdkafka overwrites the names when there is a single one. What was purged
behind the batch has errors of its own, which say nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, Message

from replicator.kafka import failures
from replicator.planes.contract import Refusal
from replicator.planes.records.sizes import encoded_bytes

DIFFERENT_RECORD = KafkaError._INVALID_DIFFERENT_RECORD
REFUSING = failures.REFUSED_RECORD | {DIFFERENT_RECORD}


class AckError(NamedTuple):
    """A record that was not written. `place`: its index in the batch, if the broker refused that. `bytes`: of an
    uncompressed batch that holds it alone, where it was too large; else 0."""

    error: KafkaError
    place: int
    bytes: int = 0


@dataclass(slots=True)
class AckWatch:
    """Whether any record of the open transaction was not written; one for all runs."""

    failed: bool = False


@dataclass(slots=True)
class Acks:
    """Acknowledgements of one run: target offsets of its first and last record, and errors by source offset.

    `restamped`: the broker has replaced the timestamps of a batch by the time of its append. `stored`: source offsets
    of acknowledged records, where these are kept.
    """

    watch: AckWatch
    first_source: int = -1
    last_source: int = -1
    count: int = 0
    first: int = -1
    last: int = -1
    without_offset: bool = False
    restamped: bool = False
    errors: dict[int, AckError] = field(default_factory=dict)
    stored: set[int] | None = None

    def _take(self, source_offset: int, error: KafkaError | None, message: Message) -> int:
        offset = message.offset()
        if error is not None:
            # Of a refused batch librdkafka counts its records from "offset" -1, which confluent-kafka gives as None.
            self.errors[source_offset] = AckError(error, 0 if offset is None else offset + 1, _bytes(error, message))
            self.watch.failed = True
            return -1
        if self.stored is not None:
            self.stored.add(source_offset)
        if offset is None or offset < 0:
            self.without_offset = True  # librdkafka's answer to a duplicate sequence: invariant 6
            return -1
        if message.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME:
            self.restamped = True
        return offset

    def on_first(self, error: KafkaError | None, message: Message) -> None:
        """Take the delivery report of the run's first record."""
        self.first = self._take(self.first_source, error, message)

    def on_last(self, error: KafkaError | None, message: Message) -> None:
        """Take the delivery report of the run's last record."""
        self.last = self._take(self.last_source, error, message)

    def on_middle(self, source_offset: int, error: KafkaError | None, message: Message) -> None:
        """Take the delivery report of a record between the two, where each one is asked for."""
        self._take(source_offset, error, message)

    def on_only(self, error: KafkaError | None, message: Message) -> None:
        """Take the delivery report of a run of one record."""
        self.first = self.last = self._take(self.first_source, error, message)


def refusal(errors: Mapping[int, AckError], *, every_ack: bool) -> Refusal | None:
    """Find what was refused of one partition, by the errors of its records by source offset; None if nothing was.

    `every_ack`: each record's report was asked for, so that batches are known whole.
    """
    refused = [(offset, errors[offset]) for offset in sorted(errors) if errors[offset].error.code() in REFUSING]
    if not refused:
        return None
    if not every_ack:
        return _refusal((), refused[0][1].error)
    for batch in _batches(refused):
        bad = [(offset, found) for offset, found in batch if found.error.code() != DIFFERENT_RECORD]
        if bad:
            named = len(bad) < len(batch)
            suspects = tuple(offset for offset, _ in (bad[:1] if named else bad))
            return _refusal(suspects, bad[0][1].error, bad[0][1].bytes)
    return _refusal((), refused[0][1].error)


def _batches(refused: list[tuple[int, AckError]]) -> list[list[tuple[int, AckError]]]:
    batches: list[list[tuple[int, AckError]]] = []
    for offset, found in refused:
        if not batches or found.place != batches[-1][-1][1].place + 1:
            batches.append([])
        batches[-1].append((offset, found))
    return batches


def _refusal(suspects: tuple[int, ...], error: KafkaError, size: int = 0) -> Refusal:
    detail = f"{error.name()}: {failures.reason(error)}"
    for_timestamp = error.code() in failures.FOR_TIMESTAMP
    return Refusal(suspects, detail, error.code() in failures.TOO_LARGE, size, for_timestamp)


def _bytes(error: KafkaError, message: Message) -> int:
    if error.code() not in failures.TOO_LARGE:
        return 0
    key, value = message.key(), message.value()
    headers = message.headers()
    return encoded_bytes(_encoded(key), _encoded(value), headers if isinstance(headers, list) else None)


def _encoded(field_: bytes | str | None) -> bytes | None:
    return field_.encode() if isinstance(field_, str) else field_
