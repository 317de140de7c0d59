"""Names and small files of a partition's directory. The whole format: docs/log-format.md."""

from __future__ import annotations

from crc32c import crc32c

SEGMENT_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
CHECKPOINT = "checkpoint"
"""Replaced atomically and durably: see `log.checkpoint`."""
COMPACTED = "compacted"
"""Replaced atomically and durably: below the offset in it compaction may have left gaps between batches."""
LOG_START = "log-start"
"""Replaced atomically and durably: offsets below the number in it are deleted."""
DURABLE = "durable"
"""Written in place after each flush, without an fsync of its own: offsets below the number were on disk. It can lag
after a power cut, but it is never ahead."""

CLEAN = "clean"
"""Written in place after a compaction: below the offset in it nothing is left to do. It can lag."""
CLEANED_SUFFIX = ".cleaned"
"""A segment that compaction is writing."""


def segment_name(base_offset: int) -> str:
    """Return the name of the segment that begins at `base_offset`."""
    return f"{base_offset:020d}{SEGMENT_SUFFIX}"


def index_name(base_offset: int) -> str:
    """Return the name of the index file of the segment that begins at `base_offset`."""
    return f"{base_offset:020d}{INDEX_SUFFIX}"


def base_offset_of(name: str) -> int | None:
    """Return the base offset in a segment's name; None for other files."""
    stem, suffix = name[: -len(SEGMENT_SUFFIX)], name[-len(SEGMENT_SUFFIX) :]
    is_segment = suffix == SEGMENT_SUFFIX and len(stem) == 20 and stem.isascii() and stem.isdecimal()
    return int(stem) if is_segment else None


def encode_offset(offset: int) -> bytes:
    """Encode a file that holds one offset: 20 digits, their CRC-32C, always 30 bytes."""
    digits = f"{offset:020d}"
    return f"{digits} {crc32c(digits.encode()):08x}\n".encode()


def decode_offset(data: bytes) -> int | None:
    """Decode the offset in such a file; None when it isn't sound."""
    digits = data[:20]
    if not digits.isdigit() or data != encode_offset(int(digits)):
        return None
    return int(digits)
