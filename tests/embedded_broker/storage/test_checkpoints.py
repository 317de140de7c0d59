"""What a partition knows of its producers survives restarts, whatever retention has removed, without a whole scan."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.broker import Broker
from embedded_broker.config.settings import BrokerConfig, Fsync
from embedded_broker.state.producers import ACCEPT, Duplicate, PartitionProducers, RefuseBatch
from embedded_broker.storage.checkpoints import Checkpoints
from embedded_broker.storage.log.format import CHECKPOINT, index_name, segment_name
from embedded_broker.storage.log.memory_fs import MemoryFileSystem, PowerCut
from embedded_broker.storage.log.partition_log import PartitionLog
from embedded_broker.storage.log.segment import CorruptLog
from embedded_broker.storage.partition import Partition
from kafka_records.batch import TRANSACTIONAL, BatchHeader, read_header
from kafka_records.control import marker
from kafka_records.records import encode
from tests.budget import budget
from tests.embedded_broker.served import change
from tests.embedded_broker.storage.log.partitions import read_all
from tests.embedded_broker.times import offset_for_time

P = Path("/partitions/p")
NOW_MS = 1_800_000_000_000
SEGMENT_BYTES = 1_000


def opened(fs: MemoryFileSystem, epoch: int = 0) -> Partition:
    return Partition.open(fs, P, "t", 0, leader_epoch=epoch, segment_bytes=SEGMENT_BYTES, now_ms=NOW_MS)


def sent(sequence: int, producer_id: int = 7, epoch: int = 2, **header: int) -> bytes:
    """One record of an idempotent producer, long ago."""
    ids = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    return bytes(encode([(b"k", b"%d" % sequence * 20)], 1_000, **ids, **header))


def verdicts(partition: Partition, sequences: range) -> list[Any]:
    return [partition.producers.check(read_header(sent(sequence)), NOW_MS) for sequence in sequences]


def flushed(partition: Partition) -> None:
    partition.advance(partition.log.flush())


def crashed(fs: MemoryFileSystem, epoch: int = 1) -> Partition:
    fs.crash()
    return opened(fs, epoch)


def test_all_five_batches_are_recognised_after_retention_has_removed_them() -> None:
    fs = MemoryFileSystem()
    partition = opened(fs)
    for sequence in range(40):
        partition.append(sent(sequence), now_ms=NOW_MS)
    for number in range(40):
        partition.append(encode([(b"k", b"%d" % number * 20)], 1_000))
    flushed(partition)
    before = verdicts(partition, range(33, 43))
    partition.delete_before(60)
    assert partition.log.segments[0].base_offset > 40
    again = crashed(fs)
    assert verdicts(again, range(33, 43)) == before
    assert before[2:8] == [*(Duplicate(offset, 1_000) for offset in range(35, 40)), ACCEPT]
    assert before[0] == before[9] == RefuseBatch(ErrorCode.out_of_order_sequence_number)


def test_they_are_recognised_when_everything_has_been_removed() -> None:
    fs = MemoryFileSystem()
    partition = opened(fs)
    for sequence in range(6):
        partition.append(sent(sequence), now_ms=NOW_MS)
    flushed(partition)
    partition.delete_before(6)
    assert partition.log.size_bytes == 0
    again = crashed(fs)
    assert (again.log_start, again.log_end) == (6, 6)
    assert verdicts(again, range(1, 7)) == [*(Duplicate(offset, 1_000) for offset in range(1, 6)), ACCEPT]


def test_a_producer_of_old_records_does_not_expire_because_of_a_restart() -> None:
    fs = MemoryFileSystem()
    partition = opened(fs)
    partition.append(sent(0), now_ms=NOW_MS)
    flushed(partition)
    again = crashed(fs)
    assert again.producers.expire(NOW_MS + 10_000, 86_400_000) == 0
    assert verdicts(again, range(1)) == [Duplicate(0, 1_000)]


def test_open_and_aborted_transactions_and_epochs_are_in_it() -> None:
    fs = MemoryFileSystem()
    partition = opened(fs, epoch=3)
    partition.append(sent(0, 8, 0, attributes=TRANSACTIONAL))
    partition.append(marker(8, 0, commit=False, timestamp_ms=1_000))
    partition.append(sent(0, 9, 5, attributes=TRANSACTIONAL))
    flushed(partition)
    partition.log.write_checkpoint(partition.capture())
    known = partition.capture().checkpoint
    partition.append(sent(1, 9, 5, attributes=TRANSACTIONAL))  # behind the checkpoint
    flushed(partition)
    again = crashed(fs, epoch=4)
    assert (again.last_stable, again.producers.aborted_in(0, 9)) == (2, [(8, 0)])
    assert again.producers.open_transactions() == {9: 2}
    assert again.producers.has_open(9, 5)
    assert (again.epoch_of(0), again.epoch_end(3)) == (3, (3, 4))
    assert again.log.checkpoint_end == known.offset == 3
    again.append(marker(9, 5, commit=False, timestamp_ms=1_000))
    flushed(again)
    assert crashed(fs, epoch=5).producers.aborted_in(0, 9) == [(8, 0), (9, 2)]


def _checkpointed(fs: MemoryFileSystem, before: int = 60, behind: int = 20) -> Partition:
    partition = opened(fs)
    for sequence in range(before):
        partition.append(sent(sequence))
    partition.log.write_checkpoint(partition.capture())  # makes it durable, too
    for sequence in range(before, before + behind):
        partition.append(sent(sequence))
    flushed(partition)
    return partition


def test_only_what_is_behind_the_checkpoint_is_read() -> None:
    fs = MemoryFileSystem()
    written = _checkpointed(fs)
    shown: list[int] = []
    fs.crash()
    log = PartitionLog.open(fs, P, SEGMENT_BYTES, lambda header, _: shown.append(header.base_offset), lambda _: None)
    assert shown == list(range(60, 80))
    assert log.scan_cost_bytes < written.log.size_bytes / 2
    assert read_all(log) == read_all(written.log)
    for offset in range(80):
        assert read_header(log.read(offset, 1, 80)).base_offset == offset
    assert offset_for_time(log, 1_000) == (0, 1_000)
    assert [s.max_timestamp for s in log.segments] == [s.max_timestamp for s in written.log.segments]


@pytest.mark.parametrize("name", [CHECKPOINT, index_name(0)])
def test_a_corrupt_checkpoint_or_index_file_is_rebuilt(name: str) -> None:
    for damage in range(3):
        fs = MemoryFileSystem()
        written = _checkpointed(fs)
        path, size = P / name, len(fs.read_small(P / name) or b"")
        if damage < 2:
            fs.corrupt(path, [size // 2, size - 1][damage])
        else:
            fs.remove(path)
            fs.sync_directory(P)
        again = crashed(fs)
        assert read_all(again.log) == read_all(written.log)
        assert verdicts(again, range(73, 82)) == verdicts(written, range(73, 82))


def test_an_index_that_is_older_than_the_checkpoint_is_used_as_far_as_it_goes() -> None:
    fs = MemoryFileSystem()
    partition = Partition.open(fs, P, "t", 0, leader_epoch=0, segment_bytes=1 << 20)
    for sequence in range(100):
        partition.append(sent(sequence))
    partition.log.write_checkpoint(partition.capture())
    old = fs.read_small(P / index_name(0)) or b""
    for sequence in range(100, 300):
        partition.append(sent(sequence))
    partition.log.write_checkpoint(partition.capture())
    fs.write_atomically(P / index_name(0), old)
    again = crashed(fs)
    assert read_all(again.log) == read_all(partition.log)
    assert 0 < again.log.scan_cost_bytes < again.log.size_bytes
    assert verdicts(again, range(293, 302)) == verdicts(partition, range(293, 302))


def test_files_that_the_checkpoint_covers_must_exist() -> None:
    fs = MemoryFileSystem()
    _checkpointed(fs, behind=0)
    fs.remove(P / "durable")
    last = [name for name in fs.names(P) if name.endswith(".log")][-1]
    fs.remove(P / last)
    fs.sync_directory(P)
    fs.crash()
    with pytest.raises(CorruptLog, match=r"offsets 5\d to 59 were durable"):
        opened(fs)


def test_a_segment_that_was_not_scanned_gives_out_no_wrong_byte() -> None:
    fs = MemoryFileSystem()
    written = read_all(_checkpointed(fs).log)
    second = len(written[0])
    for at in set(range(second, second + len(written[1]))) - set(range(second + 12, second + 16)):  # epoch: in no CRC
        fs.corrupt(P / segment_name(0), at)
        again = crashed(fs)
        assert again.log.read(0, second, 80) == written[0]
        with pytest.raises(CorruptLog, match=f"{segment_name(0)} at byte {second}: "):
            again.log.read(1, 1 << 20, 80)
        with pytest.raises(CorruptLog, match=f"{segment_name(0)} at byte {second}: "):
            again.log.read(0, 1 << 20, 80)
        fs.corrupt(P / segment_name(0), at)


SCAN_BYTES_MAX = 100_000_000


def test_the_partition_that_is_furthest_behind_comes_first_and_large_checkpoints_are_rare() -> None:
    fs, checkpoints = MemoryFileSystem(), Checkpoints(SCAN_BYTES_MAX)
    partitions = [
        Partition.open(fs, P.with_name(f"{number}"), "t", number, leader_epoch=0, segment_bytes=1 << 20)
        for number in range(3)
    ]
    for number, partition in enumerate(partitions):
        partition.log.scan_cost_bytes = SCAN_BYTES_MAX * (number + 1) // 5
        checkpoints.note(partition)
    assert checkpoints.due() is partitions[2]
    assert checkpoints.due() is None
    partitions[0].log.checkpoint_bytes = SCAN_BYTES_MAX
    partitions[0].log.scan_cost_bytes *= 5
    checkpoints.note(partitions[0])
    assert checkpoints.due() is None


class History:
    """All batches that were ever appended and have survived: the state of producers is a function of them."""

    def __init__(self) -> None:
        self.batches: list[tuple[BatchHeader, bool | None]] = []
        self.durable_end = 0
        self.log_start = 0

    def append(self, partition: Partition, data: bytes | bytearray, commit: bool | None) -> None:
        """Also of one that the power cut comes into; it may survive."""
        self.batches.append((read_header(data)._replace(base_offset=partition.log_end), commit))
        partition.append(data, now_ms=NOW_MS)

    def check(self, partition: Partition) -> None:
        """After a crash; what didn't survive is forgotten here, too."""
        assert partition.log_end >= self.durable_end
        assert partition.log_start >= self.log_start
        self.batches = [(h, commit) for h, commit in self.batches if h.base_offset < partition.log_end]
        expected = PartitionProducers()
        for header, commit in self.batches:
            expected.apply(header, commit, NOW_MS)
        expected.drop_before(partition.log_start)
        assert partition.producers.snapshot() == expected.snapshot()
        assert partition.last_stable == expected.last_stable_offset(partition.log_end)


