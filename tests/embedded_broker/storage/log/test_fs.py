"""The filesystems keep their promises: the real one under a size limit, the one in memory in a crash."""

from __future__ import annotations

import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from embedded_broker.storage.log.format import decode_offset, encode_offset
from embedded_broker.storage.log.fs import RealFile, RealFileSystem
from embedded_broker.storage.log.memory_fs import MemoryFileSystem, PowerCut
from embedded_broker.wire.checked_batch import CheckedBatch
from tests.embedded_broker.storage.log.partitions import batch, fill, opened, read_all

P = Path("/d/p")


@contextmanager
def disk_full() -> Iterator[None]:
    """Files of this process can't grow beyond 1,000 bytes: a write is done in part, then fails.

    The limit holds for pytest's own output too, when that goes to a file: it must be gone before pytest writes again.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@disk_full()
def test_an_append_that_fails_half_way_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    file = RealFile(tmp_path / "f")
    file.append(b"a" * 900)
    with pytest.raises(OSError, match="too large"):
        file.append(b"b" * 200)
    assert (file.size(), (tmp_path / "f").stat().st_size) == (900, 900)
    file.append(b"c" * 100)
    assert file.read(895, 10) == b"a" * 5 + b"c" * 5


@disk_full()
def test_what_cannot_be_cut_at_once_is_cut_before_the_next_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RealFile(tmp_path / "f")
    file.append(b"a" * 900)
    with monkeypatch.context() as patched:
        patched.setattr("os.ftruncate", lambda fd, size: (_ for _ in ()).throw(OSError(errno.EIO, "bad disk")))
        with pytest.raises(OSError, match="too large"):
            file.append(b"b" * 200)
        assert (tmp_path / "f").stat().st_size == 1_000
        with pytest.raises(OSError, match="bad disk"):
            file.append(b"c")
    assert file.read(0, 2_000) == b"a" * 900
    file.append(b"c")
    assert (tmp_path / "f").read_bytes() == b"a" * 900 + b"c"


@disk_full()
def test_a_log_on_a_full_disk_refuses_and_goes_on_when_there_is_disk_space(tmp_path: Path) -> None:
    log, _ = opened(RealFileSystem(), tmp_path / "p", 1 << 20)
    written = fill(log, 3)
    log.flush()
    with pytest.raises(OSError, match="too large"):
        log.append(CheckedBatch.of(batch(3, value_bytes=5_000)))
    assert (log.log_end, read_all(log)) == (3, written)
    written += fill(log, 2)
    assert log.flush() == 5
    log.close()
    log, shown = opened(RealFileSystem(), tmp_path / "p")
    assert shown == read_all(log) == written
    log.close()


def test_a_file_that_shrank_is_not_served(tmp_path: Path) -> None:
    file = RealFile(tmp_path / "f")
    file.append(b"a" * 10)
    (tmp_path / "f").write_bytes(b"a")
    with pytest.raises(OSError, match="ends at 1"):
        file.read(0, 10)


def test_directories_are_made_with_their_parents(tmp_path: Path) -> None:
    fs = RealFileSystem()
    assert fs.names(tmp_path / "a" / "b" / "c") == []
    fs.write_atomically(tmp_path / "a" / "b" / "c" / "x", b"1")
    fs.write_atomically(tmp_path / "a" / "b" / "c" / "x", b"22")
    fs.overwrite(tmp_path / "a" / "b" / "c" / "y", b"abc")
    fs.overwrite(tmp_path / "a" / "b" / "c" / "y", b"ABC")
    assert fs.names(tmp_path / "a" / "b" / "c") == ["x", "y"]
    assert fs.read_small(tmp_path / "a" / "b" / "c" / "x") == b"22"
    assert fs.read_small(tmp_path / "a" / "b" / "c" / "y") == b"ABC"
    assert fs.read_small(tmp_path / "none") is None
    fs.remove(tmp_path / "none")
    fs.remove_directory(tmp_path / "none")


def test_the_memory_filesystem_loses_unsynced_data() -> None:
    fs = MemoryFileSystem()
    file = fs.open(P)
    file.append(b"one")
    file.sync()
    file.append(b"two")
    fs.crash()
    assert fs.read_small(P) is None  # the name was never synced
    file = fs.open(P)
    file.append(b"one")
    file.sync()
    fs.sync_directory(P.parent)
    file.append(b"two")
    fs.write_atomically(P.with_name("x"), b"x")
    fs.overwrite(P.with_name("y"), b"y")
    fs.remove(P)
    fs.crash()
    assert (fs.read_small(P), fs.names(P.parent)) == (b"one", ["p", "x"])


def test_the_memory_filesystem_can_lose_any_part_of_unsynced_data() -> None:
    found = set()
    for seed in range(200):
        fs = MemoryFileSystem()
        file = fs.open(P)
        fs.sync_directory(P.parent)
        file.append(b"ab")
        file.append(b"cd")
        fs.crash(Random(seed))
        found.add(fs.read_small(P))
    whole = {b"", b"a", b"ab", b"abc", b"abcd"}
    assert found == whole | {b"\0\0", b"\0\0c", b"\0\0cd", b"a\0", b"a\0c", b"a\0cd"}


def test_the_memory_filesystem_fails_as_configured() -> None:
    fs = MemoryFileSystem()
    file = fs.open(P)
    fs.fail("append", errno.ENOSPC, after=1, bytes_written=2)
    file.append(b"one")
    with pytest.raises(OSError, match="No space"):
        file.append(b"two")
    assert (fs.read_small(P), file.read(0, 9), file.size()) == (b"onetw", b"one", 3)
    file.append(b"3")
    assert fs.read_small(P) == b"one3"
    fs.power_cut(after=1)
    file.sync()
    with pytest.raises(PowerCut):
        file.sync()


def test_a_corrupt_offset_file_is_ignored() -> None:
    for offset in (0, 7, 2**63 - 1):
        sound = encode_offset(offset)
        assert decode_offset(sound) == offset
        for at in range(len(sound)):
            assert decode_offset(sound[:at]) is None
            assert decode_offset(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :]) is None


@pytest.mark.parametrize("make", [RealFileSystem, MemoryFileSystem])
def test_a_directory_is_locked_once_at_a_time(
    make: type[RealFileSystem] | type[MemoryFileSystem], tmp_path: Path
) -> None:
    fs, directory = make(), tmp_path / "new"
    lock = fs.lock(directory)
    with pytest.raises(BlockingIOError):
        fs.lock(directory)
    fs.lock(tmp_path / "other").release()
    lock.release()
    fs.lock(directory).release()


def test_a_lock_does_not_outlive_its_process() -> None:
    fs = MemoryFileSystem()
    before = fs.lock(P)
    fs.process_gone()
    fs.lock(P)
    before.release()
    with pytest.raises(BlockingIOError):
        fs.lock(P)
