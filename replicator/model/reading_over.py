"""How much a reader reads and drops between two ranges, rather than begin again behind it. Pure.

Used by repairs and by reconciliation. To begin again takes a consumer a new assignment, and Spark another task with a
consumer of its own: as long as reading the following takes.
"""

from __future__ import annotations

OFFSETS_MAX = 2_000
BYTES_MAX = 1 << 23


def offsets_max(record_bytes: int) -> int:
    """Say how many offsets between two ranges are rather read than skipped.

    Args:
        record_bytes: of a record there, on the average; 0: nothing is known of it.
    """
    return min(OFFSETS_MAX, BYTES_MAX // max(1, record_bytes))
