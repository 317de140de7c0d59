"""Reads the files of a data directory for `eos-replicate log dump`; read only, also while a broker is running.

Everything is an event, a plain dict: `partition`, then its `segment`s with their `batch`es (and `record`s), `damage`
where there is any, and at last `state`: what a start would find out of producers and transactions. Layout:
docs/log-format.md.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from embedded_broker.state import group_log, transaction_log
from embedded_broker.state.producers import PartitionProducers
from embedded_broker.storage.log import checkpoint, index
from embedded_broker.storage.log.checkpoint import Checkpoint
from embedded_broker.storage.log.format import (
    CHECKPOINT,
    COMPACTED,
    DURABLE,
    INDEX_SUFFIX,
    LOG_START,
    base_offset_of,
    decode_offset,
)
from embedded_broker.storage.log.walking import walk
from kafka_records.batch import BatchHeader, CorruptBatch
from kafka_records.control import marker_commits
from kafka_records.rebuild import delete_horizon_ms
from kafka_records.records import Record, decode

METADATA, PARTITIONS = "__cluster_metadata", "partitions"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
Event = dict[str, Any]
Meaning = Callable[[Record], Any]


class NothingThere(ValueError):
    """A path that is no data directory, partition or segment."""


@dataclass(frozen=True, slots=True)
class _Small:
    """The small files of a partition."""

    log_start: int
    durable: int
    compacted: int
    checkpoint: Checkpoint | None


class _ReadOnly:
    """A file, for `walk`."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._size = os.fstat(self._fd).st_size

    def read(self, at: int, size: int) -> bytes:
        """See segment.Readable."""
        return os.pread(self._fd, max(min(size, self._size - at), 0), at)

    def size(self) -> int:
        """See segment.Readable."""
        return self._size

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def dump(path: Path, records: bool = False) -> Iterator[Event]:
    """Yield all events of a data directory, a partition's directory or one segment.

    Args:
        path: of it.
        records: also the records of batches.

    Raises NothingThere; OSError.
    """
    if path.is_file() and base_offset_of(path.name) is not None:
        yield from _partition(path.parent, records, only=path)
    elif (path / METADATA).is_dir():
        for directory in [path / METADATA, *sorted((path / PARTITIONS).glob("*"))]:
            yield from _partition(directory, records)
    elif path.is_dir() and any(base_offset_of(name) is not None for name in os.listdir(path)):
        yield from _partition(path, records)
    else:
        raise NothingThere(f"{path} is no data directory, no partition's directory and no segment")


def _partition(directory: Path, records: bool, only: Path | None = None) -> Iterator[Event]:
    topic, number = _name(directory)
    small, problems = _read_small(directory)
    known = small.checkpoint
    yield {
        "event": "partition", "path": str(directory), "topic": topic, "partition": number,
        "log_start": small.log_start, "durable": small.durable, "compacted": small.compacted,
        "checkpoint": None if known is None else known.offset,
    }  # fmt: skip
    yield from problems
    paths = (
        [only] if only else sorted(path for path in directory.glob("*.log") if base_offset_of(path.name) is not None)
    )
    scan = _Scan(small, _meaning(topic), records, producers=PartitionProducers(), end=-1)
    if known is not None and only is None:
        scan.producers.restore(known.state)
    for path in paths:
        yield from scan.segment(path, is_last=path == paths[-1])
    yield {"event": "state", "end": scan.end, **_state(scan.producers)}


