"""Looks for each record at its place: the first step of a comparison by the map, in one pass over both sides. Pure.

Used by `compare`. Both sides come ascending by offset, and but for repaired records their places do too; so what has to
wait for the other side is what was repaired, and what differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from replicator.offset_map.mapped import PartitionMap
from replicator.offset_map.verdicts import ComparedRecord


@dataclass(slots=True)
class LeftOver:
    """What doesn't stand where the map says, of each side by offset.

    Attributes:
        gone: of the target's, those whose source record wasn't read, though the map names it.
        same: how many records do stand there.
    """

    source: dict[int, ComparedRecord] = field(default_factory=dict)
    target: dict[int, ComparedRecord] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    same: int = 0


def at_their_places(
    mapped: PartitionMap, source: Iterable[ComparedRecord], target: Iterable[ComparedRecord]
) -> LeftOver:
    """Compare each judged source record with the target's record at its place; return what is left over."""
    left = LeftOver()
    waiting: dict[int, ComparedRecord] = {}
    rows = (row for row in target if is_judged(mapped, row.offset))
    there = next(rows, None)
    for row, place in _with_places(mapped, source):
        while there is not None and place is not None and there.offset < place:
            _put_by(mapped, there, waiting, left)
            there = next(rows, None)
        copy: ComparedRecord | None
        if there is not None and there.offset == place:
            copy, there = there, next(rows, None)
        else:
            copy = None if place is None else waiting.pop(place, None)
        if copy is not None and row.digest and copy.digest == row.digest:
            left.same += 1
            continue
        left.source[row.offset] = row
        if copy is not None:
            left.target[copy.offset] = copy
    while there is not None:
        _put_by(mapped, there, waiting, left)
        there = next(rows, None)
    left.gone = set(waiting)
    left.target |= waiting
    return left


def is_judged(mapped: PartitionMap, target_offset: int) -> bool:
    """Whether a target offset is judged: the map speaks of it, and of this source topic."""
    if not mapped.begin_target <= target_offset < mapped.next_target:
        return False
    return target_offset not in mapped.others and target_offset not in mapped.ahead


def _put_by(mapped: PartitionMap, row: ComparedRecord, waiting: dict[int, ComparedRecord], left: LeftOver) -> None:
    claimed = mapped.by_target.place(row.offset) is not None
    (waiting if claimed else left.target)[row.offset] = row


def _with_places(mapped: PartitionMap, source: Iterable[ComparedRecord]) -> Iterator[tuple[ComparedRecord, int | None]]:
    """The source's records below the bound with their places. Below the map's beginning only what has one."""
    runs = iter(mapped.by_source)
    run = next(runs, None)
    for row in source:
        offset = row.offset
        if offset >= mapped.passed:
            return
        while run is not None and run.end <= offset:
            run = next(runs, None)
        if run is not None and run.first <= offset:
            yield row, run.place + offset - run.first
        elif offset >= mapped.begin:
            yield row, None
