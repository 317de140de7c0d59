"""Both sides of a pair as `offset_map.compare` asks for them, and what else it asks. Used by `local`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from replicator.model.partition import Span
from replicator.offset_map.mapped import PartitionMap
from replicator.offset_map.verdicts import ComparedRecord, MapComparison, MapVerdict, SidesEvidence
from replicator.proof.coverage import Coverage
from replicator.proof.pairs import Pair
from replicator.proof.partition_side import PartitionSide

LATER_KEY = "a later record of its key stands on the source behind the position: whether it was copied isn't known"
EQUAL_UNCOVERED = "an equal record stands on the target where the offset map doesn't say whose it is"
TellsPassed = Callable[[int], object]
"""Is told how many more offsets of either side were read for the first time; 0 where some were read again."""


class PairRows:
    """Both sides of a pair, as `compare` asks for them."""

    def __init__(
        self, pair: Pair, source: PartitionSide, target: PartitionSide, coverage: Coverage, tell: TellsPassed
    ) -> None:
        self._pair, self._source, self._target, self._tell = pair, source, target, tell
        self._coverage, self._read_target = coverage, False
        self._first_source: Iterator[ComparedRecord] | None = None
        self.mapped: PartitionMap | None = None

    def count(self) -> None:
        """Read both sides for nothing but how many records there are."""
        for rows in (self.source(), self.target()):
            for _ in rows:
                pass

    def source(self) -> Iterable[ComparedRecord]:
        """Return the source's records, but for those that operators have left out."""
        first = self._first_source is None
        rows = self._source.rows(self._pair.source_range, self._passing(self._pair.source_range, first=first))
        kept = _without([(gap.first, gap.end) for gap in self._pair.signed_gaps], rows)
        if first:
            self._first_source = self._coverage.of_source(kept)
            return self._first_source
        return kept

    def target(self) -> Iterable[ComparedRecord]:
        """Return the target's records, but for copies of what lies before the flow's beginning."""
        first = not self._read_target
        self._read_target = True
        rows = self._target.rows(self._pair.target_range, self._passing(self._pair.target_range, first=first))
        return self._coverage.of_target(self._of_flow(rows)) if first else self._of_flow(rows)

    def _of_flow(self, rows: Iterable[ComparedRecord]) -> Iterator[ComparedRecord]:
        origin, mapped = self._pair.source_origin, self.mapped
        if mapped is None or not len(mapped.by_source) or mapped.by_source[0].first >= origin:
            yield from rows
            return
        for row in rows:
            source = mapped.by_target.place(row.offset)
            if source is None or source >= origin:
                yield row

    def _passing(self, span: Span, *, first: bool) -> Callable[[int], None]:
        at = span[0]

        def passed(offset: int) -> None:
            nonlocal at
            self._tell(offset - at if first else 0)
            at = offset

        return passed

    def evidence(self) -> SidesEvidence:
        """Return what else is known, asked for after the rows; those that the map doesn't reach are read for their
        number.
        """
        for _ in self._first_source or ():
            pass
        pair = self._pair
        return SidesEvidence(
            source_start=self._source.start(),
            target_start=self._target.start(),
            source_compacted=pair.source_compacted,
            target_compacted=pair.target_compacted,
            emptied=self._target.emptied,
        )

    def unproven(self, found: MapComparison) -> dict[int, str]:
        """Say why of some missing records it can't be told that they are lost, by source offset."""
        missing = [one.source for one in found.findings if one.verdict is MapVerdict.MISSING and one.source is not None]
        why = {at: EQUAL_UNCOVERED for at in missing if found.records[at].digest in found.not_compared}
        if not found.target_compacted:
            return why
        by_key: dict[bytes, list[int]] = {}
        for one in found.findings:
            if one.verdict is not MapVerdict.MISSING or one.source is None or one.target is None:
                continue
            if untold := self._target.untold(one.target):
                why[one.source] = f"the target's log doesn't tell whether it was compacted: {untold}"
            elif (key := found.records[one.source].key) is not None and self._target.emptied(one.target):
                by_key.setdefault(key, []).append(one.source)
        if by_key:
            behind = self._pair.source_copied_end, max(self._pair.source_copied_end, self._pair.source_log_end)
            for row in self._source.rows(behind):
                for offset in by_key.pop(row.key, ()) if row.key is not None else ():
                    why[offset] = LATER_KEY
        return why


def _without(gaps: Sequence[Span], rows: Iterable[ComparedRecord]) -> Iterable[ComparedRecord]:
    if not gaps:
        return rows
    return (row for row in rows if not any(first <= row.offset < end for first, end in gaps))
