"""How much of either side retention can have removed, and what follows for records before the first common one. Pure.

A position counts the records that the flow has committed on the target (`count`), and its claim says where the flow
began on both sides. Retention and DeleteRecords remove records from the beginning of a log only. So, of a flow of
exactly_once whose topics are not compacted:
- gone from the source's beginning: count - records that the source still has, at most source offsets before its start;
- gone from the target's beginning: count - records of the flow that the target still has - those that are missing
  behind the first common record, at most target offsets between where the flow began and the log's start.
Both are numbers, not bounds, as long as offsets permit them. Everything else that one side lacks is a loss. Where the
count says nothing, or more than offsets permit, only the bounds by offsets are left, in which commit markers make room:
what only they permit is *unproven*.
"""

from __future__ import annotations

from dataclasses import dataclass

from replicator.spark.reconcile.pairs import Pair


@dataclass(frozen=True, slots=True)
class Heads:
    """So many records at the beginning of one side were removed from the other one by retention: `source` of the
    source's, `target` of the target's. `proven`: these are numbers; otherwise at most so many."""

    source: int
    target: int
    proven: bool


def heads(pair: Pair, source_records: int, target_records: int, *, foreign: int = 0, lost: int = 0) -> Heads:
    """What retention explains.

    Args:
        source_records, target_records: of the compared ranges.
        foreign: records among the target's that the flow has not written.
        lost: records that the target lacks behind the first one that both sides have.
    """
    there_max = max(0, pair.target_removed_max) if pair.target_cut else 0
    here_max = max(0, pair.source_removed_max) if pair.source_cut else 0
    if pair.count is None or pair.source_compacted or pair.target_compacted or not pair.exactly_once:
        return Heads(there_max, here_max, proven=not (there_max or here_max))
    here = max(0, pair.count - source_records) if here_max else 0
    there = max(0, pair.count - (target_records - foreign) - lost) if there_max else 0
    proven = here <= here_max and there <= there_max
    here, there = min(here, here_max), min(there, there_max)
    return Heads(max(0, there - here), max(0, here - there), proven)
