"""Blocks of the map: what is encoded is decoded again, and no bytes whatever do harm."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replicator.offset_map import block
from replicator.offset_map.block import MapBlock, NewerBlock, decode_block, encode_blocks
from replicator.offset_map.section import (
    RECORDS_DIGEST,
    DroppedRecord,
    MapSection,
    SetAside,
    topic_id_bytes,
    topic_id_text,
)
from replicator.offset_map.varints import OFFSET_MAX, BadBlock, put

TOPIC, OTHER_TOPIC = bytes(range(16)), bytes(range(16, 32))
DIGEST = bytes(range(100, 116))
TYPICAL = MapSection(
    source_topic_id=TOPIC,
    partition=7,
    before=212_000_000,
    after=212_010_001,
    leader_epoch=12,
    log_start=150_000_000,
    first_target=231_000_000,
    count=62_000_000,
    digest_kind=RECORDS_DIGEST,
    digest=DIGEST,
    runs=((212_000_000, 212_010_000),),
)


def size(sections: list[MapSection]) -> int:
    return sum(map(len, encode_blocks(3, 2, 1_764_000_000_000, sections)))


def with_runs(number: int, length: int = 100) -> MapSection:
    """As of a transactional source: a marker after each of its transactions."""
    runs = tuple((TYPICAL.before + i * (length + 1), TYPICAL.before + i * (length + 1) + length) for i in range(number))
    return replace(TYPICAL, count=1 << 30, runs=runs, after=TYPICAL.before + number * (length + 1))


def test_a_section_takes_about_44_bytes_and_a_topic_id_only_once() -> None:
    quiet = replace(TYPICAL, runs=())
    assert size([quiet] * 101) - size([quiet]) <= 100 * 44
    assert size([replace(quiet, source_topic_id=OTHER_TOPIC), quiet]) - size([quiet]) <= 60


@pytest.mark.parametrize(("length", "bytes_max"), [(1, 2.0), (100, 2.0), (127, 2.0), (128, 3.0), (10_000, 3.0)])
def test_a_run_takes_two_bytes_up_to_127_records(length: int, bytes_max: float) -> None:
    assert size([with_runs(10_001, length)]) - size([with_runs(1, length)]) <= 10_000 * bytes_max + 10


def test_a_record_takes_a_tenth_of_a_byte_in_large_transactions() -> None:
    assert size([TYPICAL]) / TYPICAL.records < 0.1


def sources(most: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, 300), unique=True, max_size=most).map(sorted)


@st.composite
def sections(draw: st.DrawFn) -> MapSection:
    repair = draw(st.booleans())
    start = draw(st.sampled_from([0, 1, 127, 128, 1 << 35, OFFSET_MAX - 302]))
    offsets = draw(sources(40))
    runs = tuple(dict.fromkeys((start + offset, start + offset + 1) for offset in offsets[::2]))
    merged: list[tuple[int, int]] = []
    for first, end in runs:
        if merged and merged[-1][1] == first:
            merged[-1] = merged[-1][0], end
        else:
            merged.append((first, end))
    aside = tuple(SetAside(start + offset, offset % 16, offset * 5) for offset in offsets[1::4])
    dropped = tuple(DroppedRecord(start + offset, offset) for offset in offsets[3::4])
    gap = draw(st.booleans()) and not offsets and not repair
    kind = draw(st.sampled_from([0, 1, 2, 255]))
    return MapSection(
        source_topic_id=draw(st.sampled_from([TOPIC, OTHER_TOPIC])),
        partition=draw(st.sampled_from([0, 1, 200, (1 << 31) - 1])),
        before=start + 302 if repair else start,
        after=start + 302,
        leader_epoch=draw(st.sampled_from([-1, 0, 5])),
        log_start=draw(st.sampled_from([-1, 0, 1 << 40])),
        first_target=draw(st.integers(0 if merged else -1, OFFSET_MAX - 400)),
        count=draw(st.integers(302, OFFSET_MAX)),
        digest_kind=kind,
        digest=DIGEST if kind else b"",
        runs=tuple(merged),
        aside=aside,
        dropped=dropped,
        base=draw(st.booleans()),
        gap=gap,
        continued=draw(st.booleans()),
    )


@pytest.mark.tier("extended")
@given(st.integers(0, 1 << 40), st.integers(0, 1 << 20), st.integers(-1, 1 << 50), st.lists(sections(), max_size=8))
@settings(max_examples=150, deadline=None)
def test_what_is_encoded_is_decoded_again(generation: int, lane: int, at_ms: int, given_: list[MapSection]) -> None:
    (part,) = encode_blocks(generation, lane, at_ms, given_)
    assert decode_block(part) == MapBlock(generation, lane, at_ms, tuple(given_))


@pytest.mark.tier("extended")
@given(st.lists(sections(), min_size=1, max_size=4), st.data())
@settings(max_examples=200, deadline=None)
def test_damaged_blocks_are_refused_or_read_as_what_they_say(given_: list[MapSection], data: st.DataObject) -> None:
    (whole,) = encode_blocks(1, 2, 3, given_)
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(2, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    read_as_it_says(bytes(damaged[: data.draw(st.integers(len(damaged) // 2, len(damaged)))]))


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_refused_or_read_as_what_they_say(body: bytes) -> None:
    read_as_it_says(bytes((1, 1)) + body)
    read_as_it_says(body)


def read_as_it_says(data: bytes) -> None:
    try:
        found = decode_block(data)
    except BadBlock:
        return
    (again,) = encode_blocks(found.generation, found.lane, found.commit_ms, found.sections)
    assert decode_block(again) == found


def block_with(*numbers: int, rest: bytes = b"") -> bytes:
    out = bytearray((1, 1))
    put(out, 1)
    put(out, 0)
    out += bytes(8)
    for number in numbers:
        put(out, number)
    return bytes(out) + rest


SECTION = (0).to_bytes() + TOPIC + bytes((0, 0, 50, 0, 1, 9, 0, 0))
"""Up to its runs: offsets 0 to 50, first target offset 0."""


def test_the_bytes_of_a_section_are_as_the_format_says() -> None:
    found = decode_block(block_with(1, rest=SECTION + bytes((2, 3, 4, 1, 2))))
    section = MapSection(
        source_topic_id=TOPIC, partition=0, before=0, after=50, first_target=0, count=9, runs=((3, 7), (8, 10))
    )
    assert found.sections == (section,)


WRONG = (
    block_with(1 << 50),
    block_with(600, rest=bytes(3000)),
    block_with(1, rest=SECTION + b"\xff\xff\xff\xff\x7f"),
    block_with(1, rest=SECTION + b"\xff\x07" + bytes(100)),
    block_with(1, rest=SECTION + b"\x01\x00\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
    block_with(1, rest=SECTION + b"\x01\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
    block_with(1, rest=SECTION + b"\x01\x00\x00"),
    block_with(1, rest=SECTION + b"\x02\x00\x01\x00\x01"),
    block_with(1, rest=SECTION + b"\x01\x00\x33"),
    block_with(1, rest=SECTION + b"\x00!"),
    block_with(1, rest=b"\x01" + SECTION[17:] + b"\x00"),
    block_with(1, rest=b"\x40" + SECTION[1:] + b"\x00"),
    block_with(1, rest=b"\x10" + SECTION[1:] + b"\x00\x00"),
    block_with(1, rest=b"\x04" + SECTION[1:] + b"\x01\x00\x01"),
    block_with(1, rest=bytes(15)),
    b"",
    b"\x01\x02" + block_with(0)[2:],
    b"\x00\x01" + block_with(0)[2:],
)


def test_wrong_counts_lengths_and_offsets_are_refused() -> None:
    for data in WRONG:
        with pytest.raises(BadBlock):
            decode_block(data)


def test_a_newer_version_is_named() -> None:
    with pytest.raises(NewerBlock, match="version 2"):
        decode_block(b"\x02\x01")


@pytest.mark.parametrize("data", [b"garbage", b'{"offset": 1}', b"\xff\x01", b" \x01"])
def test_what_something_else_has_written_is_no_newer_version(data: bytes) -> None:
    with pytest.raises(BadBlock) as refused:
        decode_block(data)
    assert not isinstance(refused.value, NewerBlock)


def test_a_block_that_is_too_large_is_refused_before_it_is_looked_at() -> None:
    with pytest.raises(BadBlock, match="bytes"):
        decode_block(block_with(0, rest=bytes(block.PART_BYTES_MAX)))


@pytest.mark.tier("extended")
def test_hostile_blocks_take_bounded_memory() -> None:
    """As many sections, or runs, as fit in so many bytes. What they claim to map is not what they cost."""
    tiny = b"\x01" + bytes((0, 0, 50, 0, 0, 0, 0, 0, 0))
    number = 65_000 // len(tiny)
    many = block_with(number, rest=SECTION + b"\x00" + tiny * (number - 1))
    wide = SECTION[:19] + b"\xff\xff\x7f" + SECTION[20:22] + b"\xff\xff\x7f" + SECTION[23:]
    runs = block_with(1, rest=wide + b"\x90\x4e" + b"\x01\x01" * 10_000)
    for data in (many, runs):
        tracemalloc.start()
        found = decode_block(data)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert found.sections
        assert peak < 80 * len(data)
    too_many = block.RUNS_MAX + 1
    with pytest.raises(BadBlock, match="50001 runs"):
        decode_block(block_with(1, rest=wide + b"\xd1\x86\x03" + b"\x01\x01" * too_many))


@pytest.mark.tier("extended")
def test_parts_are_small_enough_and_together_say_the_same() -> None:
    """Runs, offsets set aside and digests of one transaction come back in order, however it was divided."""
    wide = tuple((i << 40, (i << 40) + (1 << 35)) for i in range(1, 50_000))
    huge = replace(TYPICAL, before=0, after=OFFSET_MAX, runs=wide, aside=(SetAside(5, 0, 1),), first_target=1_000)
    huge = replace(huge, count=1 << 60)
    many = replace(TYPICAL, partition=8, dropped=tuple(DroppedRecord(TYPICAL.before + i, 1) for i in range(10_001)))
    many = replace(many, runs=())
    parts = encode_blocks(1, 1, 0, [huge, *[many] * 40, TYPICAL])
    assert len(parts) > 2
    assert max(map(len, parts)) <= block.PART_BYTES_MAX
    found = [section for part in parts for section in decode_block(part).sections]
    pieces = [section for section in found if section.partition == 7][:-1]
    assert [run for piece in pieces for run in piece.runs] == list(wide)
    assert [one for piece in pieces for one in piece.aside] == [SetAside(5, 0, 1)]
    assert [piece.digest for piece in pieces] == [b""] * (len(pieces) - 1) + [DIGEST]
    assert [piece.continued for piece in pieces] == [True] * (len(pieces) - 1) + [False]
    assert [piece.before for piece in pieces] == [0, *(piece.after for piece in pieces[:-1])]
    firsts, counts = [piece.first_target for piece in pieces], [piece.records for piece in pieces]
    assert firsts == [1_000 + sum(counts[:i]) for i in range(len(counts))]
    assert found[-1] == TYPICAL


def test_a_transaction_with_more_runs_than_a_block_may_have_is_divided() -> None:
    parts = encode_blocks(1, 1, 0, [with_runs(50_001), with_runs(10)])
    runs = [sum(len(section.runs) for section in decode_block(part).sections) for part in parts]
    assert max(runs) <= block.RUNS_MAX
    assert sum(runs) == 50_011


def test_a_repair_lies_below_its_position() -> None:
    repair = replace(TYPICAL, before=500, after=500, runs=((3, 5), (400, 401)))
    assert repair.repair
    (part,) = encode_blocks(1, 1, 0, [repair])
    assert decode_block(part).sections == (repair,)
    with pytest.raises(ValueError, match="not in 0 to 500"):
        encode_blocks(1, 1, 0, [replace(repair, runs=((500, 501),))])


def test_topic_ids_are_those_of_positions_in_either_alphabet() -> None:
    raw = bytes((0xFB, 0xFF, *range(14)))
    assert topic_id_bytes(topic_id_text(raw)) == raw
    assert topic_id_bytes(topic_id_text(raw).replace("+", "-").replace("/", "_")) == raw
    for wrong in ("", "AAAA", "no id!" * 4):
        with pytest.raises(ValueError, match="no topic id"):
            topic_id_bytes(wrong)
