"""Which records of one source partition at_most_once has lost in one transaction. Pure; used by `plane`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from replicator.model.partition import Partition
from replicator.planes.records.copying import Run
from replicator.planes.records.message import Record

NO_ACK = "no acknowledgement came in time; a record may be there all the same"
NOT_WRITTEN = "not written: "  # and why
IF_APPLIED = "written only if the commit was not applied: "  # and why that isn't known


@dataclass(frozen=True, slots=True)
class LostRecords:
    """What was lost of one partition: how many `records`, and why. `ranges` are first and last source offsets: all
    records that were read between them, both included, are lost. Not `certain`: if a commit was applied whose outcome
    is unknown."""

    at: Partition
    records: int
    ranges: tuple[tuple[int, int], ...]
    why: str
    certain: bool = True


def all_lost(runs: Iterable[Run], held: Iterable[list[Record]], ended: str, *, certain: bool) -> Iterator[LostRecords]:
    """Find what was lost of each partition.

    Args:
        runs: what was written, or tried, of the records that were `held`, in their order.
        ended: why the rest of them was not written.
        certain: see `LostRecords`.
    """
    outcomes: dict[Partition, list[tuple[int, str | None]]] = {}
    runs = iter(runs)
    for messages in held:
        of_source = outcomes.setdefault(Partition(messages[0].topic(), messages[0].partition()), [])
        while messages and (run := next(runs, None)) is not None:
            of_source.extend(outcomes_of(run, messages, ended))
            messages = messages[run.through :]
        of_source.extend((message.offset(), ended) for message in messages)
    for at, of_source in outcomes.items():
        lost = lost_records(at, of_source)
        if lost is not None:
            yield replace(lost, certain=certain)


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


def outcomes_of(run: Run, messages: list[Record], ended: str) -> Iterator[tuple[int, str | None]]:
    """Say what became of each record of a run that was written without a transaction: None, or why it is lost.

    `ended`: why those were not written that the producer was not handed.
    """
    stored: set[int] = run.acks.stored or set()
    for index, message in enumerate(messages[: run.acks.count]):
        offset = message.offset()
        failed = run.acks.errors.get(offset)
        unknown = NO_ACK if index < run.handed_over else ended
        yield offset, None if offset in stored else failed.error.str() if failed is not None else unknown
    if run.blocked is not None:
        yield run.blocked.offset, f"{run.blocked.name}: {run.blocked.detail}"
