"""Which of the records that a reconciliation called missing are copied again, by what both sides hold now. Pure.

Used by `repair_policy` after the fence: nobody else of the flow writes the target any more. What it is told to copy is
a list that may be old, or wrong; what stands on the target decides.

Invariants
- A record that stands n times on the source stands at most n times on the target afterwards, or as often as before: of
  equal records only so many are copied as the source has more of than the target.
- In a compacted topic a record is copied only if the source has no later one of its key below the position, and if
  what the target has last of its key is known to be older: whatever stands last is what the cleaner keeps.

Memory grows with the records that are asked for, not with the logs: of the others nothing is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from replicator.jobs.repair_spans import Missing
from replicator.model.partition import Span
from replicator.offset_map.repair_rule import is_superseded
from replicator.offset_map.verdicts import LastOfKey
from replicator.planes.contract import RecordIdentity

SPANS_NAMED_MAX = 1_000
WITHOUT_KEY = "a record without a key, which a compacted topic doesn't take"


@dataclass(slots=True)
class Decision:
    """What becomes of the records of a window: those that are copied, as spans; how many stand on the target already;
    how many are superseded by a later record of their key, and which (source offsets); how many are refused, by why.
    `record_bytes`: how large the records of the window are, on the average; 0: not known."""

    copied: list[Missing] = field(default_factory=list)
    standing: int = 0
    superseded: int = 0
    superseded_at: list[Span] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    record_bytes: int = 0


class Asked:
    """Records that may be copied, and what either side has of them. Fed in order: `wanted`, the target, the source."""

    def __init__(self, *, compacted: bool) -> None:
        """`compacted`: the target's topic is."""
        self._compacted = compacted
        self._wanted: list[tuple[Missing, list[RecordIdentity]]] = []
        self._asked: set[bytes] = set()
        self._there: Counter[bytes] = Counter()
        self._here: Counter[bytes] = Counter()
        self._keys: set[bytes] = set()
        self._last_there: dict[bytes, LastOfKey] = {}
        self._last_here: dict[bytes, int] = {}
        self._first_here: dict[tuple[bytes, bytes], int] = {}  # of the key and digest that stand last on the target

    def wanted(self, span: Missing, records: Sequence[RecordIdentity]) -> None:
        """Take the source's records of a span, all of which were called missing."""
        self._wanted.append((span, list(records)))
        self._asked.update(record.digest for record in records if record.digest)
        if self._compacted:
            self._keys.update(record.key for record in records if record.key is not None)

    def target(self, records: Iterable[RecordIdentity]) -> None:
        """Take records of the target, in order; all of them, over all calls."""
        for offset, digest, key, _ in records:
            if digest in self._asked:
                self._there[digest] += 1
            if key in self._keys:
                self._last_there[key] = LastOfKey(offset, digest)

    @property
    def needs_source(self) -> bool:
        """Whether the source has to be read as a whole: a record stands there already, or keys matter."""
        return bool(self._there or self._keys)

    def source(self, records: Iterable[RecordIdentity]) -> None:
        """Take records of the source below the position, in order; all of them, over all calls."""
        for offset, digest, key, _ in records:
            if digest in self._there:
                self._here[digest] += 1
            if key in self._keys:
                self._last_here[key] = offset
                last = self._last_there.get(key)
                if last is not None and last.equals(digest):
                    self._first_here.setdefault((key, digest), offset)

    def decide(self) -> Decision:
        """Decide what to copy, in the order of the source."""
        sizes = [record.size for _, records in self._wanted for record in records]
        found = Decision(record_bytes=sum(sizes) // max(1, len(sizes)))
        free = {digest: max(0, self._here[digest] - count) for digest, count in self._there.items()}
        for span, records in self._wanted:
            runs: list[list[RecordIdentity]] = [[]]
            for record in records:
                if self._superseded(span, record):
                    found.superseded += 1
                    _add(found.superseded_at, record.offset)
                elif record.digest in free and not free[record.digest]:
                    found.standing += 1
                elif self._compacted and record.key is None:
                    found.refused[WITHOUT_KEY] += 1
                else:
                    if record.digest in free:
                        free[record.digest] -= 1
                    runs[-1].append(record)
                    continue
                runs.append([])  # what is left out parts the span
            found.copied += [Missing(run[0].offset, run[-1].offset + 1, len(run)) for run in runs if run]
        return found

    def _superseded(self, span: Missing, record: RecordIdentity) -> bool:
        if record.key is None or not self._compacted:
            return False
        last = self._last_there.get(record.key)
        if last is not None:
            last = last._replace(source=self._first_here.get((record.key, last.digest)))
        return is_superseded(record.offset, record.digest, self._last_here.get(record.key), last, span.after)


def _add(spans: list[Span], offset: int) -> None:
    """Add another offset, as a span of its own or as a part of the last; beyond SPANS_NAMED_MAX none is noted."""
    if spans and spans[-1][1] == offset:
        spans[-1] = spans[-1][0], offset + 1
    elif len(spans) < SPANS_NAMED_MAX:
        spans.append((offset, offset + 1))
