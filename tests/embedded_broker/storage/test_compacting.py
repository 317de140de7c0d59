"""Compaction of topics: the last committed record of each key stays, as it was and where it was."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from embedded_broker.config.thresholds import DEFAULTS, Thresholds
from embedded_broker.metadata.topic_configs import log_config
from embedded_broker.state.producers import Duplicate
from embedded_broker.storage.cleaner import Compaction, find_job
from embedded_broker.storage.disk_space import DiskSpace
from embedded_broker.storage.flush_scheduler import FlushScheduler
from embedded_broker.storage.log.memory_fs import MemoryFileSystem, PowerCut
from embedded_broker.storage.partition import Partition
from kafka_records.batch import TRANSACTIONAL, iter_batches, read_header
from kafka_records.control import marker
from kafka_records.rebuild import rebuild
from kafka_records.records import Record, decode, encode
from tests.budget import budget

P = Path("/partitions/p")
CONFIGS = {"cleanup.policy": "compact", "segment.bytes": "400", "delete.retention.ms": "1000"}


@dataclass
class Clock:
    time_ms: int = 1_000_000

    def now_ms(self) -> int:
        return self.time_ms


@dataclass
class Host:
    """What compaction needs."""

    fs: MemoryFileSystem
    partition: Partition
    clock: Clock = field(default_factory=Clock)
    thresholds: Thresholds = DEFAULTS
    flush_scheduler: Any = field(default_factory=lambda: cast(FlushScheduler, Exclusive()))

    def compact(self) -> None:
        compaction = Compaction(
            self.fs, self.flush_scheduler, DiskSpace(self.fs, P, print), self.clock, self.thresholds
        )
        asyncio.run(compaction.clean(self.partition))


class Exclusive:
    def exclusive(self) -> asyncio.Lock:
        return asyncio.Lock()


def opened(fs: MemoryFileSystem, **configs: str) -> Partition:
    partition = Partition.open(fs, P, "t", 0, leader_epoch=0, segment_bytes=400)
    partition.config = log_config({**CONFIGS, **configs})
    return partition


def flushed(partition: Partition) -> None:
    partition.advance(partition.log.flush())


Pairs = list[tuple[bytes | None, bytes | None]]


def put(partition: Partition, *pairs: tuple[bytes, bytes | None], **header: int) -> None:
    partition.append(encode(list(pairs), 1_000, **header))


def end(partition: Partition, producer_id: int, commit: bool) -> None:
    partition.append(marker(producer_id, 0, commit=commit, timestamp_ms=1_000))


def fill(partition: Partition) -> None:
    """Records of no interest, so that what is before can be cleaned."""
    for _ in range(8):
        put(partition, (b"fill", b"x" * 60))
    flushed(partition)


def committed(partition: Partition) -> list[Record]:
    """As a read_committed consumer reads: by the list of aborted transactions that comes with each answer."""
    found: list[Record] = []
    offset, dropping = partition.log_start, set()
    while data := partition.read(offset, 1 << 20, partition.last_stable):
        starts = sorted(partition.aborted_in(offset, data), key=lambda pair: pair[1])
        for header, view in iter_batches(data):
            while starts and starts[0][1] <= header.last_offset:
                dropping.add(starts.pop(0)[0])
            if header.is_control:
                dropping.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in dropping):
                found += decode(view)
            offset = header.last_offset + 1
    return found


def state(records: list[Record]) -> dict[bytes | None, bytes]:
    """What somebody knows who has read all."""
    known: dict[bytes | None, bytes] = {}
    for record in records:
        if record.value is None:
            known.pop(record.key, None)
        else:
            known[record.key] = record.value
    return known


def values(partition: Partition) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(r.offset, r.key, r.value) for r in committed(partition) if r.key != b"fill"]


def test_what_compaction_writes_is_as_old_as_what_it_replaces() -> None:
    """Records without timestamps are as old as their file, so compaction must not make it younger."""
    host = Host(fs := MemoryFileSystem(), opened(fs, **{"min.cleanable.dirty.ratio": "0"}))
    for value in (b"x" * 250, b"y" * 250, b"z" * 250):
        host.partition.append(encode([(b"k", value)], -1))
    flushed(host.partition)
    for age, segment in enumerate(host.partition.log.segments):
        segment.set_modified_ms(1_000 + age)
    host.compact()
    assert [offset for offset, _, _ in values(host.partition)] == [1, 2]
    assert [segment.largest_timestamp() for segment in host.partition.log.segments] == [1_001, 1_002]


def test_records_without_timestamps_are_never_overdue_and_young_by_their_file() -> None:
    lags = {"max.compaction.lag.ms": "10", "min.cleanable.dirty.ratio": "1", "min.compaction.lag.ms": "5"}
    partition = opened(MemoryFileSystem(), **lags)
    for _ in range(3):
        partition.append(encode([(b"k", b"x" * 250)], -1))
    flushed(partition)
    for segment in partition.log.segments:
        segment.set_modified_ms(1_000)
    assert find_job(partition, 2_000) is None
    partition.config = log_config({**CONFIGS, **lags, "min.cleanable.dirty.ratio": "0"})
    assert find_job(partition, 1_004) is None
    assert find_job(partition, 1_005) is not None


def test_the_last_record_of_each_key_stays_where_it_was() -> None:
    host = Host(fs := MemoryFileSystem(), opened(fs))
    put(host.partition, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    put(host.partition, (b"c", b"1"))
    put(host.partition, (b"b", b"2"))
    fill(host.partition)
    before = host.partition.log_end
    host.compact()
    assert values(host.partition) == [(2, b"a", b"2"), (3, b"c", b"1"), (4, b"b", b"2")]
    assert host.partition.log_end == before
    assert [header.base_offset for header, _ in iter_batches(host.partition.read(0, 1, before))] == [0]
    again = opened(fs)
    assert values(again) == values(host.partition)
    assert again.log.clean_end == host.partition.log.clean_end
    host.partition.config = again.config
    assert find_job(again, 0) is None  # it knows what is clean


def test_tombstones_stay_for_their_time_and_then_go() -> None:
    host = Host(fs := MemoryFileSystem(), opened(fs, **{"min.cleanable.dirty.ratio": "0"}))
    put(host.partition, (b"a", b"1"))
    put(host.partition, (b"a", None))
    fill(host.partition)
    host.compact()
    assert values(host.partition) == [(1, b"a", None)]
    horizon = read_header(host.partition.read(1, 1, 9))
    assert (horizon.attributes & 0x40, horizon.base_timestamp) == (0x40, host.clock.time_ms + 1_000)
    assert committed(host.partition)[0].timestamp_ms == 1_000
    host.clock.time_ms += 999
    fill(host.partition)
    host.compact()
    assert values(host.partition) == [(1, b"a", None)]
    host.clock.time_ms += 1
    fill(host.partition)
    host.compact()
    assert values(host.partition) == []


def test_aborted_records_are_removed_before_their_marker() -> None:
    host = Host(fs := MemoryFileSystem(), opened(fs, **{"min.cleanable.dirty.ratio": "0"}))
    put(host.partition, (b"a", b"1"))
    put(host.partition, (b"a", b"aborted"), producer_id=7, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)
    end(host.partition, 7, commit=False)
    put(host.partition, (b"b", b"1"), producer_id=7, producer_epoch=0, base_sequence=1, attributes=TRANSACTIONAL)
    end(host.partition, 7, commit=True)
    fill(host.partition)

    def kinds() -> list[int]:
        data = b"".join(bytes(view) for s in host.partition.log.segments for _, view in s.batches())
        return [h.base_offset for h, _ in iter_batches(data) if h.base_offset < 5]

    for expected in ([0, 2, 3, 4], [0, 2, 3, 4], [0, 3, 4]):
        host.compact()
        assert kinds() == expected
        assert values(host.partition) == [(0, b"a", b"1"), (3, b"b", b"1")]
        host.clock.time_ms += 2_000
        fill(host.partition)
    assert host.partition.producers.aborted_in(0, 99) == []
    fs.crash()
    assert values(opened(fs)) == [(0, b"a", b"1"), (3, b"b", b"1")]


def test_open_transactions_are_not_compacted() -> None:
    host = Host(fs := MemoryFileSystem(), opened(fs))
    put(host.partition, (b"a", b"1"))
    put(host.partition, (b"a", b"2"), producer_id=7, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)
    fill(host.partition)
    assert find_job(host.partition, 0) is None
    end(host.partition, 7, commit=True)
    flushed(host.partition)
    host.compact()
    assert values(host.partition) == [(1, b"a", b"2")]


def test_a_producers_last_batch_stays_so_that_its_retry_is_known_even_without_a_checkpoint() -> None:
    host = Host(fs := MemoryFileSystem(), opened(fs))
    for sequence in range(3):
        put(host.partition, (b"a", b"%d" % sequence), producer_id=7, producer_epoch=0, base_sequence=sequence)
    put(host.partition, (b"a", b"other"))
    fill(host.partition)
    host.compact()
    assert values(host.partition) == [(3, b"a", b"other")]
    fs.remove(P / "checkpoint")
    retry = read_header(encode([(b"a", b"2")], 1_000, producer_id=7, producer_epoch=0, base_sequence=2))
    assert opened(fs).producers.check(retry, 0) == Duplicate(2, 1_000)


@pytest.mark.parametrize("sequence", range(5))
def test_a_retry_of_what_compaction_has_removed_is_known_after_a_crash(sequence: int) -> None:
    host = Host(fs := MemoryFileSystem(), opened(fs))
    for number in range(5):
        put(host.partition, (b"a", b"%d" % number), producer_id=7, producer_epoch=0, base_sequence=number)
    fill(host.partition)
    host.compact()
    assert values(host.partition) == [(4, b"a", b"4")]
    fs.crash()
    again = encode([(b"a", b"%d" % sequence)], 1_000, producer_id=7, producer_epoch=0, base_sequence=sequence)
    assert opened(fs).producers.check(read_header(again), 0) == Duplicate(sequence, 1_000)


def test_a_partition_is_compacted_when_it_is_dirty_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(fs := MemoryFileSystem(), opened(fs))
    now = host.clock.time_ms
    fill(host.partition)
    host.compact()
    fill(host.partition)
    host.partition.config = log_config({**CONFIGS, "min.cleanable.dirty.ratio": "0.9"})
    assert find_job(host.partition, now) is None
    host.partition.config = replace(host.partition.config, compaction_lag_ms_max=100)
    assert find_job(host.partition, now) is not None
    host.partition.config = log_config({**CONFIGS, "min.compaction.lag.ms": str(now)})
    assert find_job(host.partition, now) is None
    host.partition.config = log_config(CONFIGS)
    assert find_job(host.partition, now) is not None


def test_more_keys_than_fit_take_several_passes() -> None:
    host = Host(fs := MemoryFileSystem(), opened(fs, **{"min.cleanable.dirty.ratio": "0"}))
    host.thresholds = Thresholds(cleaner_keys_max=3)
    for number in range(60):
        put(host.partition, (b"%d" % (number % 20), b"%d" % number * 20))
    fill(host.partition)
    known = state(committed(host.partition))
    ends = []
    while find_job(host.partition, 0) is not None:
        host.compact()
        ends.append(host.partition.log.clean_end)
        assert state(committed(host.partition)) == known
    assert len(set(ends)) == len(ends) > 3
    assert len(values(host.partition)) == 20


def test_small_segments_become_one() -> None:
    host = Host(fs := MemoryFileSystem(), opened(fs))
    for _ in range(100):
        put(host.partition, (b"a", b"x" * 60))
    fill(host.partition)
    assert len(host.partition.log.segments) > 20
    host.compact()
    assert len(host.partition.log.segments) <= 3
    assert [name for name in fs.names(P) if name.endswith(".cleaned")] == []
    for offset in range(host.partition.log_end):  # also from offsets that are gone
        assert read_header(host.partition.read(offset, 1, 999)).last_offset >= offset


@pytest.mark.parametrize("after", range(3))
def test_an_fsync_that_fails_is_never_passed_over(after: int) -> None:
    fs = MemoryFileSystem()
    partition = opened(fs)
    fill(partition)
    flushed(partition)
    fs.fail("sync", errno.EIO, after=after)  # new segment, how far all is compacted, index
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        Host(fs, partition).compact()


def test_what_can_not_be_read_stays_whole_and_the_rest_is_compacted(caplog: pytest.LogCaptureFixture) -> None:
    host = Host(fs := MemoryFileSystem(), opened(fs))
    broken = rebuild(read_header(encode([(b"a", b"1"), (b"b", b"1")], 1_000)), [Record(0, 1_000, b"a", b"1")])
    changed = bytearray(broken)
    changed[57:61] = (2).to_bytes(4, "big")  # two records, says the header, which has the right CRC then
    changed[17:21] = cleaner_crc(changed)
    host.partition.append(changed)
    put(host.partition, (b"k", b"old"))
    put(host.partition, (b"k", b"new"))
    fill(host.partition)
    host.compact()
    assert "batch at offset 0 stays whole" in caplog.text
    assert host.partition.stopped is None
    headers = [read_header(view) for segment in host.partition.log.segments for _, view in segment.batches()]
    assert [header.base_offset for header in headers][:2] == [0, 3]


def cleaner_crc(batch: bytearray) -> bytes:
    from crc32c import crc32c

    return crc32c(bytes(batch[21:])).to_bytes(4, "big")


def test_damage_met_on_the_way_stops_the_partition() -> None:
    host = Host(fs := MemoryFileSystem(), opened(fs))
    fill(host.partition)
    fs.corrupt(host.partition.log.segments[0].path, 80)
    host.compact()
    assert host.partition.stopped is not None
    assert f"{host.partition.log.segments[0].path} at byte 0: CRC" in host.partition.stopped


@pytest.mark.parametrize("codec", range(5))
def test_batches_keep_their_compression(codec: int) -> None:
    records = [
        Record(40 + n, 5_000 + n, b"k%d" % n, None if n % 7 == 0 else b"v" * n * 100, ((b"h", b"x"), (b"n", None)))
        for n in range(50)
    ]
    header = read_header(encode([(b"", b"")] * 60, 5_000))._replace(base_offset=40, attributes=codec)
    made = rebuild(header, records)
    changed = read_header(made)
    assert decode(made) == records
    assert (changed.compression, changed.last_offset, changed.record_count) == (codec, 99, 50)
    assert decode(rebuild(changed, records[:9], horizon_ms=77)) == records[:9]


def work(random: Random, partition: Partition, open_by: dict[int, list[tuple[bytes, bytes | None]]]) -> None:
    """Some batches of plain and transactional producers, over few keys."""
    for _ in range(random.randrange(1, 25)):
        pairs = [
            (b"%d" % random.randrange(6), random.choice([None, b"%d" % random.randrange(1 << 40) * 3]))
            for _ in range(random.randrange(1, 4))
        ]
        producer_id = random.choice([-1, 5, 6])
        if producer_id < 0:
            put(partition, *pairs)
        elif producer_id in open_by and random.random() < 0.4:
            end(partition, producer_id, commit=random.random() < 0.5)
            del open_by[producer_id]
        else:
            open_by.setdefault(producer_id, [])
            put(partition, *pairs, producer_id=producer_id, producer_epoch=0, attributes=TRANSACTIONAL)
    flushed(partition)


@pytest.mark.tier("default")
@pytest.mark.parametrize("seed", range(budget(20, 400)))
def test_reading_the_whole_log_gives_the_same_latest_values_after_compaction(seed: int) -> None:
    """Also after power cuts at any operation, in any state of what wasn't synced."""
    random, fs = Random(seed), MemoryFileSystem()
    host = Host(fs, opened(fs, **{"min.cleanable.dirty.ratio": "0"}))
    open_by: dict[int, list[tuple[bytes, bytes | None]]] = {}
    for _ in range(15):
        work(random, host.partition, open_by)
        before = committed(host.partition)
        host.clock.time_ms += random.choice([0, 300, 1_500])
        cut = random.random() < 0.6
        if cut:
            fs.power_cut(after=random.randrange(60))
        with contextlib.suppress(PowerCut):
            host.compact()
        if cut or random.random() < 0.3:
            fs.crash(random)
            if random.random() < 0.3:
                fs.remove(P / "checkpoint")
            host.partition = opened(fs, **{"min.cleanable.dirty.ratio": "0"})
            host.partition.advance(host.partition.log_end)
        after = committed(host.partition)
        assert state(after) == state(before)
        assert set(after) <= set(before), "changed, or come back"
        assert [record.offset for record in after] == sorted({record.offset for record in after})
        assert host.partition.producers.open_transactions().keys() == open_by.keys()
