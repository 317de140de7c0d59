"""Batches of every codec, of every kind and of none: which offsets they span, and which hold a record."""

from __future__ import annotations

import resource

import cramjam
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from integration_tests.harness import batches as raw
from kafka_records import fetched as batches
from kafka_records.batch import CorruptBatch
from kafka_records.compression import DecodedTooLarge
from kafka_records.fetched import FetchedBatch, OldMessage
from tests.budget import budget
from tests.kafka_records.batches import with_right_crcs
from tests.replicator.wire.logs import CODECS, XERIAL, batch, old_message, ranges

MIB = 2**20


def only(data: bytes) -> FetchedBatch:
    (found,) = batches.read_batches(data)
    assert isinstance(found, FetchedBatch)
    return found


def holes(data: bytes, decoded_bytes_max: int = MIB) -> list[tuple[int, int]]:
    return batches.holes_in(only(data), decoded_bytes_max)


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_as_it_was_produced_has_no_holes(codec: str) -> None:
    assert holes(batch(100, 149, codec=codec)) == []


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kept", [{100}, {149}, {101, 102, 148}, {100, 149}, set(range(100, 149)), set()])
def test_what_compaction_took_out_of_a_batch_are_holes(codec: str, kept: set[int]) -> None:
    found = only(batch(100, 149, kept, codec))
    assert (found.first_offset, found.last_offset) == (100, 149)
    assert batches.holes_in(found, MIB) == ranges(set(range(100, 150)) - kept)


def test_large_times_and_deltas_are_walked_over() -> None:
    records = [raw.record(b"v", offset=delta, after_ms=2**40 + delta) for delta in (5, 700, 40_000)]
    assert holes(raw.batch(records, last_delta=70_000)) == [(0, 5), (6, 700), (701, 40_000), (40_001, 70_001)]


def test_a_marker_has_its_offset_and_an_emptied_one_is_a_hole() -> None:
    attributes = raw.TRANSACTIONAL | raw.CONTROL
    key, value = b"\0\0\0\1", bytes(6)
    marker = raw.batch([raw.record(value, key)], attributes=attributes, base_offset=7, producer=(3, 0))
    assert holes(marker) == []
    assert holes(raw.batch(attributes=attributes, base_offset=7, last_delta=0, producer=(3, 0))) == [(7, 8)]


def test_batches_follow_each_other_and_the_last_may_be_cut() -> None:
    parts = [batch(0, 4), batch(5, 9, {7}, "zstd"), batch(20, 20)]
    data = b"".join(parts)
    for cut in range(len(data) + 1):
        whole = 0
        while whole < len(parts) and cut >= len(b"".join(parts[: whole + 1])):
            whole += 1
        found = list(batches.read_batches(data[:cut]))
        assert [each.last_offset for each in found] == [4, 9, 20][:whole]


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_before_v2_tell_their_last_offset_only(magic: int) -> None:
    old = [old_message(12, magic), old_message(19, magic)]
    found = list(batches.read_batches(b"".join(old) + batch(20, 21)))
    assert [found[0], found[1]] == [OldMessage(12, memoryview(old[0])), OldMessage(19, memoryview(old[1]))]
    assert found[2].last_offset == 21


def changed(at: int, value: bytes, data: bytes | None = None) -> bytes:
    """A batch with other bytes at `at`, and the CRC of those."""
    found = bytearray(batch(10, 19) if data is None else data)
    found[at : at + len(value)] = value
    found[17:21] = crc32c(bytes(found[21:])).to_bytes(4, "big")
    return bytes(found)


INT = {name: value.to_bytes(4, "big", signed=True) for name, value in {"-1": -1, "7": 7, "most": 2**31 - 1}.items()}
LIES = {
    "CRC": (bytes(batch(10, 19)[:-1]) + b"\xff", "CRC"),
    "a flag outside the CRC's reach is inside it": (batch(10, 19)[:22] + b"\x10" + batch(10, 19)[23:], "CRC"),
    "negative base offset": (changed(0, b"\xff" * 8), "at offset -1"),
    "offsets above the largest": (changed(0, b"\x7f" + b"\xff" * 7), "9 from its first offset"),
    "negative length": (changed(8, INT["-1"]), "-1 bytes"),
    "short length": (changed(8, INT["7"]), "7 bytes"),
    "a length without room for a header": (changed(8, (30).to_bytes(4, "big")), "too few"),
    "format 3": (changed(16, b"\3"), "magic 3"),
    "format -1": (changed(16, b"\xff"), "magic -1"),
    "negative count": (changed(57, INT["-1"]), "-1 records"),
    "more records than offsets": (changed(57, (11).to_bytes(4, "big")), "11 records"),
    "negative last offset": (changed(23, INT["-1"]), "-1 from its first"),
    "overlap": (batch(10, 19) + batch(19, 20), "follows one that ends at offset 19"),
}


@pytest.mark.parametrize(("data", "said"), LIES.values(), ids=LIES.keys())
def test_a_header_that_cannot_be_is_corrupt(data: bytes, said: str) -> None:
    with pytest.raises(CorruptBatch, match=said):
        list(batches.read_batches(data))


def compacted(*records: bytes, count: int | None = None, last_delta: int = 9, body: bytes | None = None) -> bytes:
    return raw.batch(records, count=count, last_delta=last_delta, body=body, base_offset=10)


