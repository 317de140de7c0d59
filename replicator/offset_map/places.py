"""Looks for each record at its place: the first step of a comparison by the map, in one pass over both sides. Pure.

Used by `compare`. Both sides come ascending by offset, and but for repaired records their places do too; so what has to
wait for the other side is what was repaired, and what differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from replicator.offset_map.mapped import PartitionMap
from replicator.offset_map.order import stands_behind
from replicator.offset_map.verdicts import ComparedRecord


@dataclass(slots=True)
class LeftOver:
    """What doesn't stand where the map says, of each side by offset.

    Attributes:
        gone: of the target's, those whose source record wasn't read, though the map names it.
        same: how many records do stand there.
        behind: those of them that stand behind a copy of a higher source offset: source and target offset.
    """

    source: dict[int, ComparedRecord] = field(default_factory=dict)
    target: dict[int, ComparedRecord] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    same: int = 0
    behind: list[tuple[int, int]] = field(default_factory=list)


class TooManyLeft(Exception):
    """More records don't stand where the map says than may be kept in memory."""


def at_their_places(
    mapped: PartitionMap,
    source: Iterable[ComparedRecord],
    target: Iterable[ComparedRecord],
    left_max: int | None = None,
) -> LeftOver:
    """Compare each source record of the map with the target's record at its place; return what is left over.

    Args:
        left_max: how many records may be kept at a time. Raises TooManyLeft.
    """
    left = LeftOver()
    waiting: dict[int, ComparedRecord] = {}
    rows = (row for row in target if is_compared(mapped, row.offset))
    there = next(rows, None)

    def check_kept() -> None:
        if left_max is not None and len(left.source) + len(left.target) + len(waiting) > left_max:
            raise TooManyLeft

    for row, place, behind in _with_places(mapped, source):
        while there is not None and place is not None and there.offset < place:
            _put_by(mapped, there, waiting, left)
            check_kept()
            there = next(rows, None)
        copy: ComparedRecord | None
        if there is not None and there.offset == place:
            copy, there = there, next(rows, None)
        else:
            copy = None if place is None else waiting.pop(place, None)
        if copy is not None and row.digest and copy.digest == row.digest:
            left.same += 1
            if behind:
                left.behind.append((row.offset, copy.offset))
            continue
        left.source[row.offset] = row
        if copy is not None:
            left.target[copy.offset] = copy
        check_kept()
    while there is not None:
        _put_by(mapped, there, waiting, left)
        check_kept()
        there = next(rows, None)
    left.gone = set(waiting)
    left.target |= waiting
    return left


def is_compared(mapped: PartitionMap, target_offset: int) -> bool:
    """Tell whether a target offset is compared: the map speaks of it, and of this source topic."""
    if not mapped.begin_target <= target_offset < mapped.next_target:
        return False
    return target_offset not in mapped.others and target_offset not in mapped.ahead


def _put_by(mapped: PartitionMap, row: ComparedRecord, waiting: dict[int, ComparedRecord], left: LeftOver) -> None:
    claimed = mapped.by_target.place(row.offset) is not None
    (waiting if claimed else left.target)[row.offset] = row


def _with_places(
    mapped: PartitionMap, source: Iterable[ComparedRecord]
) -> Iterator[tuple[ComparedRecord, int | None, bool]]:
    """Yield the source's records below the bound with their places, and whether these stand behind later ones. Below
    the map's beginning only what has one."""
    runs = iter(mapped.by_source)
    run = next(runs, None)
    behind = run is not None and stands_behind(mapped, run)
    for row in source:
        offset = row.offset
        if offset >= mapped.passed:
            return
        while run is not None and run.end <= offset:
            run = next(runs, None)
            behind = run is not None and stands_behind(mapped, run)
        if run is not None and run.first <= offset:
            yield row, run.place + offset - run.first, behind
        elif offset >= mapped.begin:
            yield row, None, False