def work(partition: Partition, history: History, random: Random, sequences: dict[int, int]) -> None:
    """Producers that go on from where the log says they are, transactions; flushes, checkpoints, retention."""
    for entry in partition.producers.entries():
        sequences[entry.producer_id] = entry.last_sequence + 1
    for _ in range(40):
        do, producer_id = random.random(), random.randrange(3)
        if do < 0.6:
            has_open = producer_id in partition.producers.open_transactions()
            flags = TRANSACTIONAL if producer_id < 2 or has_open else 0
            data = sent(sequences.get(producer_id, 0), producer_id, 2, attributes=flags)
            sequences[producer_id] = sequences.get(producer_id, 0) + 1
            history.append(partition, data, None)
        elif do < 0.75:
            commit = random.random() < 0.5
            data = bytes(marker(producer_id, 2, commit=commit, timestamp_ms=1_000))
            history.append(partition, data, commit)
        elif do < 0.85:
            flushed(partition)
            history.durable_end = partition.high_watermark
        elif do < 0.93:
            partition.log.write_checkpoint(partition.capture())
            history.durable_end = partition.log.durable_end
        else:
            partition.delete_before(random.randint(partition.log_start, partition.last_stable))
            history.log_start = partition.log_start


@pytest.mark.tier("default")
@pytest.mark.parametrize("seed", range(budget(100, 1_000)))
def test_power_cuts_lose_nothing_that_a_retry_needs(seed: int) -> None:
    random, fs, history, sequences = Random(seed), MemoryFileSystem(), History(), dict[int, int]()
    partition = opened(fs)
    for _ in range(12):
        fs.power_cut(after=random.choice([0, 3, 10, 30, 60]))
        with contextlib.suppress(PowerCut):
            work(partition, history, random, sequences)
        fs.crash(random if random.random() < 0.8 else None)
        partition = opened(fs)
        history.check(partition)


