"""`__cluster_metadata`: the broker's durable metadata, a log of keyed records of which the latest counts.

Keys: `topic:<id>` (name, partitions, configs, growth), `group:<id>` and `broker:<id>` (configs), `acl:<id>`,
`quota:<entity>`, `scram:<mechanism>:<user>`, `cluster` (its id), `boot` (how often it was started).

All that clients set takes `bytes_max` of memory at most, see `metadata_size`.

When the disk is full, keys can't be set for clients; but removals are written, from the reserve, because they free disk
space, or revoke rights, which must not wait.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from embedded_broker.metadata.changes import Changes
from embedded_broker.metadata.metadata_size import MetadataFull, entry_bytes
from embedded_broker.runtime.clock import Clock
from embedded_broker.storage.disk_space import suppress_disk_full
from embedded_broker.storage.flush_scheduler import FlushScheduler
from embedded_broker.storage.partition import Partition
from kafka_records.batch import BatchHeader, Buffer
from kafka_records.records import body_of, decode_body, encode

BOOT, CLUSTER = "boot", "cluster"


class MetadataLog:
    """A durable dict of JSON objects. Its log is opened with `replay`, then `opened` makes the entries."""

    _log: Partition

    def __init__(
        self,
        flush_scheduler: FlushScheduler,
        clock: Clock,
        new_uuid: Callable[[], UUID],
        dead_records_max: int,
        changes: Changes,
        bytes_max: int,
    ) -> None:
        """
        Args:
            flush_scheduler: makes them durable.
            clock: for their timestamps.
            new_uuid: names the cluster.
            dead_records_max: with more records that don't count a start rewrites the log.
            changes: every change is one of them.
            bytes_max: what entries may take in memory.
        """
        self.changes = changes
        self._bytes_max, self._bytes = bytes_max, 0
        self._dead_records_max = dead_records_max
        self._flush_scheduler, self._clock, self._new_uuid = flush_scheduler, clock, new_uuid
        self._entries: dict[str, Mapping[str, Any]] = {}
        self._replayed: dict[bytes, bytes] = {}

    def replay(self, header: BatchHeader, batch: Buffer) -> None:
        """Take in a batch of the log. Of each key the latest record is kept: there may be ten thousand, and large."""
        for record in decode_body(header, body_of(header, batch)):
            if record.value is None:
                self._replayed.pop(record.key or b"", None)
            else:
                self._replayed[record.key or b""] = record.value

    def opened(self, log: Partition) -> None:
        """Take the log, of which all batches have been replayed."""
        self._log = log
        self._entries = {key.decode(): json.loads(value) for key, value in self._replayed.items()}
        self._replayed = {}

    async def start(self) -> None:
        """Count this start, and name the cluster at the first. Raises OSError."""
        await self.changes.finish("start", self._start)
        with suppress_disk_full():
            await self._rewrite_if_long()

    async def _start(self) -> None:
        self._bytes = sum(entry_bytes(key, body) for key, body in self._entries.items())
        async with self.changes.one():
            await self.put(BOOT, {"epoch": self.boot_epoch + 1}, own=True)
            if CLUSTER not in self._entries:
                new = base64.urlsafe_b64encode(self._new_uuid().bytes).rstrip(b"=").decode()
                await self.put(CLUSTER, {"id": new}, own=True)

    async def _rewrite_if_long(self) -> None:
        """Write the latest records again and drop what is before them: the log stays as small as its content."""
        end = self._log.log_end
        if end - self._log.log_start < self._dead_records_max + 2 * len(self._entries):
            return
        for key, body in self.items():
            self._append({key: body}, own=False)
        await self._flush_scheduler.durable(self._log)
        async with self._flush_scheduler.exclusive():
            self._log.delete_before(end)

    @property
    def boot_epoch(self) -> int:
        """How often the broker was started before: the leader epoch of a partition that was made at its first start."""
        return int(self._entries.get(BOOT, {"epoch": -1})["epoch"])

    @property
    def log_end(self) -> int:
        """Offset of the next record."""
        return self._log.log_end

    @property
    def cluster_id(self) -> str:
        """Made once, as Kafka makes it: a random UUID in URL-safe base64."""
        return str(self._entries[CLUSTER]["id"])

    def get(self, key: str) -> Mapping[str, Any] | None:
        """Return one entry."""
        return self._entries.get(key)

    def items(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield all entries."""
        yield from list(self._entries.items())

    async def put(self, key: str, body: Mapping[str, Any] | None, *, own: bool = False) -> None:
        """Set or, with None, remove an entry, durably. Call it within `changes.one`.

        `own`: the broker itself needs it, so it may be set from the reserve. Raises NoSpace with nothing changed, which
        may be MetadataFull, or another OSError.
        """
        await self._put({key: body}, own=own or body is None)

    async def remove(self, keys: Sequence[str]) -> None:
        """Remove entries, durably: all of them, or none. Call it within `changes.one`.

        Raises NoSpace with nothing changed, or another OSError.
        """
        if keys:
            await self._put(dict.fromkeys(keys), own=True)

    async def _put(self, entries: Mapping[str, Mapping[str, Any] | None], own: bool) -> None:
        self.changes.check()
        more_bytes = sum(
            entry_bytes(key, body) - entry_bytes(key, self._entries.get(key)) for key, body in entries.items()
        )
        if not own and more_bytes > 0 and self._bytes + more_bytes > self._bytes_max:
            raise MetadataFull(f"metadata takes {self._bytes} bytes, at most {self._bytes_max} are allowed")
        self._append(entries, own=own)
        await self._flush_scheduler.until_durable(self._log)
        self._bytes += more_bytes
        for key, body in entries.items():
            if body is None:
                self._entries.pop(key, None)
            else:
                self._entries[key] = body

    def _append(self, entries: Mapping[str, Mapping[str, Any] | None], own: bool) -> None:
        """Append one batch: all of it is found after a crash, or nothing."""
        records = [(key.encode(), None if body is None else _encode(body)) for key, body in entries.items()]
        self._log.append(encode(records, self._clock.now_ms()), own=own)


def _encode(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
