"""Pages of the map's index and its directories: what is encoded is decoded again, and no bytes whatever do harm."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replicator.offset_map import directory
from replicator.offset_map.block import NewerBlock
from replicator.offset_map.directory import (
    CHANGES_BYTES_MAX,
    EntryChange,
    IndexRoot,
    PageDirectory,
    PagePartition,
    PageRef,
    PartitionEntry,
    decode_root,
    encode_changes,
    encode_root,
)
from replicator.offset_map.page import PAGE_BYTES_MAX, MapPage, TimedSection, decode_page, digest_of_all, encode_page
from replicator.offset_map.section import GROUPED_DIGEST, NO_DIGEST, RECORDS_DIGEST, MapSection, PrunedCopies
from replicator.offset_map.varints import BadBlock
from tests.replicator.offset_map.test_block import DIGEST, TOPIC, TYPICAL, sections


def one_record(number: int) -> TimedSection:
    """A transaction of one record; its marker follows on the target."""
    section = replace(
        TYPICAL,
        before=number,
        after=number + 1,
        first_target=2 * number,
        count=number + 1,
        runs=((number, number + 1),),
        digest_kind=NO_DIGEST,
        digest=b"",
    )
    return TimedSection(3, 1_764_000_000_000 + 100 * number, section)


def page_of(given_: list[TimedSection]) -> MapPage:
    page = MapPage(TOPIC, 7)
    for one in given_:
        page.add(one._replace(section=replace(one.section, source_topic_id=TOPIC, partition=7)))
    return page


def test_a_transaction_of_one_record_takes_five_bytes() -> None:
    many = [one_record(number) for number in range(1_000)]
    assert len(encode_page(page_of(many))) <= 1_000 * 5 + 60


times = st.integers(-(1 << 40), 1 << 45)


@pytest.mark.tier("extended")
@given(st.lists(st.tuples(st.integers(0, 5), times, sections()), min_size=1, max_size=8))
@settings(max_examples=150, deadline=None)
def test_what_is_put_into_a_page_is_read_again(given_: list[tuple[int, int, MapSection]]) -> None:
    page = page_of([TimedSection(*one) for one in given_ if one[2].digest_kind != GROUPED_DIGEST] or [one_record(0)])
    read = decode_page(encode_page(page))
    assert read.digests == page.digests
    assert [_bare(one) for one in read.sections] == [_bare(one) for one in page.sections]
    assert encode_page(read) == encode_page(page)


def _bare(one: TimedSection) -> TimedSection:
    return one._replace(section=replace(one.section, digest=b"" if one.section.digest_kind == NO_DIGEST else DIGEST))


def test_pruned_sections_are_read_again() -> None:
    pruned = PrunedCopies(((5, 90, 80), (3, 4, 1)), 700, 12)
    section = replace(one_record(4).section, runs=(), first_target=600, count=1_000, pruned=pruned)
    assert decode_page(encode_page(page_of([TimedSection(1, 5, section)]))).sections[0].section.pruned == pruned


def test_digests_are_those_of_their_sections() -> None:
    of = [bytes([number]) * 16 for number in range(5)]
    with_digest = [
        one._replace(section=replace(one.section, digest_kind=RECORDS_DIGEST, digest=digest))
        for one, digest in zip([one_record(number) for number in range(5)], of, strict=True)
    ]
    first, other = page_of(with_digest[:2]), page_of(with_digest[2:4])
    first.join(other)
    first.add(with_digest[4])
    read = decode_page(encode_page(first))
    assert [(one.first, one.end, one.digest) for one in read.digests] == [
        (0, 2, digest_of_all(of[:2])),
        (2, 5, digest_of_all(of[2:])),
    ]
    assert [one.section.digest for one in read.sections] == [digest_of_all(of[:2])] * 2 + [digest_of_all(of[2:])] * 3


@pytest.mark.tier("extended")
@given(st.lists(sections(), min_size=1, max_size=4), st.data())
@settings(max_examples=200, deadline=None)
def test_damaged_pages_are_refused_or_read_as_what_they_say(given_: list[MapSection], data: st.DataObject) -> None:
    whole = encode_page(
        page_of([TimedSection(1, 2, one) for one in given_ if one.digest_kind != GROUPED_DIGEST] or [one_record(1)])
    )
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    damaged = damaged[: data.draw(st.integers(len(damaged) // 2, len(damaged)))]
    try:
        page = decode_page(bytes(damaged))
    except BadBlock:
        return
    assert decode_page(encode_page(page)).sections == page.sections


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_refused_by_name(data: bytes) -> None:
    for decode in (decode_page, decode_root, PageDirectory().take):
        for start in (b"", b"\x01\x02" + TOPIC, b"\x01\x03\x01", b"\x01\x04"):
            try:
                decode(start + data)
            except BadBlock:
                continue


@pytest.mark.tier("full")
def test_bytes_that_claim_much_cost_little() -> None:
    claims = [
        b"\x01\x02" + TOPIC + b"\x07" + bytes(8) + b"\xff\xff\x03" + b"\x00" * 20_000,
        b"\x01\x02" + TOPIC + b"\x07" + bytes(8) + b"\x80\x80\x04" + b"\x40\x01\x00\x00" * 65_536,
        b"\x01\x02" + TOPIC + b"\x07" + bytes(8) + b"\x01" + b"\x00\x00\x00\x00" + b"\xff\xff\x7f" + bytes(600_000),
    ]
    for data in claims:
        tracemalloc.start()
        with suppress(BadBlock):
            decode_page(data[:PAGE_BYTES_MAX])
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 160 * len(data)


def test_what_a_newer_version_wrote_is_named() -> None:
    for decode, kind in ((decode_page, 2), (PageDirectory().take, 3), (decode_root, 4)):
        with pytest.raises(NewerBlock, match="version 2"):
            decode(bytes((2, kind)) + bytes(600))
    with pytest.raises(BadBlock):
        decode_page(bytes(PAGE_BYTES_MAX + 1))
    with pytest.raises(BadBlock):
        PageDirectory().take(b"\x01\x03\x00" + bytes(CHANGES_BYTES_MAX))


def ref(offset: int) -> PageRef:
    return PageRef(offset, 70_000, 900, 10, 20, 11, 12, 13, 14, 15, 16, 3)


def entry(pages: int) -> PartitionEntry:
    found = PartitionEntry(4, 1_764_000_000_000, 900 * pages)
    found.replace(0, (ref(number) for number in range(pages)))
    return found


@pytest.mark.parametrize("pages", [0, 1, 3, 7])
def test_a_directory_is_what_its_records_say(pages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "PAGES_TOGETHER", 3)
    monkeypatch.setattr(directory, "CHANGES_BYTES", 400)
    keys = [(TOPIC, number) for number in range(3)]
    read = PageDirectory()
    for value in encode_changes(EntryChange(key, 0, entry(2)) for key in keys):
        read.take(value)
    assert read.entries == {}, "nothing counts before a record that voids what was said"
    for value in encode_changes((EntryChange(key, 0, entry(pages)) for key in keys), voids=True):
        read.take(value)
    assert read.entries == dict.fromkeys(keys, entry(pages))
    changed = entry(pages)
    changed.replace(max(0, pages - 1), [ref(100), ref(101)])
    for value in encode_changes([EntryChange(keys[1], max(0, pages - 1), changed)]):
        read.take(value)
    assert [one.offset for one in read.entries[keys[1]]] == [*range(max(0, pages - 1)), 100, 101]
    assert read.entries[keys[0]] == entry(pages)


def test_a_change_of_pages_that_are_not_there_is_refused() -> None:
    read = PageDirectory()
    for value in encode_changes([], voids=True):
        read.take(value)
    changed = entry(5)
    (value,) = encode_changes([EntryChange((TOPIC, 0), 4, changed)])
    with pytest.raises(BadBlock, match="kept"):
        read.take(value)


def test_a_root_is_read_again() -> None:
    root = IndexRoot(TOPIC, 1_764_000_000_000, 9, list(range(16)), {3: (2, 77)}, [PagePartition(1, 2, 3, 4, 5, 6)] * 16)
    assert decode_root(encode_root(root)) == root
    assert len(encode_root(root)) < 1_024