ONE = raw.record(offset=3)
BAD_RECORDS = {
    "one too few": (compacted(ONE, count=2), "inside a number"),
    "one too many": (compacted(ONE, ONE, count=1), "9 bytes after the last"),
    "records where there are none": (compacted(ONE, count=0), "9 bytes after the last"),
    "out of order": (compacted(raw.record(offset=3), raw.record(offset=2)), "2 offsets from its first"),
    "twice the same": (compacted(ONE, ONE), "3 offsets from its first"),
    "behind the last": (compacted(raw.record(offset=10)), "10 offsets from its first"),
    "before the first": (compacted(raw.record(offset=-1)), "-1 offsets from its first"),
    "too long": (compacted(raw.record(offset=3, length=1)), "of 9 bytes in 8"),
    "too short": (compacted(raw.record(offset=3, length=-1)), "1 bytes after the last"),
    "length 0": (compacted(body=b"\0" * 20, count=1), "record of 0 bytes"),
    "negative length": (compacted(body=b"\1" * 20, count=1), "record of -1 bytes"),
    "length without an end": (compacted(body=b"\xff" * 20, count=1), "longer than"),
    "time without an end": (compacted(body=raw.varint(30) + b"\xff" * 30, count=1), "longer than 64 bits"),
    "too long a time": (
        compacted(body=raw.varint(30) + b"\0" + b"\xff" * 20 + bytes(9), count=1),
        "longer than 64 bits",
    ),
    "ends before its offset": (compacted(body=raw.varint(2) + b"\0\0" + ONE, count=2), "inside a number"),
    "nothing": (compacted(body=b"", count=1), "inside a number"),
    "most records": (compacted(count=2**31 - 2, last_delta=2**31 - 1, body=ONE), "inside a number"),
}


@pytest.mark.parametrize(("data", "said"), BAD_RECORDS.values(), ids=BAD_RECORDS.keys())
def test_records_that_are_not_what_the_header_says_are_corrupt(data: bytes, said: str) -> None:
    with pytest.raises(CorruptBatch, match=said) as caught:
        holes(data)
    assert caught.value.offset == 10


def compressed(codec: int, body: bytes) -> bytes:
    return raw.batch(body=body, attributes=codec, count=1, last_delta=9, base_offset=10)


@pytest.mark.parametrize(
    ("codec", "body"),
    [
        *((codec, b"no such thing at all") for codec in (1, 2, 3, 4)),
        (2, b"\xff\xff\xff\xff\x0f" + ONE),  # claims 4 GiB
        (2, XERIAL + b"\x7f\xff\xff\xff" + ONE),
        (2, XERIAL + b"\0\0\0\0" + ONE),
        (2, XERIAL + b"\0\0"),
        (5, ONE),
        (7, ONE),
    ],
)
def test_what_cannot_be_decompressed_is_corrupt(codec: int, body: bytes) -> None:
    with pytest.raises(CorruptBatch):
        holes(compressed(codec, body))


@pytest.mark.parametrize("codec", CODECS[1:])
def test_no_more_is_decompressed_than_allowed(codec: str) -> None:
    data = batch(0, 9, {3}, codec, size=200_000)
    assert holes(data) == [(0, 3), (4, 10)]
    with pytest.raises(DecodedTooLarge):
        holes(data, 200_000)


@pytest.mark.tier("extended")
@pytest.mark.parametrize("codec", [1, 3, 4])
def test_a_bomb_takes_no_more_memory_than_allowed(codec: int) -> None:
    data = compressed(codec, raw.COMPRESS[codec](bytes(200 * MIB)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DecodedTooLarge):
        holes(data, 8 * MIB)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40 * 1024


SEEDS = [batch(10, 29, {11, 12, 25}, codec) + batch(30, 34) + batch(40, 44, set()) for codec in CODECS]
SEEDS.append(old_message(12, 1) + batch(20, 21, {21}, "gzip"))


def survives(data: bytes) -> None:
    """Whatever it is, it is read or refused, and what is read makes sense."""
    after = -1
    try:
        for found in batches.read_batches(data):
            assert found.last_offset > after
            after = found.last_offset
            if isinstance(found, FetchedBatch):
                spans = batches.holes_in(found, MIB)
                held = sum(end - first for first, end in spans)
                assert all(found.first_offset <= first < end <= found.last_offset + 1 for first, end in spans)
                assert held + found.header.record_count == found.last_offset - found.first_offset + 1
    except CorruptBatch:
        pass


@pytest.mark.tier("extended")
@given(
    st.sampled_from(SEEDS),
    st.lists(st.tuples(st.integers(0, 400), st.binary(min_size=1, max_size=6)), max_size=6),
    st.booleans(),
)
@settings(max_examples=budget(1_000, 100_000))
def test_mutated_bytes_are_read_or_refused(seed: bytes, changes: list[tuple[int, bytes]], right: bool) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    made = bytearray(seed)
    for at, value in changes:
        made[at : at + len(value)] = value
    survives(with_right_crcs(bytes(made)) if right else bytes(made))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024


@given(st.binary(max_size=400))
@settings(max_examples=budget(300, 50_000))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    survives(data)
    survives(with_right_crcs(data))


def test_java_and_librdkafka_write_snappy_differently() -> None:
    """Neither is the framing format of Google's library."""
    framed = bytes(cramjam.snappy.compress(ONE))
    with pytest.raises(CorruptBatch):
        holes(compressed(2, framed))
