"""confluent-kafka's Message as it is once the error is ruled out: topic, partition and offset are there."""

from __future__ import annotations

from typing import Protocol


class Record(Protocol):
    """A record that was read from a partition."""

    def topic(self) -> str:
        """Topic."""

    def partition(self) -> int:
        """Partition."""

    def offset(self) -> int:
        """Offset."""

    def leader_epoch(self) -> int | None:
        """Leader epoch of its batch, if the broker gave one."""

    def key(self) -> bytes | None:
        """Key; None is null, b"" is empty."""

    def value(self) -> bytes | None:
        """Value; None is a tombstone."""

    def timestamp(self) -> tuple[int, int]:
        """Kind of timestamp, and milliseconds since 1970 UTC."""

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """Headers in order; None without any. Raises SystemError for a key that isn't UTF-8."""

    def __len__(self) -> int:
        """Bytes of the value."""
