"""What happens to a partition's directory when it is opened, in the steps of docs/log-format.md.

A crash can leave behind the durable end: batches in part, segments whose predecessor isn't whole, names of files that
were removed. All of that is cut away. Below the durable end nothing may be wrong: it was acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from embedded_broker.log.format import DURABLE, LOG_START, base_offset_of, decode_offset, segment_name
from embedded_broker.log.fs import FileSystem
from embedded_broker.log.segment import CorruptLog, OnBatch, Segment


@dataclass(frozen=True, slots=True)
class Recovered:
    """What is left. All of `segments` are sound and follow one another."""

    segments: list[Segment]
    log_start: int
    durable_end: int
    """Offsets below are known to be durable; what is above has survived, and must be synced before it is shown."""


def recover(fs: FileSystem, directory: Path, on_batch: OnBatch) -> Recovered:
    """Bring a directory in order, calling `on_batch` for every batch that stays.

    Raises CorruptLog, naming file and position, when something durable is wrong or missing; OSError.
    """
    names = fs.names(directory)
    log_start = _read_log_start(fs, directory)
    durable_end = max(decode_offset(fs.read_small(directory / DURABLE) or b"") or 0, log_start)
    bases = [base for base in map(base_offset_of, names) if base is not None]
    while len(bases) > 1 and bases[1] <= log_start:
        fs.remove(directory / segment_name(bases.pop(0)))
    if not bases or bases[0] > log_start:
        _refuse_below(
            durable_end, log_start, directory, 0, f"no segment begins at or before {log_start}, the log start"
        )
        _cut(fs, directory, bases)
        bases = []
    segments: list[Segment] = []
    try:
        _scan(fs, directory, bases, durable_end, on_batch, segments)
    except BaseException:
        for segment in segments:
            segment.close()
        raise
    return Recovered(segments, log_start, durable_end)


def _read_log_start(fs: FileSystem, directory: Path) -> int:
    data = fs.read_small(directory / LOG_START)
    if data is None:
        return 0
    log_start = decode_offset(data)
    if log_start is None:
        raise CorruptLog(f"{directory / LOG_START} is not sound: {data[:64]!r}")
    return log_start


def _scan(
    fs: FileSystem, directory: Path, bases: list[int], durable_end: int, on_batch: OnBatch, segments: list[Segment]
) -> None:
    """Open and scan segments in order into `segments`; at the first unsound byte, cut it and all that follows."""
    for number, base in enumerate(bases):
        if segments and base != segments[-1].end_offset:
            end = segments[-1].end_offset
            _refuse_below(durable_end, end, directory / segment_name(base), 0, f"offset {end} should be here")
            _cut(fs, directory, bases[number:])
            return
        segment = Segment(fs, directory, base)
        segments.append(segment)
        segment.is_named = base < durable_end
        wrong = segment.scan(on_batch)
        if wrong is not None:
            _refuse_below(durable_end, segment.end_offset, segment.path, segment.sound_bytes, wrong)
            _cut(fs, directory, bases[number + 1 :])
            segment.truncate(segment.sound_bytes)
            segment.sync()
            return
    if segments:
        last = segments[-1]
        _refuse_below(durable_end, last.end_offset, last.path, last.size_bytes, "the file ends")


def _refuse_below(durable_end: int, end: int, path: Path, position: int, wrong: str) -> None:
    """Raises CorruptLog unless all that was durable is below `end`, where the log would end now."""
    if end < durable_end:
        raise CorruptLog(f"{path} at byte {position}: {wrong}; offsets {end} to {durable_end - 1} were durable")


def _cut(fs: FileSystem, directory: Path, bases: list[int]) -> None:
    """Remove segments, durably. What makes their predecessor unsound stays until then, so that a crash in between
    comes back here."""
    for base in bases:
        fs.remove(directory / segment_name(base))
    if bases:
        fs.sync_directory(directory)
