"""What a partition's log promises its one reader and writer, on real files and in memory."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedded_broker.storage.log.fs import FileSystem, RealFileSystem
from embedded_broker.storage.log.memory_fs import MemoryFileSystem
from embedded_broker.wire.checked_batch import CheckedBatch
from kafka_records.batch import read_header, stamp
from kafka_records.control import marker
from kafka_records.records import Record
from tests.embedded_broker.storage.log.partitions import batch, fill, opened, read_all
from tests.embedded_broker.times import max_timestamp, offset_for_time
from tests.kafka_records.batches import by_aiokafka


@pytest.fixture(params=[RealFileSystem, MemoryFileSystem])
def fs(request: pytest.FixtureRequest) -> FileSystem:
    made: FileSystem = request.param()
    return made


def test_bytes_come_back_as_they_went_in_over_rolls_and_restarts(fs: FileSystem, tmp_path: Path) -> None:
    log, _ = opened(fs, tmp_path / "p")
    written = fill(log, 40, count=3)
    assert len(log.segments) > 3
    assert read_all(log) == written
    assert log.flush() == log.log_end == 120
    log.close()
    log, shown = opened(fs, tmp_path / "p")
    assert (shown, read_all(log), log.log_end) == (written, written, 120)
    written += fill(log, 3)
    assert read_all(log) == written
    log.close()


def test_what_was_not_flushed_survives_a_restart_of_the_process(fs: FileSystem, tmp_path: Path) -> None:
    log, _ = opened(fs, tmp_path / "p")
    written = fill(log, 30)
    again, shown = opened(fs, tmp_path / "p")  # the first log was killed: neither flushed nor closed
    assert shown == written
    assert again.flush() == again.durable_end == 30  # and open has made durable what it shows
    again.close()


def test_an_empty_log(fs: FileSystem, tmp_path: Path) -> None:
    for _ in range(2):
        log, shown = opened(fs, tmp_path / "p")
        assert (log.log_start, log.log_end, log.flush(), shown) == (0, 0, 0, [])
        assert (log.read(0, 100, 0), offset_for_time(log, 0), max_timestamp(log)) == (b"", None, None)
        log.close()


SIZES = st.lists(st.tuples(st.integers(1, 5), st.sampled_from([0, 1, 30, 300, 4_000, 9_000])), min_size=1, max_size=60)


@pytest.mark.tier("extended")
@given(SIZES, st.integers(100, 60_000), st.data())
def test_reads_are_whole_batches_within_bounds(
    sizes: list[tuple[int, int]], segment_bytes: int, data: st.DataObject
) -> None:
    """Against the plain definition: walk the segment's batches one by one."""
    log, _ = opened(MemoryFileSystem(), Path("/p"), segment_bytes)
    for count, value_bytes in sizes:
        log.append(CheckedBatch.of(batch(log.log_end, count, value_bytes)))
    boundaries = list(accumulate((count for count, _ in sizes), initial=0))
    for _ in range(20):
        offset = data.draw(st.integers(0, log.log_end - 1))
        up_to = data.draw(st.sampled_from(boundaries))
        bytes_max = data.draw(st.integers(1, 30_000))
        segment = next(segment for segment in log.segments if segment.end_offset > offset)
        wanted = b""
        for (count, value_bytes), base in zip(sizes, boundaries, strict=False):
            one = batch(base, count, value_bytes)
            inside = segment.base_offset <= base < segment.end_offset and base + count > offset and base < up_to
            if inside and offset < up_to:
                if wanted and len(wanted) + len(one) > bytes_max:
                    break
                wanted += one
        assert log.read(offset, bytes_max, up_to) == wanted


TIMES = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 30), st.sampled_from([1, 2_000])), min_size=1, max_size=60)


