"""Logs as record batches, built in memory: what was written, and what log compaction would leave of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import cramjam

from integration_tests.harness import batches
from replicator.model.partition import Span
from replicator.wire.holes import OffsetOutOfRange

XERIAL = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
OLD_BODY = b"\x00" + b"\x00" * 8 + b"\xff\xff\xff\xff" + b"\x00\x00\x00\x01v"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd", "xerial")


def batch(first: int, last: int, kept: Collection[int] | None = None, codec: str = "none", size: int = 3) -> bytes:
    """A batch over the offsets `first` to `last` with records at `kept`, all of them by default."""
    offsets = range(first, last + 1) if kept is None else sorted(kept)
    records = [batches.record(b"v" * size, offset=offset - first, after_ms=offset * 7) for offset in offsets]
    body = None
    if codec == "xerial" and records:
        data = b"".join(records)
        blocks = [bytes(cramjam.snappy.compress_raw(data[at : at + 40])) for at in range(0, len(data), 40)]
        body = XERIAL + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)
    attributes = 2 if codec == "xerial" else CODECS.index(codec)
    return batches.batch(
        records,
        body=body,
        count=len(records),
        last_delta=last - first,
        attributes=attributes if records else 0,
        base_offset=first,
        timestamp_ms=1_700_000_000_000,
    )


def old_message(offset: int, magic: int) -> bytes:
    """A message of format v0 or v1."""
    body = bytes(4) + bytes([magic]) + (OLD_BODY if magic else OLD_BODY[:1] + OLD_BODY[9:])
    return offset.to_bytes(8, "big") + len(body).to_bytes(4, "big") + body


class MemoryLog:
    """Implements `holes.Log` over batches in memory, and cuts what it returns like a broker."""

    def __init__(self, content: Sequence[tuple[int, bytes]], end: int, start: int = 0) -> None:
        """`content`: the last offset of each batch, and its bytes."""
        self.content, self.log_end, self.log_start = list(content), end, start
        self.fetches: list[int] = []

    def start(self) -> int:
        return self.log_start

    def end(self) -> int:
        return self.log_end

    def fetch(self, offset: int, bytes_max: int) -> bytes | None:
        self.fetches.append(offset)
        if not self.log_start <= offset <= self.log_end:
            raise OffsetOutOfRange
        found = [data for last, data in self.content if last >= offset]
        return b"".join(found)[: max(bytes_max, len(found[0]))] if found else b""


def log_of(
    batches_kept: Sequence[tuple[int, int, Collection[int] | None]], start: int = 0, codec: str = "none"
) -> MemoryLog:
    """A log of (first, last, kept) batches."""
    content = [(last, batch(first, last, kept, codec)) for first, last, kept in batches_kept]
    return MemoryLog(content, max(last for _, last, _ in batches_kept) + 1, start)


def ranges(offsets: Collection[int]) -> list[Span]:
    """Offsets as ranges [first, end)."""
    found: list[Span] = []
    for offset in sorted(offsets):
        if found and found[-1][1] == offset:
            found[-1] = (found[-1][0], offset + 1)
        else:
            found.append((offset, offset + 1))
    return found
