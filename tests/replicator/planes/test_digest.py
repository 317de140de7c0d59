"""The payload digest: every field of a record counts, and blocks chain."""

from __future__ import annotations

import hashlib
import struct

import pytest

from replicator.planes.records.digest import Chain

Fields = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]


def digest(*records: Fields, previous: str = "") -> str:
    chain = Chain(previous)
    chain.update((key, value, timestamp_ms, headers) for timestamp_ms, key, value, headers in records)
    return chain.hexdigest()


def test_the_canonical_bytes_are_those_that_the_format_names() -> None:
    raw = struct.pack(">qi", 5, 1) + b"k"
    plain = struct.pack(">qii", 5, 1, 2) + b"k" + b"vv" + struct.pack(">i", 1)
    plain += struct.pack(">i", 1) + b"h" + struct.pack(">i", -1)
    assert digest((5, b"k", b"vv", [("h", None)])) == hashlib.blake2b(plain, digest_size=16).hexdigest()
    assert raw not in plain


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((1, None, b"a", None), (1, b"", b"a", None)),
        ((1, b"a", None, None), (1, None, b"a", None)),
        ((1, b"a", None, None), (1, b"a", b"", None)),
        ((1, b"ab", b"c", None), (1, b"a", b"bc", None)),
        ((1, b"a", b"b", None), (2, b"a", b"b", None)),
        ((1, b"a", b"b", [("x", b"1"), ("y", b"2")]), (1, b"a", b"b", [("y", b"2"), ("x", b"1")])),
        ((1, b"a", b"b", [("x", b"")]), (1, b"a", b"b", [("x", None)])),
        ((1, b"a", b"b", [("x", b"1")]), (1, b"a", b"b", [("x", b"1"), ("x", b"1")])),
    ],
)
def test_records_that_differ_have_different_digests(one: Fields, other: Fields) -> None:
    assert digest(one) != digest(other)


def test_order_counts() -> None:
    one, other = (1, b"a", b"b", None), (1, b"c", b"d", None)
    assert digest(one, other) != digest(other, one)


def test_a_block_chains_to_the_one_before() -> None:
    record: Fields = (1, b"a", b"b", None)
    before = digest(record)
    assert digest(record, previous=before) != before
    assert (
        digest(record, previous=before)
        == hashlib.blake2b(
            bytes.fromhex(before) + struct.pack(">qii", 1, 1, 1) + b"ab" + struct.pack(">i", 0), digest_size=16
        ).hexdigest()
    )
