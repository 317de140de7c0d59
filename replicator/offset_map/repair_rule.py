"""What a repair copies, by a comparison that was made after its fence and with no transaction of the map open. Pure.

Invariants
- What is missing is copied, whether the map names it or not: a record that was skipped has no place.
- What was altered, or has changed on the source, is copied only if that was asked for.
- No record is copied while one of the target equals it that isn't known to be another's copy: such a one stands for it,
  one for one, as among those that are judged.
- In a compacted topic only the last record of a key below the position is copied. The source says which that is: keys
  of the target may have been deleted since.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

from replicator.offset_map.verdicts import MapComparison, MapFinding, MapVerdict

NotCopied = Literal["not_asked_for", "standing", "superseded", "without_key"]
ON_REQUEST = frozenset({MapVerdict.ALTERED, MapVerdict.SOURCE_CHANGED})


@dataclass(slots=True)
class RepairChoice:
    """Source offsets that are copied, ascending, and those that are not, with the reason."""

    copied: list[int] = field(default_factory=list)
    left: dict[int, NotCopied] = field(default_factory=dict)


def records_to_copy(found: MapComparison, also: Collection[MapVerdict] = ()) -> RepairChoice:
    """Choose what is copied again, of what has no copy.

    Args:
        also: which verdicts of ON_REQUEST are asked for.
    """
    choice = RepairChoice()
    standing = dict(found.unjudged)
    for finding in found.findings:
        if finding.source is None or finding.verdict not in ON_REQUEST | {MapVerdict.MISSING}:
            continue
        reason = _against(found, finding, also, standing)
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
    return "superseded" if is_superseded(found, row.key, row.offset) else None


def is_superseded(found: MapComparison, key: bytes, offset: int) -> bool:
    """Whether the source has a later record of the key below the position."""
    return found.last_of_key.get(key, offset) > offset
