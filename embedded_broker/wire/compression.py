"""Decompression of record batches, capped. Batches are stored as they came; this is for looking inside."""

from __future__ import annotations

import io
import zlib
from typing import Any, TypeVar

import cramjam

from embedded_broker.wire.batch import Buffer, CorruptBatch

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
_XERIAL = b"\x82SNAPPY\x00"
_CHUNK = 65_536
T = TypeVar("T", bytes, bytearray)


def decompress(codec: int, data: Buffer, bytes_max: int) -> bytes:
    """Plain bytes of a compressed batch body; raises CorruptBatch when broken or larger than `bytes_max`."""
    try:
        if codec == GZIP:
            return _capped(zlib.decompressobj(31).decompress(bytes(data), bytes_max + 1), bytes_max)
        if codec == SNAPPY:
            return _snappy(bytes(data), bytes_max)
        if codec == LZ4:
            return _stream(cramjam.lz4.Decompressor(), data, bytes_max)
        if codec == ZSTD:
            return _stream(cramjam.zstd.Decompressor(), data, bytes_max)
    except (cramjam.DecompressionError, zlib.error, ValueError) as error:
        raise CorruptBatch(f"compressed body cannot be read: {error}") from error
    raise CorruptBatch(f"unknown compression {codec}")


def _stream(decompressor: Any, data: Buffer, bytes_max: int) -> bytes:
    source, out = io.BytesIO(data), bytearray()
    while chunk := source.read(_CHUNK):
        decompressor.decompress(chunk)
        out += bytes(decompressor.flush())
        _capped(out, bytes_max)
    out += bytes(decompressor.finish())
    return bytes(_capped(out, bytes_max))


def _snappy(data: bytes, bytes_max: int) -> bytes:
    if not data.startswith(_XERIAL):
        return bytes(_capped(bytes(cramjam.snappy.decompress_raw(data)), bytes_max))
    at, out = 16, bytearray()
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        out += bytes(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + size]))
        _capped(out, bytes_max)
        at += 4 + size
    return bytes(out)


def _capped(data: T, bytes_max: int) -> T:
    if len(data) > bytes_max:
        raise CorruptBatch(f"decompresses to more than {bytes_max} bytes")
    return data
