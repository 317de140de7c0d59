"""Which records of one source partition at_most_once has lost in one transaction. Pure; used by `plane`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from replicator.model.partition import Partition
from replicator.planes.records.copying import Run
from replicator.planes.records.message import Record

NO_ACK = "no acknowledgement came in time; a record may be there all the same"


@dataclass(frozen=True, slots=True)
class LostRecords:
    """What was lost of one partition: how many `records`, and why. `ranges` are first and last source offsets: all
    records that were read between them, both included, are lost."""

    at: Partition
    records: int
    ranges: tuple[tuple[int, int], ...]
    why: str


def lost_records(at: Partition, outcomes: Iterable[tuple[int, str | None]]) -> LostRecords | None:
    """Find what was lost of a partition; None if nothing was.

    Args:
        outcomes: ascending source offsets of the records that were read, each with the reason why it is lost, or None.
    """
    ranges: list[tuple[int, int]] = []
    reasons: dict[str, None] = {}
    records, together = 0, False
    for offset, why in outcomes:
        if why is not None:
            records += 1
            reasons[why] = None
            if together:
                ranges[-1] = (ranges[-1][0], offset)
            else:
                ranges.append((offset, offset))
        together = why is not None
    return LostRecords(at, records, tuple(ranges), "; ".join(reasons)) if records else None


def outcomes_of(run: Run, messages: list[Record]) -> Iterator[tuple[int, str | None]]:
    """Say what became of each record of a run that was written without a transaction: None, or why it is lost."""
    stored: set[int] = run.acks.stored or set()
    for message in messages[: run.acks.count]:
        offset = message.offset()
        failed = run.acks.errors.get(offset)
        yield offset, None if offset in stored else failed.error.str() if failed is not None else NO_ACK
    if run.blocked is not None:
        yield run.blocked.offset, f"{run.blocked.name}: {run.blocked.detail}"
