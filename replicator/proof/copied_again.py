"""What the flow's own repairs say of records that only the target has: the claims topic holds where they stand. Pure.

A repair copies a record to stand behind all others. Once the source has lost the original, nothing but the entry in the
claims topic (`state.claims.Repair`, committed with the records) tells its copy from somebody else's record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from replicator.model.partition import Partition
from replicator.state.claims import Repair


class CopiedRun(NamedTuple):
    """So many records stand one behind the other at both of these offsets."""

    target_first: int
    source_first: int
    records: int


def runs(repairs: Iterable[Repair], target: Partition, ids: tuple[str, str], began: int) -> tuple[CopiedRun, ...]:
    """Return what was copied again to this partition, in the order of the target.

    Args:
        ids: of the source's and the target's topic as they are now: an entry that names others, or none, says nothing.
        began: the target offset at which the flow began.
    """
    found = []
    for repair in repairs:
        if repair.target != target or repair.topic_ids != ids or not all(ids):
            continue
        offset = repair.first_target
        for first, end in repair.runs:
            if offset >= began:
                found.append(CopiedRun(offset, first, end - first))
            offset += end - first
    return tuple(sorted(found))


def copied_from(copied: Sequence[CopiedRun], target_offset: int) -> int | None:
    """Return the source offset of the record that was copied again to this target offset; None: none was."""
    number = bisect_right(copied, target_offset, key=lambda run: run.target_first) - 1
    if number < 0 or target_offset >= copied[number].target_first + copied[number].records:
        return None
    return copied[number].source_first + target_offset - copied[number].target_first
