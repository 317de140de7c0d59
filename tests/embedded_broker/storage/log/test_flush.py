"""Flushes in one thread while another appends; failing disks."""

from __future__ import annotations

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from embedded_broker.storage.log.fs import File
from embedded_broker.storage.log.memory_fs import MemoryFileSystem
from embedded_broker.wire.checked_batch import CheckedBatch
from tests.embedded_broker.storage.log.partitions import batch, fill, opened, read_all

P = Path("/partitions/p")


class SlowFileSystem(MemoryFileSystem):
    """fsync waits until it is let go, and only then makes durable what was there when it began."""

    def __init__(self) -> None:
        super().__init__()
        self.syncing, self.go_on = threading.Event(), threading.Event()

    def step(self, *kinds: str) -> None:
        super().step(*kinds)
        if "sync" in kinds:
            self.syncing.set()
            assert self.go_on.wait(10)

    def open(self, path: Path) -> File:
        return super().open(path)


def test_a_flush_counts_only_what_was_there_when_it_began() -> None:
    fs = SlowFileSystem()
    log, _ = opened(fs, P, 1 << 20)
    fill(log, 3)
    with ThreadPoolExecutor(1) as threads:
        flush = threads.submit(log.flush)
        assert fs.syncing.wait(10)
        written = fill(log, 2)  # the loop is not held up by an fsync
        assert log.log_end == 5
        assert len(written) == 2
        fs.go_on.set()
        assert flush.result(10) == log.durable_end == 3
    assert log.flush() == 5


def test_rolls_during_a_flush_are_made_durable_by_the_next_one() -> None:
    fs = SlowFileSystem()
    log, _ = opened(fs, P, 300)
    written = fill(log, 3)
    with ThreadPoolExecutor(1) as threads:
        flush = threads.submit(log.flush)
        assert fs.syncing.wait(10)
        written += fill(log, 12)
        fs.go_on.set()
        assert flush.result(10) == 3
    assert len(log.segments) > 4
    assert log.flush() == 15
    fs.crash()
    log, shown = opened(fs, P, 300)
    assert shown == written


def test_without_a_flush_a_crash_takes_everything_since_the_last_one() -> None:
    fs = MemoryFileSystem()
    log, _ = opened(fs, P, 300)
    written = fill(log, 5)
    assert log.flush() == 5
    fill(log, 5)
    fs.crash()
    log, shown = opened(fs, P, 300)
    assert shown == written


def test_segments_may_be_deleted_between_flushes() -> None:
    """The segment that was the last one at the last flush is gone at the next."""
    fs = MemoryFileSystem()
    log, _ = opened(fs, P, 300)
    while len(log.segments) < 2:
        log.flush()
        fill(log, 1)
    log.delete_before(log.log_end - 1)
    assert len(log.segments) == 1
    fs.fail("sync", errno.EBADF, after=1)  # one file is left to sync
    assert log.flush() == log.log_end


