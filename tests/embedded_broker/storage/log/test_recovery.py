"""What is left after a crash: all that was acknowledged, byte for byte, and nothing that was not written."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from embedded_broker.storage.log.format import DURABLE, LOG_START, encode_offset, segment_name
from embedded_broker.storage.log.fs import RealFileSystem
from embedded_broker.storage.log.memory_fs import MemoryFileSystem, PowerCut
from embedded_broker.storage.log.partition_log import PartitionLog
from embedded_broker.storage.log.segment import CorruptLog
from embedded_broker.wire.checked_batch import CheckedBatch
from tests.budget import budget
from tests.embedded_broker.storage.log.partitions import batch, fill, opened, read_all

P = Path("/partitions/p")


def a_directory(path: Path, *, batches: int, flushed: int, segment_bytes: int = 1 << 20) -> list[bytes]:
    """A log of a process that was killed: `batches` were written, `flushed` of them acknowledged."""
    log, _ = opened(RealFileSystem(), path, segment_bytes)
    written = fill(log, flushed)
    log.flush()
    return written + fill(log, batches - flushed)


@pytest.mark.tier("default")
@pytest.mark.parametrize("junk", [b"", bytes(200), b"\xff" * 200], ids=["cut", "zeros", "ones"])
def test_cut_at_every_byte_of_the_last_batches(tmp_path: Path, junk: bytes) -> None:
    """Every prefix of what was not acknowledged, also with rubbish behind it, gives back whole batches alone."""
    written = a_directory(tmp_path / "p", batches=5, flushed=2)
    file = tmp_path / "p" / segment_name(0)
    whole, acknowledged = file.read_bytes(), len(written[0]) + len(written[1])
    for size in range(acknowledged, len(whole) + 1):
        file.write_bytes(whole[:size] + junk)
        (tmp_path / "p" / DURABLE).write_bytes(encode_offset(2))
        log, shown = opened(RealFileSystem(), tmp_path / "p")
        expected = [one for one in written if one in whole[:size] + junk]  # the last byte of a batch is 0, too
        assert shown == read_all(log) == expected
        assert log.log_end == log.durable_end == len(expected) >= 2
        log.append(CheckedBatch.of(batch(log.log_end)))
        log.close()
        assert file.stat().st_size == sum(map(len, expected)) + len(batch(0))


def test_cut_into_what_was_acknowledged_is_refused_at_every_byte(tmp_path: Path) -> None:
    written = a_directory(tmp_path / "p", batches=3, flushed=3)
    file = tmp_path / "p" / segment_name(0)
    whole = file.read_bytes()
    for size in range(len(whole)):
        file.write_bytes(whole[:size])
        sound = size // len(written[0])
        with pytest.raises(CorruptLog, match=rf"{file} at byte {sound * len(written[0])}: .*{sound} to 2 were durable"):
            opened(RealFileSystem(), tmp_path / "p")
        assert file.stat().st_size == size  # nothing is cut away before somebody has looked at it


def test_every_byte_that_went_bad_is_noticed(tmp_path: Path) -> None:
    """A batch in the middle, sound ones after it: named, and left as it is. The leader epoch is in no CRC."""
    written = a_directory(tmp_path / "p", batches=3, flushed=3)
    file, size = tmp_path / "p" / segment_name(0), len(written[0])
    whole = file.read_bytes()
    for at in set(range(size, 2 * size)) - set(range(size + 12, size + 16)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x80]) + whole[at + 1 :])
        with pytest.raises(CorruptLog, match=rf"{file} at byte {size}: .*; offsets 1 to 2 were durable"):
            opened(RealFileSystem(), tmp_path / "p")


def test_what_was_not_acknowledged_is_cut_with_all_behind_it_over_segments(tmp_path: Path) -> None:
    written = a_directory(tmp_path / "p", batches=40, flushed=4, segment_bytes=1_000)
    second = sorted(path for path in (tmp_path / "p").iterdir() if path.suffix == ".log")[1]
    data = bytearray(second.read_bytes())
    data[len(written[0]) + 80] ^= 1
    second.write_bytes(data)
    log, shown = opened(RealFileSystem(), tmp_path / "p")
    assert shown == read_all(log) == written[: int(second.stem) + 1]
    assert len(log.segments) == 2
    log.close()
    log, again = opened(RealFileSystem(), tmp_path / "p")
    assert again == shown
    log.close()


@pytest.mark.parametrize(
    ("lost", "why"),
    [
        (0, "no segment begins at or before 0, the log start; offsets 0 to 39 were durable"),
        (1, "at byte 0: offset [0-9]+ should be here; offsets [0-9]+ to 39 were durable"),
        (-1, "at byte [0-9]+: the file ends; offsets [0-9]+ to 39 were durable"),
    ],
)
def test_a_lost_segment_is_noticed(tmp_path: Path, lost: int, why: str) -> None:
    a_directory(tmp_path / "p", batches=40, flushed=40, segment_bytes=1_000)
    sorted(path for path in (tmp_path / "p").iterdir() if path.suffix == ".log")[lost].unlink()
    with pytest.raises(CorruptLog, match=why):
        opened(RealFileSystem(), tmp_path / "p")


@pytest.mark.parametrize("kept", [0, 1])
def test_segments_may_be_lost_when_nothing_in_them_was_acknowledged(tmp_path: Path, kept: int) -> None:
    """The name of the first can be lost while that of its successor is kept."""
    a_directory(tmp_path / "p", batches=20, flushed=0, segment_bytes=1_000)
    for path in sorted(path for path in (tmp_path / "p").iterdir() if path.suffix == ".log")[: 1 if kept else None]:
        path.unlink()
    log, shown = opened(RealFileSystem(), tmp_path / "p")
    assert (shown, log.log_end, len(log.segments)) == ([], 0, 1)
    written = fill(log, 20)
    log.close()
    log, shown = opened(RealFileSystem(), tmp_path / "p")
    assert shown == written
    log.close()


def test_the_new_segment_may_be_lost_when_all_before_it_was_deleted(tmp_path: Path) -> None:
    a_directory(tmp_path / "p", batches=5, flushed=5)
    log, _ = opened(RealFileSystem(), tmp_path / "p")
    log.delete_before(5)
    log.close()
    assert [path.name for path in (tmp_path / "p").glob("*.log")] == [segment_name(5)]
    (tmp_path / "p" / segment_name(5)).unlink()
    log, shown = opened(RealFileSystem(), tmp_path / "p")
    assert (shown, log.log_start, log.log_end) == ([], 5, 5)
    log.close()


def test_all_segments_lost_is_noticed(tmp_path: Path) -> None:
    a_directory(tmp_path / "p", batches=4, flushed=4)
    (tmp_path / "p" / segment_name(0)).unlink()
    with pytest.raises(
        CorruptLog, match="no segment begins at or before 0, the log start; offsets 0 to 3 were durable"
    ):
        opened(RealFileSystem(), tmp_path / "p")


def test_a_lost_segment_that_was_not_acknowledged_ends_the_log(tmp_path: Path) -> None:
    written = a_directory(tmp_path / "p", batches=40, flushed=3, segment_bytes=1_000)
    names = sorted(path for path in (tmp_path / "p").iterdir() if path.suffix == ".log")
    names[2].unlink()
    log, shown = opened(RealFileSystem(), tmp_path / "p")
    assert shown == written[: int(names[2].stem)]
    assert [segment.path for segment in log.segments] == names[:2]
    log.close()


@pytest.mark.parametrize("mark", [b"", b"junk", encode_offset(3)[:25], None])
def test_a_torn_durable_mark_says_nothing(tmp_path: Path, mark: bytes | None) -> None:
    written = a_directory(tmp_path / "p", batches=3, flushed=3)
    (tmp_path / "p" / DURABLE).unlink()
    if mark is not None:
        (tmp_path / "p" / DURABLE).write_bytes(mark)
    log, shown = opened(RealFileSystem(), tmp_path / "p")
    assert shown == written
    log.close()
    assert (tmp_path / "p" / DURABLE).read_bytes() == encode_offset(3)


def test_a_bad_log_start_is_refused(tmp_path: Path) -> None:
    a_directory(tmp_path / "p", batches=3, flushed=3)
    (tmp_path / "p" / LOG_START).write_bytes(b"00000000000000000002 00000000\n")
    with pytest.raises(CorruptLog, match=LOG_START):
        opened(RealFileSystem(), tmp_path / "p")


def test_segments_below_the_log_start_that_came_back_are_dropped(tmp_path: Path) -> None:
    """Their names may come back after a power cut, some of them."""
    written = a_directory(tmp_path / "p", batches=40, flushed=40, segment_bytes=1_000)
    shutil.copytree(tmp_path / "p", tmp_path / "before")
    log, _ = opened(RealFileSystem(), tmp_path / "p")
    log.delete_before(35)
    log.close()
    back = sorted(path for path in (tmp_path / "before").iterdir() if path.suffix == ".log")[1]
    shutil.copy(back, tmp_path / "p" / back.name)
    log, shown = opened(RealFileSystem(), tmp_path / "p")
    assert shown == written[log.segments[0].base_offset :]
    assert read_all(log) == written[35:]
    assert not (tmp_path / "p" / back.name).exists()
    log.close()


def test_an_error_while_reading_is_not_taken_for_the_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    written = a_directory(tmp_path / "p", batches=3, flushed=0)
    with monkeypatch.context() as patched:
        patched.setattr("os.pread", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "bad disk")))
        with pytest.raises(CorruptLog, match="bad disk"):
            opened(RealFileSystem(), tmp_path / "p")
    log, shown = opened(RealFileSystem(), tmp_path / "p")
    assert shown == written
    log.close()


class Promises:
    """What a run over a filesystem that may stop has been promised."""

    def __init__(self) -> None:
        self.written: dict[int, bytes] = {}  # by base offset: what stands there, if anything does
        self.durable_end = 0
        self.log_start = 0
        self.log_start_asked = 0

    def check(self, log: PartitionLog, shown: list[bytes]) -> None:
        assert log.log_end >= self.durable_end, "an acknowledged batch is gone"
        assert self.log_start <= log.log_start <= self.log_start_asked
        assert log.durable_end == log.log_end
        assert shown == [self.written[offset] for offset in range(log.segments[0].base_offset, log.log_end)]
        assert read_all(log) == [self.written[offset] for offset in range(log.log_start, log.log_end)]
        self.durable_end, self.log_start = log.log_end, log.log_start  # recovery has shown it


def work(fs: MemoryFileSystem, promises: Promises, random: Random, steps: int) -> None:
    """Open, check, then do this and that; promises are noted once they are given."""
    log, shown = opened(fs, P, 600)
    promises.check(log, shown)
    for _ in range(steps):
        do = random.random()
        if do < 0.6:
            one = bytes(batch(log.log_end, value_bytes=random.choice([1, 40, 300]), times_ms=[random.randrange(9**9)]))
            promises.written[log.log_end] = one
            log.append(CheckedBatch.of(one))
        elif do < 0.9:
            promises.durable_end = log.flush()
        elif do < 0.97:
            start = random.randint(log.log_start, log.log_end)
            promises.log_start_asked = max(promises.log_start_asked, start)
            log.delete_before(start)
            promises.log_start = log.log_start
        else:
            log.close()
            log, shown = opened(fs, P, 600)
            promises.check(log, shown)


@pytest.mark.tier("default")
@pytest.mark.parametrize("seed", range(budget(150, 2_000)))
def test_power_cuts_at_any_operation_again_and_again(seed: int) -> None:
    """Also in the middle of recovery. What was not synced is lost, whole, or there in part, in any order."""
    random, fs, promises = Random(seed), MemoryFileSystem(), Promises()
    for _ in range(12):
        fs.power_cut(after=random.choice([0, 2, 5, 10, 20, 50]))
        with contextlib.suppress(PowerCut):
            work(fs, promises, random, steps=60)
        fs.crash(random if random.random() < 0.8 else None)
    log, shown = opened(fs, P, 600)
    promises.check(log, shown)


WRITER = """
import sys
from pathlib import Path
from embedded_broker.storage.log.fs import RealFileSystem
from embedded_broker.wire.checked_batch import CheckedBatch
from tests.embedded_broker.storage.log.partitions import batch, opened
log, _ = opened(RealFileSystem(), Path(sys.argv[1]), 20_000)
while True:
    for _ in range(7):
        log.append(CheckedBatch.of(batch(log.log_end, value_bytes=1_000)))
    sys.stdout.write(f"{log.flush()}\\n")
    sys.stdout.flush()
"""


@pytest.mark.tier("default")
def test_sigkill_while_it_writes(tmp_path: Path) -> None:
    acknowledged = 0
    for seed in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path / "p")], stdout=subprocess.PIPE, text=True, cwd=os.getcwd()
        )
        assert process.stdout is not None
        for _ in range(Random(seed).randint(1, 40)):
            acknowledged = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().split("\n")[:-1]
        process.wait()
        acknowledged = int(rest[-1]) if rest else acknowledged
        log, shown = opened(RealFileSystem(), tmp_path / "p", 20_000)
        assert log.log_end >= acknowledged > 0
        assert shown == read_all(log) == [bytes(batch(offset, value_bytes=1_000)) for offset in range(log.log_end)]
        log.close()
