"""Deletion from a compacted log: there may be a gap between the end of a segment and the next one."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from random import Random

import pytest

from embedded_broker.storage.log.format import DURABLE, segment_name
from embedded_broker.storage.log.memory_fs import MemoryFileSystem, PowerCut
from embedded_broker.storage.log.segment import CorruptLog
from embedded_broker.storage.partition import Partition
from embedded_broker.storage.retention import keep_from
from tests.budget import budget
from tests.embedded_broker.storage.test_compacting import Host, P, committed, end, fill, flushed, opened, put, work

pytestmark = pytest.mark.tier("default")

BODY = b"x" * 60
ALWAYS = {"min.cleanable.dirty.ratio": "0"}


def with_a_gap(fs: MemoryFileSystem) -> Partition:
    """Compacted segments from 0 to 2 and from 3 on: the last record of the first one was superseded."""
    host = Host(fs, opened(fs, **ALWAYS))
    for key in (b"a", b"b", b"k", b"k", b"c", b"d"):
        put(host.partition, (key, BODY))
    fill(host.partition)
    host.compact()
    first, second = host.partition.log.segments[:2]
    assert (first.base_offset, first.end_offset, second.base_offset) == (0, 2, 3)
    return host.partition


def offsets(partition: Partition) -> list[int]:
    return [record.offset for record in committed(partition)]


def without(fs: MemoryFileSystem, *names: str) -> None:
    """Lose these files, and keep all others, and what was removed before."""
    for name in names:
        fs.remove(P / name)
    fs.sync_directory(P)


@pytest.mark.parametrize("offset", [1, 2, 3, 4])
@pytest.mark.parametrize("lost", [(), (DURABLE,), (DURABLE, "checkpoint")])
def test_a_log_opens_wherever_it_was_cut_off(offset: int, lost: tuple[str, ...]) -> None:
    partition = with_a_gap(fs := MemoryFileSystem())
    kept = [each for each in offsets(partition) if each >= offset]
    partition.delete_before(offset)
    assert [each for each in offsets(partition) if each >= offset] == kept
    without(fs, *lost)
    again = opened(fs)
    assert (again.log_start, again.log_end) == (offset, partition.log_end)
    assert [each for each in offsets(again) if each >= offset] == kept


@pytest.mark.parametrize("lost", [(), (DURABLE,)])
def test_a_log_opens_whose_first_segment_was_removed_up_to_a_gap(lost: tuple[str, ...]) -> None:
    """Earlier versions removed a segment when the log start was at its end."""
    partition = with_a_gap(fs := MemoryFileSystem())
    kept = [each for each in offsets(partition) if each >= 3]
    partition.delete_before(2)
    without(fs, segment_name(0), *lost)
    again = opened(fs)
    assert (again.log_start, again.log_end, offsets(again)) == (2, partition.log_end, kept)


def test_a_lost_first_segment_is_noticed() -> None:
    """Nothing has been deleted, and what compaction writes begins where the log did."""
    with_a_gap(fs := MemoryFileSystem())
    without(fs, segment_name(0))
    with pytest.raises(CorruptLog, match="no segment begins at or before 0, the log start"):
        opened(fs)


def test_producers_stay_known_although_a_gap_was_deleted() -> None:
    partition = with_a_gap(fs := MemoryFileSystem())
    put(partition, (b"e", BODY), producer_id=7, producer_epoch=0, base_sequence=0)
    flushed(partition)
    assert not partition.log.removes_segments(2)
    assert partition.log.removes_segments(3)
    partition.delete_before(partition.log_end)
    fs.crash()
    assert opened(fs).producers.knows(7)


def test_retention_keeps_from_where_a_segment_begins() -> None:
    partition = with_a_gap(MemoryFileSystem())
    partition.config = replace(partition.config, deletes=True, retention_bytes=partition.log.size_bytes - 1)
    assert keep_from(partition, 1_000) == 0
    smaller = partition.log.size_bytes - partition.log.segments[0].size_bytes
    partition.config = replace(partition.config, retention_bytes=smaller)
    assert keep_from(partition, 1_000) == 3
    partition.config = replace(partition.config, retention_bytes=-1, retention_ms=1)
    assert keep_from(partition, 10**13) == partition.log_end


def test_retention_goes_on_behind_an_empty_segment() -> None:
    host = Host(fs := MemoryFileSystem(), opened(fs, **ALWAYS))
    for key in (b"k", b"k", b"k", b"k", b"a", b"b"):
        put(host.partition, (key, BODY))
    fill(host.partition)
    host.partition.config = replace(host.partition.config, segment_bytes=1)  # so that they stay apart
    host.compact()
    sizes = [segment.size_bytes > 0 for segment in host.partition.log.segments]
    assert sizes[:2] == [False, True]
    host.partition.config = replace(host.partition.config, deletes=True, retention_ms=1)
    assert keep_from(host.partition, 10**13) == host.partition.log_end


@pytest.mark.parametrize("seed", range(budget(20, 400)))
def test_compaction_and_deletion_with_power_cuts(seed: int) -> None:
    """What is left is what was there from the log start on, in any state of what wasn't synced."""
    random, fs = Random(seed), MemoryFileSystem()
    host = Host(fs, opened(fs, **ALWAYS))
    open_by: dict[int, list[tuple[bytes, bytes | None]]] = {}
    for _ in range(8):
        work(random, host.partition, open_by)
        for producer_id in list(open_by):
            end(host.partition, producer_id, commit=random.random() < 0.5)
            del open_by[producer_id]
        flushed(host.partition)
        host.clock.time_ms += random.choice([0, 1_500])
        host.compact()
        before, start = set(committed(host.partition)), host.partition.log_start
        ends = [each for s in host.partition.log.segments for each in (s.base_offset, s.end_offset)]
        asked = max(random.choice(ends), start)
        cut = random.random() < 0.5
        if cut:
            fs.power_cut(after=random.randrange(12))
        with contextlib.suppress(PowerCut):
            host.partition.delete_before(asked)
        if cut or random.random() < 0.3:
            fs.crash(random)
            if random.random() < 0.5:
                fs.remove(P / DURABLE)
            if random.random() < 0.3:
                fs.remove(P / "checkpoint")
            host.partition = opened(fs, **ALWAYS)
            host.partition.advance(host.partition.log_end)
        assert host.partition.log_start in ({start, asked} if cut else {asked})
        from_start = {record for record in before if record.offset >= host.partition.log_start}
        assert {r for r in committed(host.partition) if r.offset >= host.partition.log_start} == from_start
