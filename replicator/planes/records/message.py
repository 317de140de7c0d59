"""confluent-kafka's Message as it is once the error is ruled out: topic, partition and offset are there."""

from __future__ import annotations

from typing import Protocol

from confluent_kafka import KafkaError


class Record(Protocol):
    """A record that was read from a partition."""

    def topic(self) -> str:
        """Return its topic."""

    def partition(self) -> int:
        """Return its partition."""

    def offset(self) -> int:
        """Return its offset."""

    def leader_epoch(self) -> int | None:
        """Return the leader epoch of its batch, if the broker gave one."""

    def key(self) -> bytes | None:
        """Return its key; None is null, b"" is empty."""

    def value(self) -> bytes | None:
        """Return its value; None is a tombstone."""

    def timestamp(self) -> tuple[int, int]:
        """Return the kind of its timestamp, and milliseconds since 1970 UTC."""

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """Return its headers in order; None without any. Raises SystemError for a key that isn't UTF-8."""

    def __len__(self) -> int:
        """Count the bytes of its value."""


class Polled(Record, Protocol):
    """What a consumer has returned: a record, unless it has an error."""

    def error(self) -> KafkaError | None:
        """Return what came in place of a record."""
