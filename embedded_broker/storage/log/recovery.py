"""What happens to a partition's directory when it is opened, in the steps of docs/log-format.md.

A crash can leave behind the durable end: batches in part, segments whose predecessor isn't whole, names of files that
were removed. All of that is cut away. Below the durable end nothing may be wrong: it was acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from embedded_broker.config.thresholds import DEFAULTS, Thresholds
from embedded_broker.storage.log import checkpoint
from embedded_broker.storage.log.checkpoint import Checkpoint, State
from embedded_broker.storage.log.format import (
    CHECKPOINT,
    CLEAN,
    CLEANED_SUFFIX,
    COMPACTED,
    DURABLE,
    LOG_START,
    base_offset_of,
    decode_offset,
    index_name,
    segment_name,
)
from embedded_broker.storage.log.fs import FileSystem
from embedded_broker.storage.log.segment import CorruptLog, OnBatch, Segment


@dataclass(frozen=True, slots=True)
class Recovered:
    """What is left. All of `segments` are sound and follow one another."""

    segments: list[Segment]
    log_start: int
    durable_end: int
    """Offsets below are known to be durable; what is above has survived, and must be synced before it is shown."""
    compacted_end: int
    """Offsets may be missing below."""
    clean_end: int
    """Compaction has nothing to do below."""
    checkpoint_end: int
    """Offset of the checkpoint that was used; -1 without one."""
    scanned_bytes: int


OnState = Callable[[State], None]


@dataclass(frozen=True, slots=True)
class _Known:
    """What the small files say before a segment is opened."""

    log_start: int
    durable_end: int
    compacted_end: int
    clean_end: int
    checkpoint: Checkpoint | None


def recover(
    fs: FileSystem,
    directory: Path,
    on_batch: OnBatch,
    on_state: OnState | None = None,
    thresholds: Thresholds = DEFAULTS,
) -> Recovered:
    """Bring a directory in order, calling `on_batch` for every batch that stays.

    With `on_state`, a sound checkpoint is given to it first; then batches below the checkpoint are neither shown nor,
    as far as there are index files, read. Raises CorruptLog, naming file and position, when something durable is wrong
    or missing; OSError.
    """
    names = fs.names(directory)
    for name in names:
        if name.endswith(CLEANED_SUFFIX):
            fs.remove(directory / name)
    known = _read_small_files(fs, directory)
    log_start, durable_end = known.log_start, known.durable_end
    bases = [base for base in map(base_offset_of, names) if base is not None]
    while len(bases) > 1 and bases[1] <= log_start:
        remove_segment(fs, directory, bases.pop(0))
    if not bases or (bases[0] > log_start and not _is_gap(known, bases[0])):
        _refuse_below(
            durable_end, log_start, directory, 0, f"no segment begins at or before {log_start}, the log start"
        )
        _cut(fs, directory, bases)
        bases = []
    used = known.checkpoint if on_state is not None else None
    if used is not None and on_state is not None:
        on_state(used.state)
    segments: list[Segment] = []
    try:
        scanned_bytes = _scan(fs, directory, bases, known, used, on_batch, segments, thresholds)
    except BaseException:
        for segment in segments:
            segment.close()
        raise
    checkpoint_end = -1 if used is None else used.offset
    return Recovered(
        segments, log_start, durable_end, known.compacted_end, known.clean_end, checkpoint_end, scanned_bytes
    )


def _is_gap(known: _Known, first_base: int) -> bool:
    """Return whether compaction may have removed all that was between the log start and the first segment.

    Versions before removed a segment as soon as the log start was at its end. Where nothing was deleted, the first
    segment begins at 0: compaction keeps where it begins.
    """
    return 0 < known.log_start < first_base <= known.compacted_end


def read_log_start(fs: FileSystem, directory: Path) -> int:
    """Read the first offset that is not deleted. Raises CorruptLog, OSError."""
    return _read_offset(fs, directory / LOG_START)


def _read_small_files(fs: FileSystem, directory: Path) -> _Known:
    log_start = read_log_start(fs, directory)
    compacted_end = _read_offset(fs, directory / COMPACTED)
    found = checkpoint.decode(fs.read_small(directory / CHECKPOINT) or b"")
    durable_end = decode_offset(fs.read_small(directory / DURABLE) or b"") or 0
    clean_end = min(decode_offset(fs.read_small(directory / CLEAN) or b"") or 0, compacted_end)
    acknowledged_end = max(durable_end, log_start, found.offset if found else 0)
    return _Known(log_start, acknowledged_end, compacted_end, clean_end, found)


def _read_offset(fs: FileSystem, path: Path) -> int:
    """Read the offset in a file that is replaced atomically; 0 when there is none. Raises CorruptLog when it is
    unsound.
    """
    data = fs.read_small(path)
    if data is None:
        return 0
    offset = decode_offset(data)
    if offset is None:
        raise CorruptLog(f"{path} is not sound: {data[:64]!r}")
    return offset


def _scan(
    fs: FileSystem,
    directory: Path,
    bases: list[int],
    known: _Known,
    used: Checkpoint | None,
    on_batch: OnBatch,
    segments: list[Segment],
    thresholds: Thresholds,
) -> int:
    """Open and scan segments in order into `segments`; at the first unsound byte, cut it and all that follows.

    Returns how many bytes were read.
    """
    durable_end, scanned_bytes, below = known.durable_end, 0, 0 if used is None else used.offset
    for number, base in enumerate(bases):
        end = segments[-1].end_offset if segments else base
        if base < end and base < known.compacted_end:
            # Its records are in the one before, which compaction wrote in the place of both.
            remove_segment(fs, directory, base)
            continue
        if base != end and not end < base <= known.compacted_end:
            _refuse_below(durable_end, end, directory / segment_name(base), 0, f"offset {end} should be here")
            _cut(fs, directory, bases[number:])
            return scanned_bytes
        segment = Segment(fs, directory, base, known.compacted_end, thresholds=thresholds)
        segments.append(segment)
        segment.is_named = base < durable_end
        if base < below:
            segment.restore(fs.read_small(segment.index_path) or b"", below)
        scanned_bytes += segment.size_bytes - segment.sound_bytes
        wrong = segment.scan(on_batch, below)
        if wrong is not None:
            _refuse_below(durable_end, segment.end_offset, segment.path, segment.sound_bytes, wrong)
            _cut(fs, directory, bases[number + 1 :])
            segment.truncate(segment.sound_bytes)
            segment.sync()
            return scanned_bytes
    if segments and segments[-1].end_offset < known.compacted_end:
        segments[-1].end_offset = known.compacted_end
    if segments:
        last = segments[-1]
        _refuse_below(durable_end, last.end_offset, last.path, last.size_bytes, "the file ends")
    return scanned_bytes


def remove_segment(fs: FileSystem, directory: Path, base_offset: int) -> None:
    """Remove a segment's files. Raises OSError."""
    fs.remove(directory / segment_name(base_offset))
    fs.remove(directory / index_name(base_offset))


def _refuse_below(durable_end: int, end: int, path: Path, position: int, wrong: str) -> None:
    """Raise CorruptLog unless all that was durable is below `end`, where the log would end now."""
    if end < durable_end:
        raise CorruptLog(f"{path} at byte {position}: {wrong}; offsets {end} to {durable_end - 1} were durable")


def _cut(fs: FileSystem, directory: Path, bases: list[int]) -> None:
    """Remove segments, durably. What makes their predecessor unsound stays until then, so that a crash in between
    comes back here."""
    for base in bases:
        remove_segment(fs, directory, base)
    if bases:
        fs.sync_directory(directory)
