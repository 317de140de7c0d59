"""A section of the map: what one transaction did to one source partition. A value; its bytes are made in `block`.

Invariant M2: `before` is the `after` of the partition's last section, unless `base` says that the map begins there,
or begins again. Runs, records set aside, records dropped, signed gaps and offsets without a record tile the source.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from replicator.model.partition import Span
from replicator.offset_map.varints import OFFSET_MAX

NO_DIGEST, RECORDS_DIGEST, GROUPED_DIGEST = 0, 1, 255
DIGEST_BYTES = 16
PARTITION_MAX = (1 << 31) - 1


class SetAside(NamedTuple):
    """A source record that stands in the flow's topic of records set aside, at this partition and offset of it."""

    source: int
    partition: int
    offset: int


class DroppedRecord(NamedTuple):
    """A source record that a rule of the flow left out; `rule` is its number in the flow's rules."""

    source: int
    rule: int


class PrunedCopies(NamedTuple):
    """What is kept of copies that the target's retention has taken, in place of their runs.

    `ranges`: source offsets [first, end) with so many copies in them, in the order in which they stood; `target_end`:
    the target offset behind the last one; `sections`: how many sections there were.
    """

    ranges: tuple[tuple[int, int, int], ...]
    target_end: int
    sections: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MapSection:
    """What one transaction did to one source partition.

    Attributes:
        source_topic_id: 16 bytes; a topic that was created again has its offsets again, but another id.
        before, after: the position before the transaction, and the one that it commits. Equal in a claim, which has no
            runs, and in a repair, whose runs lie below.
        leader_epoch, log_start: of the source; -1: not known.
        first_target: the target offset of the first copy; the others follow it without a gap. Without runs: the next
            target offset of the position; -1: not known.
        count: records of the partition that were copied since the flow began there, or an operator adopted what the
            target has; what a repair copies isn't counted again.
        digest_kind, digest: RECORDS_DIGEST is blake2b-128 over the canonical bytes of the copies, in their order
            (`planes.records.digest`), of this transaction alone; NO_DIGEST has none. GROUPED_DIGEST, in the map's index
            only, is that of several sections (`page`). Kinds that this version doesn't know are kept as they are.
        runs: source offsets [first, end) of the copies, ascending; offsets between runs are gaps.
        base: the map of the partition begins here, or begins again: nothing is said of what lies below.
        gap: the whole range was skipped by a decision of the operator.
        continued: the partition's next section belongs to the same transaction, and has the digest of both.
        pruned: in the map's index only: what was copied, and stands on the target no longer. Then there are no runs.
    """

    source_topic_id: bytes
    partition: int
    before: int
    after: int
    leader_epoch: int = -1
    log_start: int = -1
    first_target: int = -1
    count: int = 0
    digest_kind: int = NO_DIGEST
    digest: bytes = b""
    runs: tuple[Span, ...] = ()
    aside: tuple[SetAside, ...] = ()
    dropped: tuple[DroppedRecord, ...] = ()
    base: bool = False
    gap: bool = False
    continued: bool = False
    pruned: PrunedCopies | None = None

    @property
    def records(self) -> int:
        """How many copies there are."""
        if len(self.runs) == 1:  # as most have
            ((first, end),) = self.runs
            return end - first
        return sum([end - first for first, end in self.runs])

    @property
    def pruned_copies(self) -> int:
        """How many copies there were that are gone."""
        return sum(copies for _, _, copies in self.pruned.ranges) if self.pruned is not None else 0

    @property
    def target_end(self) -> int:
        """The target offset behind its last copy; without one, or -1, as `first_target`."""
        return self.pruned.target_end if self.pruned is not None else self.first_target + self.records

    @property
    def claims_target(self) -> bool:
        """Whether it says that copies stand, or stood, from `first_target` on."""
        return bool(self.runs) or (self.pruned is not None and bool(self.pruned.ranges))

    @property
    def transactions(self) -> int:
        """How many sections of blocks it stands for."""
        return 1 if self.pruned is None else self.pruned.sections

    @property
    def count_before(self) -> int:
        """What was counted before its transaction."""
        return self.count if self.repair else self.count - self.records - self.pruned_copies

    @property
    def repair(self) -> bool:
        """Whether the copies are of records that the position had passed before: they stand behind later ones."""
        return self.before == self.after and bool(self.runs or self.aside or self.dropped or self.pruned)

    @property
    def source_start(self) -> int:
        """No source offset in the section lies below this one."""
        return 0 if self.repair else self.before

    def wrong(self) -> str:
        """Say what is impossible in it; empty if nothing is."""
        if len(self.source_topic_id) != 16 or not 0 <= self.partition <= PARTITION_MAX:
            return "no topic id of 16 bytes, or no partition"
        if not 0 <= self.before <= self.after <= OFFSET_MAX:
            return f"a position that goes from {self.before} to {self.after}"
        epoch, log_start, target = self.leader_epoch, self.log_start, self.first_target
        known = -1 <= epoch < OFFSET_MAX and -1 <= log_start < OFFSET_MAX and -1 <= target < OFFSET_MAX
        if not known or not 0 <= self.count <= OFFSET_MAX:
            return f"epoch {epoch}, log start {log_start}, first target offset {target}, count {self.count}"
        if not 0 <= self.digest_kind <= 255 or len(self.digest) != (DIGEST_BYTES if self.digest_kind else 0):
            return f"a digest of kind {self.digest_kind} with {len(self.digest)} bytes"
        return self._wrong_entries()

    def _wrong_entries(self) -> str:
        runs, others = self.runs, [_spans(entries) for entries in (self.aside, self.dropped) if entries]
        repair, start = self.repair, self.source_start
        records, at, ascending, joined = 0, start, True, False
        for first, end in runs:  # in one pass, since most transactions of a quiet flow are one run of one record
            ascending = ascending and at <= first < end
            joined = joined or (records > 0 and first == at)
            records, at = records + end - first, end
        if others:
            ascending = ascending and all(_ascending(spans, start, self.after) for spans in others)
        if not ascending or at > self.after:
            return f"source offsets out of order, or not in {start} to {self.after}"
        if joined:
            return "two runs that are one"
        if not repair and self.count < records + self.pruned_copies:
            return f"{records + self.pruned_copies} copies of {self.count} in all"
        if self.gap and (self.before == self.after or runs or others):
            return "records in a gap"
        if runs and not 0 <= self.first_target <= OFFSET_MAX - records:
            return f"{records} copies at target offset {self.first_target}"
        if self.pruned is not None and (runs or not max(self.first_target, 0) <= self.target_end <= OFFSET_MAX):
            return f"copies that were pruned end at target offset {self.target_end}"
        return ""