@given(TIMES, st.integers(0, 31), st.integers(0, 50))
def test_times_are_found_as_by_looking_at_every_record(
    batches: list[tuple[int, int, int]], wanted_ms: int, start: int
) -> None:
    log, _ = opened(MemoryFileSystem(), Path("/p"), 40_000)
    records: list[tuple[int, int]] = []
    for count, time_ms, value_bytes in batches:
        base = log.log_end
        made = by_aiokafka([Record(0, time_ms + number % 2, b"", bytes(value_bytes)) for number in range(count)])
        stamp(made, base, 0)
        log.append(CheckedBatch.of(made))
        records += [(base + number, time_ms + number % 2) for number in range(count)]
    log.delete_before(min(start, log.log_end))
    kept = [(offset, time_ms) for offset, time_ms in records if offset >= log.log_start]
    assert offset_for_time(log, wanted_ms) == next((each for each in kept if each[1] >= wanted_ms), None)
    if log.log_start == 0:
        assert max_timestamp(log) == max(records, key=lambda each: (each[1], -each[0]))


def test_the_latest_of_a_log_append_time_batch_is_its_last_record(fs: FileSystem, tmp_path: Path) -> None:
    log, _ = opened(fs, tmp_path / "p")
    for time_ms in (500, 900, 900, 700):
        made = batch(log.log_end, 3)
        stamp(made, log.log_end, 0, append_time_ms=time_ms)
        log.append(CheckedBatch.of(made))
    assert max_timestamp(log) == (5, 900)
    assert offset_for_time(log, 501) == (3, 900)
    assert offset_for_time(log, 901) is None


def test_markers_have_a_time_like_any_record(fs: FileSystem, tmp_path: Path) -> None:
    log, _ = opened(fs, tmp_path / "p")
    log.append(CheckedBatch.of(batch(0, times_ms=[10])))
    made = marker(1, 0, commit=True, timestamp_ms=50)
    stamp(made, 1, 0)
    log.append(CheckedBatch.of(made))
    assert offset_for_time(log, 20) == max_timestamp(log) == (1, 50)


def test_deleting_moves_the_start_drops_whole_segments_and_survives(fs: FileSystem, tmp_path: Path) -> None:
    log, _ = opened(fs, tmp_path / "p")
    written = fill(log, 60, count=2)
    log.delete_before(57)
    assert log.log_start == 57
    assert log.segments[0].base_offset <= 57 < log.segments[0].end_offset
    kept = [each for each in written if read_header(each).last_offset >= 57]
    assert read_all(log) == kept
    assert read_header(log.read(57, 1, log.log_end)).base_offset == 56  # a reader skips what is before
    log.delete_before(10)
    assert log.log_start == 57
    log.delete_before(120)
    log.close()
    log, _ = opened(fs, tmp_path / "p")
    assert (log.log_start, log.log_end, len(log.segments), read_all(log)) == (120, 120, 1, [])
    log.append(CheckedBatch.of(batch(120)))
    assert read_header(log.read(120, 1, 121)).base_offset == 120
    with pytest.raises(ValueError, match="above the end"):
        log.delete_before(122)
    log.close()


def test_a_changed_segment_size_holds_for_the_next_append(fs: FileSystem, tmp_path: Path) -> None:
    log, _ = opened(fs, tmp_path / "p", 1 << 20)
    fill(log, 50)
    assert len(log.segments) == 1
    log.segment_bytes = 500
    fill(log, 1)
    assert len(log.segments) == 2
    log.append(CheckedBatch.of(batch(log.log_end, value_bytes=2_000)))  # larger than a segment: one of its own
    fill(log, 1)
    assert [segment.end_offset - segment.base_offset for segment in log.segments] == [50, 1, 1, 1]
    assert log.size_bytes == sum(map(len, read_all(log)))


def test_batches_that_do_not_fit_are_refused(fs: FileSystem, tmp_path: Path) -> None:
    log, _ = opened(fs, tmp_path / "p")
    fill(log, 2)
    for wrong in (batch(1), batch(2) + batch(3), batch(2)[:-1]):
        with pytest.raises(ValueError, match="does not fit"):
            log.append(CheckedBatch.of(wrong))
    assert len(read_all(log)) == 2


def test_destroy_leaves_nothing(fs: FileSystem, tmp_path: Path) -> None:
    log, _ = opened(fs, tmp_path / "t" / "p")
    fill(log, 30)
    log.delete_before(20)
    log.flush()
    log.destroy()
    assert fs.names(tmp_path / "t") == []