@pytest.mark.parametrize("fsync", list(Fsync))
def test_a_start_after_a_kill_has_little_to_read_however_seldom_there_was_an_fsync(
    tmp_path: Path, fsync: Fsync
) -> None:
    """A kill leaves what was written; a power cut, what was fsynced."""
    count, value = 60, bytes(20_000)

    async def main(power_cut: bool) -> None:
        fs = MemoryFileSystem()
        broker = Broker(BrokerConfig(tmp_path, port=0, fsync=fsync, fsync_interval_ms=1, scan_bytes_max=500_000), fs)
        await broker.start()
        topic = await change(broker, lambda: broker.topics.create("t", 1, {"segment.bytes": "100000"}))
        (partition,) = topic.partitions
        for number in range(count):
            partition.append(encode([(b"k", value)], number))
            await broker.flush_scheduler.durable(partition)
            assert partition.high_watermark == number + 1
            await asyncio.sleep(0)
        while broker.flush_scheduler._task is not None or broker.flush_scheduler._checkpoint_task is not None:  # noqa: ASYNC110 - nobody else waits for it
            await asyncio.sleep(0.001)
        durable = partition.log.durable_end
        partition.append(encode([(b"k", b"last")], count))
        await broker.flush_scheduler.durable(partition)
        await broker.flush_scheduler.stop()
        assert 0 < partition.log.checkpoint_end <= partition.log.durable_end
        assert (partition.log.durable_end == durable) is (fsync is Fsync.NEVER), "an fsync for checkpoints only"
        behind = partition.log.scan_cost_bytes
        assert behind < 1_000_000 < count * len(value)
        durable = partition.log.durable_end
        if power_cut:
            fs.crash()
        else:
            fs.process_gone()
        again = Broker(BrokerConfig(tmp_path, port=0, fsync=fsync), fs)
        await again.start()
        found = again.topics.partition("t", 0)
        if power_cut and fsync is Fsync.NEVER:
            assert found is None, "not even the topic's own record was fsynced"
            await again.stop()
            return
        assert found is not None
        assert found.stopped is None
        assert found.log_end == (durable if power_cut else count + 1)
        assert found.log.scan_cost_bytes <= behind + 2 * len(value), "a batch before the checkpoint is met again"
        await again.stop()

    for power_cut in (False, True):
        asyncio.run(main(power_cut))
