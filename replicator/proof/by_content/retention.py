"""How much of either side retention can have removed, and what follows for records before the first common one. Pure.

A position counts the records that the flow has committed on the target (`count`), and its claim says where the flow
began on both sides. Retention and DeleteRecords remove records from the beginning of a log only. So, of a flow of
exactly_once whose topics are not compacted:
- From a log that has its beginning nothing was removed. What the other side has before the first common record and this
  one lacks is a loss or a surplus.
- Gone from the source's beginning are count - records that the source still has, at most as many as offsets are gone.
  So many of the target's first records are not the source's any more.
- Of those that are gone from the source a repair may have copied some again, to stand behind all others: the target's
  first records are so many less.
- What the source has before the first common record, and what is gone from its own beginning, is gone from the target's
  too, as long as so many offsets are gone there: what is missing behind the first common record isn't among it.
- Where both logs were cut, and both have records before the first common one, either log may begin later: those of one
  side are removed from the other one, and those of the other side are a loss or a surplus. Nothing tells which.
Where the count says nothing, or more than offsets permit, only the bounds by offsets are left, in which commit markers
make room: what only they permit is *unproven*.
"""

from __future__ import annotations

from dataclasses import dataclass

from replicator.proof.pairs import Pair


@dataclass(frozen=True, slots=True)
class OneSided:
    """Records that only one side has: before the first common record of the `source` and of the `target`, and behind it
    those that the target lacks (`missing`). `copied_again` are those of the target, wherever they stand, that a repair
    copied from what the source has lost since."""

    source: int = 0
    target: int = 0
    missing: int = 0
    copied_again: int = 0


@dataclass(frozen=True, slots=True)
class RetainedPrefix:
    """How many records at its beginning only one side retained, because retention removed their copies from the other:
    `source` of the source's, `target` of the target's. `proven`: these are numbers; otherwise at most so many."""

    source: int
    target: int
    proven: bool


def retained_prefix(pair: Pair, source_records: int, found: OneSided) -> RetainedPrefix:
    """Decide what retention explains.

    Args:
        source_records: of the compared range.
        found: as far as it is known; at least so many.
    """
    there_max = pair.target_removed_max if pair.target_cut else 0
    here_max = pair.source_removed_max if pair.source_cut else 0
    if pair.count is None or pair.source_compacted or pair.target_compacted or not pair.exactly_once:
        return RetainedPrefix(there_max, here_max, proven=not (there_max or here_max))
    gone = pair.count - source_records  # below zero: the flow has not written so many of those that the source has
    gone_here = max(0, gone) if here_max else 0
    here = max(0, gone_here - found.copied_again)
    never_written = max(0, -gone - found.missing)
    lacking, surplus = max(0, found.source - never_written), min(found.target, here)
    if there_max and here_max and lacking and found.target:
        return RetainedPrefix(min(lacking, there_max), min(surplus, here_max), proven=False)
    there = max(0, here + lacking - surplus) if there_max else 0
    return RetainedPrefix(
        min(lacking, there_max) if there_max else 0,
        min(surplus, here_max),
        proven=gone_here <= here_max and there <= there_max,
    )
