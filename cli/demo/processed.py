"""How often an application has processed each record, before and after a failover. Pure; shares no code with the
replicator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cli.demo.compare import Comparison, Names, ReadRecord, compare_records

NOTHING = Comparison()


@dataclass(frozen=True, slots=True)
class Processed:
    """One partition, or several, after a failover.

    Attributes:
        copied: the target's records, beside as many of the source's, from its beginning.
        once, again: how many records of the target were processed once, and more often.
        skipped: those that were never processed.
        not_copied: records that only the source has: what was written behind the last transaction of the flow.
        seen_only_there: how many of these the application had processed at the source.
    """

    copied: Comparison = NOTHING
    once: int = 0
    again: int = 0
    skipped: Names = ()
    not_copied: int = 0
    seen_only_there: int = 0

    @property
    def good(self) -> bool:
        """Whether what the target has is a prefix of what the source has, and each record of it was processed."""
        return self.copied.exact and not self.skipped

    def __add__(self, other: Processed) -> Processed:
        return Processed(
            self.copied + other.copied,
            self.once + other.once,
            self.again + other.again,
            self.skipped + other.skipped,
            self.not_copied + other.not_copied,
            self.seen_only_there + other.seen_only_there,
        )


def processed(source: Sequence[ReadRecord], target: Sequence[ReadRecord], times: Mapping[bytes, int]) -> Processed:
    """Return the verdict on one partition. `times`: how often each record was processed, by its name."""
    here, beyond = source[: len(target)], source[len(target) :]
    counts = [times.get(record.name, 0) for record in target]
    return Processed(
        compare_records(here, target),
        once=counts.count(1),
        again=sum(count > 1 for count in counts),
        skipped=tuple(record.name for record, count in zip(target, counts, strict=True) if not count),
        not_copied=len(beyond),
        seen_only_there=sum(record.name in times for record in beyond),
    )


def times_processed(lines: Iterable[bytes]) -> Counter[bytes]:
    """Return how often each name stands in the lines of a ledger. A last line without an end was cut off by a kill: its
    record was processed in part, and its offset not committed."""
    return Counter(line[:-1] for line in lines if line.endswith(b"\n"))