@dataclass(slots=True)
class _Scan:
    """Goes through segments."""

    small: _Small
    meaning: Meaning | None
    records: bool
    producers: PartitionProducers
    end: int
    """Offset after the last batch; -1 before the first."""

    def segment(self, path: Path, is_last: bool) -> Iterator[Event]:
        """Yield the events of one."""
        file, at, base = _ReadOnly(path), 0, base_offset_of(path.name)
        try:
            yield {"event": "segment", "path": str(path), "size_bytes": file.size(), "index": _index(path)}
            if base is not None and not self._follows(base):
                yield self._damage(path, 0, f"offset {self.end} should be here", is_last=False)
            self.end = base if base is not None else self.end
            for header, view, wrong in walk(file):
                if header is None:
                    yield self._damage(path, at, wrong, is_last)
                    return
                if not self._follows(header.base_offset):
                    yield self._damage(path, at, f"offset {header.base_offset}, {self.end} is next", is_last)
                    return
                yield from self._batch(path, at, header, view)
                at += header.size_bytes
        finally:
            file.close()

    def _follows(self, base: int) -> bool:
        return self.end in (-1, base) or self.end < base <= self.small.compacted

    def _damage(self, path: Path, at: int, why: str, is_last: bool) -> Event:
        """Return the event of damage; what is not known to be durable at the very end was being written, and a start
        cuts it.
        """
        torn = is_last and self.end >= self.small.durable
        return {"event": "torn" if torn else "damage", "path": str(path), "at": at, "why": why, "offset": self.end}

    def _batch(self, path: Path, at: int, header: BatchHeader, view: memoryview) -> Iterator[Event]:
        event: Event = {
            "event": "batch", "at": at, "base_offset": header.base_offset, "last_offset": header.last_offset,
            "records": header.record_count, "size_bytes": header.size_bytes, "max_timestamp_ms": header.max_timestamp,
            "compression": CODECS[header.compression] if header.compression < len(CODECS) else header.compression,
            "leader_epoch": header.leader_epoch, "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch, "base_sequence": header.base_sequence,
            "transactional": header.is_transactional, "delete_horizon_ms": delete_horizon_ms(header), "marker": None,
        }  # fmt: skip
        self.end = header.last_offset + 1
        try:
            commit = marker_commits(view) if header.is_control else None
            found = decode(view) if self.records and not header.is_control else []
        except CorruptBatch as error:
            yield event
            yield {"event": "damage", "path": str(path), "at": at, "why": f"records: {error}", "offset": self.end - 1}
            return
        event["marker"] = None if commit is None else ("commit" if commit else "abort")
        yield event
        if self.small.checkpoint is None or header.base_offset >= self.small.checkpoint.offset:
            self.producers.apply(header, commit)
        for record in found:
            yield self._record(record)

    def _record(self, record: Record) -> Event:
        event: Event = {
            "event": "record", "offset": record.offset, "timestamp_ms": record.timestamp_ms, "key": _text(record.key),
            "value": _text(record.value), "headers": [[_text(name), _text(value)] for name, value in record.headers],
        }  # fmt: skip
        if self.meaning is not None:
            event["means"] = _plain(self.meaning(record))
        return event


def _state(producers: PartitionProducers) -> Event:
    return {
        "open_transactions": [
            {"producer_id": producer_id, "first_offset": first}
            for producer_id, first in sorted(producers.open_transactions().items())
        ],
        "aborted_transactions": [_plain(each) for each in producers.aborted_transactions()],
        "producers": [
            {"producer_id": entry.producer_id, "epoch": entry.epoch, "last_sequence": entry.last_sequence}
            for entry in producers.entries()
        ],
    }


def _read_small(directory: Path) -> tuple[_Small, list[Event]]:
    problems: list[Event] = []

    def offset(name: str, missing: int, is_needed: bool) -> int:
        path = directory / name
        data = path.read_bytes() if path.exists() else None
        found = None if data is None else decode_offset(data)
        if data is not None and found is None and is_needed:
            problems.append({"event": "damage", "path": str(path), "at": 0, "why": "not sound", "offset": -1})
        return missing if found is None else found

    path = directory / CHECKPOINT
    known = checkpoint.decode(path.read_bytes()) if path.exists() else None
    durable = max(offset(DURABLE, 0, is_needed=False), known.offset if known else 0)
    return _Small(offset(LOG_START, 0, True), durable, offset(COMPACTED, 0, True), known), problems


def _index(segment: Path) -> str:
    path = segment.with_suffix(INDEX_SUFFIX)
    if not path.exists():
        return "none"
    found = index.decode(path.read_bytes())
    return "not sound" if found is None else f"to byte {found[0].size_bytes}"


def _name(directory: Path) -> tuple[str | None, int]:
    """Return the topic and number of a partition, as far as the metadata beside it say."""
    if directory.name == METADATA:
        return METADATA, 0
    topic_id, _, number = directory.name.rpartition("-")
    metadata, name = directory.parent.parent / METADATA, None
    for path in sorted(metadata.glob("*.log")):
        file = _ReadOnly(path)
        for header, view, _ in walk(file):
            for record in decode(view) if header is not None else ():
                if record.key == f"topic:{topic_id}".encode() and record.value is not None:
                    name = json.loads(record.value)["name"]
        file.close()
    return name, int(number) if number.isdecimal() else 0


def _meaning(topic: str | None) -> Meaning | None:
    """Return how the records of an internal topic are understood."""
    known: Mapping[str, Meaning] = {
        "__transaction_state": lambda record: transaction_log.decode(record.key or b"", record.value),
        "__consumer_offsets": lambda record: group_log.decode(record.key or b"", record.value, record.offset),
    }
    return known.get(topic or "")


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")


def _plain(value: Any) -> Any:
    """Return a value as JSON can say it."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, bytes):
        return _text(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in (sorted(value) if isinstance(value, set | frozenset) else value)]
    return value
