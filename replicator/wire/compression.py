"""Decompression of record batches, bounded by what is allowed and not by what the data claims. Pure. Used by `batches`.

Every codec writes into a buffer of a fixed size that grows while it is too small: 64 KiB of zstd can claim 2 GiB.
Formats: org.apache.kafka.common.compress.
"""

from __future__ import annotations

from collections.abc import Callable

import cramjam

_SNAPPY = 2
_INTO: dict[int, Callable[[memoryview, bytearray], int]] = {
    1: cramjam.gzip.decompress_into,
    3: cramjam.lz4.decompress_into,
    4: cramjam.zstd.decompress_into,
}
# What Java's snappy library puts around blocks: this magic, two version numbers, then blocks behind their lengths.
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_SNAPPY_RATIO_MAX = 22  # three bytes copy 64 at most
_FIRST_BYTES = 64 * 1024
_GROWTH = 4
_TOO_SMALL = "failed to write whole buffer"  # how cramjam says it; other errors are in the data


class Undecodable(ValueError):
    """The records of a batch aren't what its header says."""


class TooLarge(ValueError):
    """The records of a batch are larger than allowed, once decompressed."""


def decompress(codec: int, data: memoryview, bytes_max: int) -> bytes | memoryview:
    """The records of a compressed batch.

    Args:
        codec: compression type of the batch's attributes.
        data: what follows the batch's header.
        bytes_max: cap on what comes out; little more than that is ever allocated.

    Raises:
        Undecodable: the data are broken, or of an unknown codec.
        TooLarge: more than `bytes_max` would come out.
    """
    try:
        if codec == _SNAPPY:
            return _snappy(data, bytes_max)
        if codec in _INTO:
            return _into(_INTO[codec], data, bytes_max)
    except cramjam.DecompressionError as error:
        raise Undecodable(f"its records can't be decompressed: {error}") from error
    raise Undecodable(f"it has the unknown compression {codec}")


def _into(decompress_into: Callable[[memoryview, bytearray], int], data: memoryview, bytes_max: int) -> memoryview:
    size = min(max(_FIRST_BYTES, _GROWTH * len(data)), bytes_max)
    while True:
        out = bytearray(size)
        try:
            return memoryview(out)[: decompress_into(data, out)]
        except cramjam.DecompressionError as error:
            if _TOO_SMALL not in str(error):
                raise
            if size == bytes_max:
                raise TooLarge(f"more than {bytes_max} bytes of records in one batch") from error
            size = min(_GROWTH * size, bytes_max)


def _snappy(data: memoryview, bytes_max: int) -> bytes | memoryview:
    """One raw block, as librdkafka writes, or blocks in the framing of Java's library."""
    if data[: len(_XERIAL)] != _XERIAL:
        return _snappy_block(data, bytes_max)
    at, out = _XERIAL_HEADER_BYTES, bytearray()
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        at += 4
        if size == 0 or size > len(data) - at:
            raise Undecodable(f"a snappy block of {size} bytes where {len(data) - at} are left")
        out += _snappy_block(data[at : at + size], bytes_max - len(out))
        at += size
    return memoryview(out)


def _snappy_block(data: memoryview, bytes_max: int) -> memoryview:
    size = cramjam.snappy.decompress_raw_len(data)  # what the block claims
    if size > _SNAPPY_RATIO_MAX * len(data):
        raise Undecodable(f"{len(data)} bytes of snappy claim to be {size}")
    if size > bytes_max:
        raise TooLarge(f"more than {bytes_max} bytes of records in one batch")
    out = bytearray(size)
    return memoryview(out)[: cramjam.snappy.decompress_raw_into(data, out)]
