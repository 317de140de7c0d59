"""Decompression of record batches, capped. Batches are stored as they came; this is for looking inside.

A cap on what comes out is no use if it is checked afterwards: 64 KiB of zstd can claim 2 GiB. So every codec writes
into a buffer of a fixed size, which grows up to the cap while it is too small.
"""

from __future__ import annotations

from collections.abc import Callable
from mmap import mmap

import cramjam

from kafka_records.batch import Buffer, CorruptBatch

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
COMPRESSION_TYPES = {"uncompressed": 0, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
"""As the topic config compression.type names them, which has also `producer`; and as batches do."""
Decompressed = bytearray | mmap
"""A large body is memory of its own: making a bytearray of 64 MiB stops all threads for 50 ms."""
_INTO: dict[int, Callable[[Buffer, Decompressed], int]] = {
    GZIP: cramjam.gzip.decompress_into,
    LZ4: cramjam.lz4.decompress_into,
    ZSTD: cramjam.zstd.decompress_into,
}
# What Java's snappy library puts around blocks: this magic, two version numbers, then blocks behind their lengths.
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_SNAPPY_RATIO_MAX = 22  # three bytes copy 64 at most
_GUESS_BYTES_MIN = 64 * 1024
_LARGE_BYTES = 4 * 1024 * 1024
_TOO_SMALL = "failed to write whole buffer"  # how cramjam says it; other errors are in the data


class DecodedTooLarge(CorruptBatch):
    """More comes out of a compressed body than is allowed."""


def decompress(codec: int, data: Buffer, bytes_max: int) -> Decompressed:
    """Return the plain bytes of a compressed batch body. May be called in any thread, and lets others run meanwhile.

    Args:
        codec: compression type of the batch's attributes.
        data: the body, without the batch header.
        bytes_max: cap on what comes out; little more than that is ever allocated.

    Raises DecodedTooLarge when more than the cap comes out, CorruptBatch when the body is broken or of no known
    codec.
    """
    try:
        if codec == SNAPPY:
            return _snappy(data, bytes_max)
        if codec in _INTO:
            return _into(_INTO[codec], data, bytes_max)
    except cramjam.DecompressionError as error:
        kind = DecodedTooLarge if _TOO_SMALL in str(error) else CorruptBatch
        raise kind(f"compressed body cannot be read within {bytes_max} bytes: {error}") from error
    raise CorruptBatch(f"unknown compression {codec}")


def _into(decompress_into: Callable[[Buffer, Decompressed], int], data: Buffer, bytes_max: int) -> Decompressed:
    """Decompress with growing buffers."""
    size = min(max(_GUESS_BYTES_MIN, 4 * len(data)), bytes_max)
    while True:
        out = bytearray(size) if size < _LARGE_BYTES else mmap(-1, size)
        try:
            return _cut(out, decompress_into(data, out))
        except cramjam.DecompressionError as error:
            del out  # before there is a larger one, and the traceback would keep it for as long as the error is known
            if size == bytes_max or _TOO_SMALL not in str(error):
                raise
            size = min(4 * size, bytes_max)


def _cut(out: Decompressed, size: int) -> Decompressed:
    """Return the first `size` bytes."""
    if isinstance(out, bytearray):
        del out[size:]
        return out
    if not size:
        return bytearray()
    try:
        out.resize(size)
    except SystemError:  # not on this system
        return bytearray(out[:size])
    return out


def _snappy(data: Buffer, bytes_max: int) -> bytearray:
    """Decompress one raw block, or blocks in the framing of Java's library."""
    view = memoryview(data)
    if view[: len(_XERIAL)] != _XERIAL:
        return _snappy_block(view, bytes_max)
    at, out = _XERIAL_HEADER_BYTES, bytearray()
    while at < len(view):
        size = int.from_bytes(view[at : at + 4], "big")
        at += 4
        if size == 0 or size > len(view) - at:
            raise CorruptBatch(f"snappy block of {size} bytes in {len(view) - at}")
        out += _snappy_block(view[at : at + size], bytes_max - len(out))
        at += size
    return out


def _snappy_block(data: memoryview, bytes_max: int) -> bytearray:
    size = cramjam.snappy.decompress_raw_len(data)  # what the block claims
    if size > _SNAPPY_RATIO_MAX * len(data):
        raise CorruptBatch(f"{len(data)} bytes of snappy claim to be {size}")
    if size > bytes_max:
        raise DecodedTooLarge(f"snappy block decompresses to {size} bytes, {bytes_max} are allowed")
    out = bytearray(size)
    del out[cramjam.snappy.decompress_raw_into(data, out) :]
    return out
