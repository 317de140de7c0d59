"""Records as a comparison sees them: the digest is that of the fields, whatever batch they stand in."""

from __future__ import annotations

import random

import pytest

from integration_tests.harness import batches
from kafka_records.batch import CorruptBatch, read_header
from kafka_records.records import body_of, decode
from replicator.offset_map.verdicts import ComparedRecord
from replicator.proof.record_digests import KEY_BYTES_MAX, compared_records

pytestmark = pytest.mark.tier("default")

Headers = tuple[tuple[bytes, bytes | None], ...]
Fields = tuple[bytes | None, bytes | None, Headers, int]


def read(data: bytes) -> list[ComparedRecord]:
    header = read_header(data)
    return list(compared_records(header, body_of(header, data)))


def encoded(fields: Fields, delta: int, base_ms: int) -> bytes:
    key, value, headers, time_ms = fields
    body = b"\x00" + batches.varint(time_ms - base_ms) + batches.varint(delta) + batches.field(key)
    body += batches.field(value) + batches.varint(len(headers))
    body += b"".join(batches.field(name) + batches.field(content) for name, content in headers)
    return batches.varint(len(body)) + body


def drawn_fields(drawn: random.Random) -> Fields:
    sizes = (0, 1, 2, 63, 64, 65, 127, 300)
    key, value, one = (None if drawn.random() < 0.2 else drawn.randbytes(drawn.choice(sizes)) for _ in range(3))
    headers = tuple((drawn.randbytes(drawn.choice((0, 1, 70))), one) for _ in range(drawn.choice((0, 0, 0, 1, 2, 70))))
    return key, value, headers, drawn.choice((0, 5, 1_700_000_000_123, 1 << 40))


@pytest.mark.parametrize("codec", range(5))
def test_equal_fields_have_equal_digests_and_others_do_not(codec: int) -> None:
    drawn = random.Random(codec)
    fields = [drawn_fields(drawn) for _ in range(400)]
    digests: dict[Fields, set[bytes]] = {}
    for base_ms in (0, 1_700_000_000_000):
        records = [encoded(one, delta, base_ms) for delta, one in enumerate(fields)]
        data = bytes(batches.batch(records, attributes=codec, base_offset=77, timestamp_ms=base_ms))
        for one, found, plain in zip(fields, read(data), decode(data), strict=True):
            assert (found.offset, found.timestamp_ms) == (plain.offset, plain.timestamp_ms)
            assert found.tombstone is (plain.value is None)
            assert (found.key is None) is (plain.key is None)
            if plain.key is not None:
                assert found.key is not None
                assert found.key[:KEY_BYTES_MAX] == plain.key[:KEY_BYTES_MAX]
                assert len(found.key) == len(plain.key) or len(plain.key) > KEY_BYTES_MAX
            digests.setdefault(one, set()).add(found.digest)
    assert all(len(found) == 1 for found in digests.values())
    assert len(set.union(*digests.values())) == len(digests)


def test_a_number_that_could_be_shorter_makes_no_other_record() -> None:
    plain = encoded((b"k", b"v", ((b"h", b"x"),), 0), 0, 0)
    long_key = (
        b"\x00\x00\x00" + b"\x82\x00k" + batches.field(b"v") + b"\x02" + batches.field(b"h") + batches.field(b"x")
    )
    long_value = b"\x00\x00\x00" + batches.field(b"k") + b"\x82\x00v" + b"\x00"
    long_count = b"\x00\x00\x00" + batches.field(b"k") + batches.field(b"v") + b"\x80\x00"
    long_header = b"\x00\x00\x00" + batches.field(b"k") + batches.field(b"v") + b"\x82\x00" + b"\x82\x00h\x02x"
    bare = encoded((b"k", b"v", (), 0), 0, 0)
    for expected, body in ((plain, long_key), (plain, long_header), (bare, long_value), (bare, long_count)):
        one, other = (
            read(bytes(batches.batch([it], timestamp_ms=5))) for it in (expected, batches.varint(len(body)) + body)
        )
        assert one[0].digest == other[0].digest


def test_the_time_of_the_broker_counts_where_the_topic_has_it() -> None:
    records = [encoded((b"k", b"v", (), 9), 0, 0)]
    found = read(bytes(batches.batch(records, attributes=batches.LOG_APPEND_TIME, timestamp_ms=5)))
    plain = decode(bytes(batches.batch(records, attributes=batches.LOG_APPEND_TIME, timestamp_ms=5)))
    assert found[0].timestamp_ms == plain[0].timestamp_ms


def test_broken_bytes_are_refused_as_elsewhere() -> None:
    drawn = random.Random(5)
    refused = 0
    for _ in range(3_000):
        fields = [drawn_fields(drawn) for _ in range(2)]
        body = bytearray(b"".join(encoded(one, delta, 0) for delta, one in enumerate(fields)))
        body[drawn.randrange(len(body))] = drawn.randrange(256)
        data = bytes(batches.batch(body=bytes(body[: drawn.choice((len(body), len(body) - 1))]), count=2))
        try:
            plain = decode(data)
        except CorruptBatch:
            refused += 1
            with pytest.raises(CorruptBatch):
                read(data)
        else:
            assert [one.offset for one in read(data)] == [one.offset for one in plain]
    assert refused > 500