def test_a_failed_fsync_is_never_forgotten() -> None:
    """A second fsync would say that all is well: the system has dropped the pages it couldn't write."""
    fs = MemoryFileSystem()
    log, _ = opened(fs, P)
    written = fill(log, 3)
    log.flush()
    fill(log, 1)
    fs.fail("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        log.flush()
    for use in (log.flush, lambda: log.append(CheckedBatch.of(batch(4))), lambda: log.delete_before(4)):
        with pytest.raises(OSError, match="an earlier fsync failed"):
            use()
    assert log.durable_end == 3
    assert read_all(log)[:3] == written
    log.close()
    fs.crash()
    log, shown = opened(fs, P)
    assert shown == written


@pytest.mark.parametrize("segment_bytes", [1 << 20, 250])
def test_what_a_failed_fsync_left_in_the_page_cache_is_written_again_before_it_counts(segment_bytes: int) -> None:
    """It can be read after a restart, and another fsync says that all is well: but it is not on the disk."""
    fs = MemoryFileSystem()
    log, _ = opened(fs, Path("/p"), segment_bytes)
    fill(log, 3)
    log.flush()
    fill(log, 3)
    fs.fail("sync", errno.EIO, after=int(segment_bytes < 1 << 20))
    with pytest.raises(OSError, match="fsync failed"):
        log.flush()
    fs.process_gone()
    log, found = opened(fs, Path("/p"), segment_bytes)
    assert log.log_end == 6
    fill(log, 1)
    log.flush()
    fs.crash()
    again, kept = opened(fs, Path("/p"), segment_bytes)
    assert (again.log_end, kept[:6]) == (7, found)


def test_what_is_durable_is_not_written_again() -> None:
    fs = MemoryFileSystem()
    log, _ = opened(fs, Path("/p"), 250)
    fill(log, 5)
    log.close()
    before = fs.operations
    opened(fs, Path("/p"), 250)
    assert fs.operations == before


@pytest.mark.parametrize("kind", ["sync_directory", "write"])
def test_a_flush_that_could_not_do_all_of_it_says_so(kind: str) -> None:
    fs = MemoryFileSystem()
    log, _ = opened(fs, P)
    fill(log, 3)
    fs.fail(kind, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        log.flush()
    assert log.durable_end == 0


@pytest.mark.parametrize("bytes_written", [0, 1, 50, 5_000])
@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EIO])
def test_an_append_that_failed_leaves_nothing_behind(bytes_written: int, error_number: int) -> None:
    fs = MemoryFileSystem()
    log, _ = opened(fs, P, 1 << 20)
    written = fill(log, 2)
    fs.fail("append", error_number, bytes_written=bytes_written)
    with pytest.raises(OSError, match=os.strerror(error_number)):
        log.append(CheckedBatch.of(batch(2, value_bytes=500)))
    assert (log.log_end, read_all(log)) == (2, written)
    written += fill(log, 2)
    assert (log.flush(), read_all(log)) == (4, written)
    fs.crash()
    log, shown = opened(fs, P)
    assert shown == written


def test_a_roll_that_failed_leaves_nothing_behind() -> None:
    fs = MemoryFileSystem()
    log, _ = opened(fs, P, 300)
    written = fill(log, 3)
    fs.fail("create", errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        fill(log, 5)
    segments = len(log.segments)
    written = read_all(log)
    written += fill(log, 5)
    assert len(log.segments) > segments
    assert read_all(log) == written
    log.flush()


@pytest.mark.parametrize("kind", ["write", "sync", "rename", "sync_directory"])
def test_a_log_start_that_could_not_be_kept_is_not_moved(kind: str) -> None:
    fs = MemoryFileSystem()
    log, _ = opened(fs, P, 300)
    written = fill(log, 9)
    log.flush()
    fs.fail(kind, errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        log.delete_before(5)
    assert (log.log_start, read_all(log)) == (0, written)
    log.delete_before(5)
    assert (log.log_start, read_all(log)) == (5, written[5:])


def test_close_closes_after_a_failure() -> None:
    fs = MemoryFileSystem()
    log, _ = opened(fs, P)
    fill(log, 1)
    fs.fail("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        log.close()
    log.close()


@pytest.mark.parametrize("call", ["overwrite", "sync_directory"])
def test_that_no_file_can_be_opened_is_no_failed_fsync(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first is not needed for what is on disk. The other is: the next flush repeats it."""
    fs = MemoryFileSystem()
    log, _ = opened(fs, P, 300)
    written = fill(log, 12)
    assert len(log.segments) > 1

    def crowded(*_: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(fs, call, crowded)
        if call == "overwrite":
            assert log.flush() == 12
        else:
            with pytest.raises(OSError, match="too many open files"):
                log.flush()
            assert log.durable_end == 0
    assert not log.has_failed
    assert log.flush() == log.durable_end == 12
    written += fill(log, 1)
    assert log.flush() == 13
    fs.crash()
    assert opened(fs, P, 300)[1] == written
