"""Bodies of any size come out of every codec as they went in, and never more than is allowed."""

from __future__ import annotations

from collections.abc import Callable
from mmap import mmap

import cramjam
import pytest

from kafka_records import compression
from kafka_records.compression import GZIP, LZ4, ZSTD, DecodedTooLarge, decompress

MIB = 1024 * 1024
CODECS: dict[int, Callable[[bytes], object]] = {
    GZIP: cramjam.gzip.compress,
    LZ4: cramjam.lz4.compress,
    ZSTD: cramjam.zstd.compress,
}


def compressed(codec: int, body: bytes) -> bytes:
    return bytes(CODECS[codec](body))  # type: ignore[call-overload,no-any-return]


@pytest.mark.tier("default")
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0, 1, 70_000, 5 * MIB, 16 * MIB])
def test_a_body_comes_out_as_it_went_in(codec: int, size: int) -> None:
    body = (bytes(range(251)) * (size // 251 + 1))[:size]
    out = decompress(codec, compressed(codec, body), 16 * MIB)
    assert len(out) == size
    assert out[:] == body
    assert isinstance(out, mmap) == (size > 4 * MIB)


@pytest.mark.parametrize("codec", CODECS)
def test_more_than_is_allowed_is_refused(codec: int) -> None:
    data = compressed(codec, bytes(8 * MIB + 1))
    with pytest.raises(DecodedTooLarge):
        decompress(codec, data, 8 * MIB)
    assert len(decompress(codec, data, 8 * MIB + 1)) == 8 * MIB + 1


def test_nothing_may_come_out_where_much_was_expected() -> None:
    empty = compressed(GZIP, b"")
    assert compression._cut(mmap(-1, 8 * MIB), 0) == b""
    assert decompress(GZIP, empty, MIB) == b""


def test_a_system_that_cannot_shorten_memory_gets_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fixed(mmap):
        def resize(self, newsize: int) -> None:
            raise SystemError("mmap: resizing not available--no mremap()")

    monkeypatch.setattr(compression, "mmap", Fixed)
    out = decompress(ZSTD, compressed(ZSTD, b"a" * (5 * MIB)), 64 * MIB)
    assert isinstance(out, bytearray)
    assert out == b"a" * (5 * MIB)
