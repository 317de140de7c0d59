"""What a repair copies, by a comparison that was made after its fence and with no transaction of the map open. Pure.

`is_superseded` is asked by repairs that know of no map, too (`jobs.repair_decision`).

Invariants
- What is missing is copied, whether the map names it or not: a record that was skipped has no place.
- What was altered, or has changed on the source, is copied only if that was asked for.
- No record is copied while one of the target equals it that isn't known to be another's copy: such a one stands for it,
  one for one, as among those that are compared.
- In a compacted topic only the last record of a key below the position is copied. The source says which that is: keys
  of the target may have been deleted since. Nor is it copied where the target has a record of the key, behind its
  place, that isn't known to be an older one: whatever stands last is what the cleaner keeps.
- What nothing tells to be lost is not copied.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from replicator.offset_map.verdicts import LastOfKey, MapComparison, MapFinding, MapVerdict

NotCopied = Literal["not_asked_for", "standing", "unproven", "superseded", "without_key"]
ON_REQUEST = frozenset({MapVerdict.ALTERED, MapVerdict.SOURCE_CHANGED})


@dataclass(slots=True)
class RepairChoice:
    """Source offsets that are copied, ascending, and those that are not, with the reason; `unproven`: why these are.
    `untold`: how many more records the source has than the target where the map says nothing."""

    copied: list[int] = field(default_factory=list)
    left: dict[int, NotCopied] = field(default_factory=dict)
    unproven: dict[int, str] = field(default_factory=dict)
    untold: int = 0


def records_to_copy(
    found: MapComparison, also: Collection[MapVerdict] = (), unproven: Mapping[int, str] | None = None
) -> RepairChoice:
    """Choose what is copied again, of what has no copy.

    Args:
        also: which verdicts of ON_REQUEST are asked for.
        unproven: why it can't be told of a missing record that it is a loss, by source offset.
    """
    untold = unproven or {}
    choice = RepairChoice()
    standing = dict(found.not_compared)
    for finding in found.findings:
        if finding.source is None or finding.verdict not in ON_REQUEST | {MapVerdict.MISSING}:
            continue
        reason = _against(found, finding, also, standing)
        if reason is None and finding.source in untold:
            reason = "unproven"
            choice.unproven[finding.source] = untold[finding.source]
        if reason is None:
            choice.copied.append(finding.source)
        else:
            choice.left[finding.source] = reason
    choice.copied.sort()
    return choice


def _against(
    found: MapComparison, finding: MapFinding, also: Collection[MapVerdict], standing: dict[bytes, int]
) -> NotCopied | None:
    row = found.records[finding.source or 0]
    if finding.verdict in ON_REQUEST and finding.verdict not in also:
        return "not_asked_for"
    if not row.digest:
        return "standing"
    if standing.get(row.digest):
        standing[row.digest] -= 1
        return "standing"
    if not found.target_compacted:
        return None
    if row.key is None:
        return "without_key"
    last_here, there = found.last_of_key.get(row.key), found.last_on_target.get(row.key)
    after = -1 if finding.target is None else finding.target
    return "superseded" if is_superseded(row.offset, row.digest, last_here, there, after) else None


def is_superseded(offset: int, digest: bytes, last_here: int | None, there: LastOfKey | None, after: int) -> bool:
    """Return whether a copy of a source record would bury a later record of its key, in a compacted topic.

    Args:
        digest: of the record; empty where it isn't known, which equals no other.
        last_here: the key's last source offset below the position.
        there: the key's last record on the target.
        after: the target offset behind which the copy would have stood: what the target has up to there is older.
    """
    if last_here is not None and last_here > offset:
        return True
    if there is None or there.offset <= after or there.equals(digest):
        return False
    return there.source is None or there.source >= offset