def divided(section: MapSection) -> tuple[MapSection, MapSection]:
    """Divide a section with two entries or more into two of the same transaction, about half of them in each."""
    starts = sorted([*(run[0] for run in section.runs), *(one[0] for one in (*section.aside, *section.dropped))])
    at = next(start for start in starts[len(starts) // 2 :] if start > starts[0])
    first = tuple(run for run in section.runs if run[0] < at)
    records = sum(end - begin for begin, end in first)
    middle = section.after if section.repair else at
    before = replace(
        section,
        after=middle,
        count=section.count if section.repair else section.count_before + records,
        digest_kind=NO_DIGEST,
        digest=b"",
        runs=first,
        aside=tuple(one for one in section.aside if one.source < at),
        dropped=tuple(one for one in section.dropped if one.source < at),
        continued=True,
    )
    after = replace(
        section,
        before=middle,
        first_target=section.first_target + records if section.first_target >= 0 else -1,
        runs=section.runs[len(first) :],
        aside=section.aside[len(before.aside) :],
        dropped=section.dropped[len(before.dropped) :],
        base=False,
    )
    return before, after


@lru_cache(maxsize=1024)
def topic_id_bytes(text: str) -> bytes:
    """Return the 16 bytes of a topic id in base64, in either alphabet. Raises ValueError."""
    try:
        found = base64.b64decode(text.replace("-", "+").replace("_", "/") + "==", validate=True)
    except binascii.Error as error:
        raise ValueError(f"{text!r} is no topic id") from error
    if len(found) != 16:
        raise ValueError(f"{text!r} is no topic id")
    return found


def topic_id_text(raw: bytes) -> str:
    """Return a topic id as positions and claims have it: base64 as librdkafka writes it."""
    return base64.b64encode(raw).decode().rstrip("=")


def _spans(entries: Iterable[SetAside] | Iterable[DroppedRecord]) -> list[Span]:
    return [(entry.source, entry.source + 1) for entry in entries]


def _ascending(spans: Sequence[Span], start: int, end: int) -> bool:
    at = start
    for first, last in spans:
        if not at <= first < last:
            return False
        at = last
    return at <= end
