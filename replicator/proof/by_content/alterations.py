"""Which missing and extra records are one record that was altered. Pure.

Asked last: of records that have an equal on the other side, wherever it stands, none was altered. What is left is
paired by what two records have in common, the most telling first: key and value, key and time, value and time; then the
key alone, then the value alone. A time alone tells nothing. Records between the same two matches come first; those that
share two of the three may stand anywhere in the partition.

What stands elsewhere, or has only its key or only its value in common, is paired by a guess. So it is where others that
are left, wherever they stand, or other records of the range share what a pair has in common, and where what is left
on both sides shares a time. All of these are marked: what is guessed is not repaired.

Everything is looked up in buckets and paired in order, so the work grows with the number of records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import NamedTuple

from replicator.proof.by_content.record_verdicts import SIGNS, Finding, sign
from replicator.proof.verdicts import ALTERED, FIELDS, MISSING

Sign = tuple[Hashable, ...] | None
"""What two records must have in common; None: this record has nothing of the kind."""


def _key(one: Finding) -> Sign:
    return None if one.key_hash is None or one.keys_repeat else (one.key_hash,)


def _value(one: Finding) -> Sign:
    return None if one.value_hash is None else (one.value_hash,)


class _Pass(NamedTuple):
    sign: Callable[[Finding], Sign]
    anywhere: bool = False  # not only between the same two matches
    bit: int = 0  # of `Finding.repeats`; 0: always a guess


_TWO = [_Pass(partial(sign, fields=fields), bit=1 << number) for number, fields in enumerate(SIGNS)]
_PASSES = (*_TWO, *(one._replace(anywhere=True, bit=0) for one in _TWO), _Pass(_key), _Pass(_value))


def altered(findings: Iterable[Finding]) -> list[Finding]:
    """Return missing and extra records of one partition, with those that are one record as one finding."""
    sides = _Sides(findings)
    made = [sides.pair(one) for one in _PASSES]
    for one, pairs in zip(_PASSES, made, strict=True):
        sides.mark_guesses(one, pairs)
    return sides.found()


PairsByKey = dict[tuple[Hashable, ...], list[tuple[int, int]]]
"""Numbers of a missing and an extra record, by what they have in common."""


class _Sides:
    """Missing records and extra ones, each in order, and which of them are pairs by now."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self._records: tuple[list[Finding], list[Finding]] = [], []
        for finding in findings:
            self._records[finding.verdict != MISSING].append(finding)
        self._records[0].sort(key=lambda one: one.source_rank or 0)
        self._records[1].sort(key=lambda one: one.target_rank or 0)
        self._partner: dict[int, int] = {}
        self._left = set(range(len(self._records[0]))), set(range(len(self._records[1])))
        self._guessed: tuple[set[int], set[int]] = set(), set()

    def _buckets(
        self, of: int, sign: Callable[[Finding], Sign], *, anywhere: bool
    ) -> dict[tuple[Hashable, ...], list[int]]:
        """Return the numbers of what is left of one side, in order, by what a record may have in common with others."""
        found: dict[tuple[Hashable, ...], list[int]] = defaultdict(list)
        for number in sorted(self._left[of]):
            record = self._records[of][number]
            common = sign(record)
            if common is not None:
                found[common if anywhere else (record.place, *common)].append(number)
        return found

    def pair(self, one: _Pass) -> PairsByKey:
        """Make the pairs of this pass."""
        here, there = (self._buckets(of, one.sign, anywhere=one.anywhere) for of in (0, 1))
        found = {
            common: list(zip(numbers, there[common], strict=False))
            for common, numbers in here.items()
            if common in there
        }
        for pairs in found.values():
            self._partner.update(pairs)
            self._left[0].difference_update(was for was, _ in pairs)
            self._left[1].difference_update(now for _, now in pairs)
        return found

    def mark_guesses(self, one: _Pass, made: PairsByKey) -> None:
        """Mark, after all passes, pairs with which other records have the same in common, wherever these stand, and
        what is left on both sides at one place and time."""
        left = [self._buckets(of, one.sign, anywhere=True) for of in (0, 1)]
        for where, pairs in made.items():
            common = where if one.anywhere else where[1:]
            if any(common in side for side in left) or any(self._doubtful(one, *pair) for pair in pairs):
                self._guessed[0].update([*left[0].get(common, ()), *(was for was, _ in pairs)])
                self._guessed[1].update([*left[1].get(common, ()), *(now for _, now in pairs)])
        times = [self._buckets(of, lambda record: (record.timestamp_ms,), anywhere=False) for of in (0, 1)]
        for common in times[0].keys() & times[1].keys():
            for of in (0, 1):
                self._guessed[of].update(times[of][common])

    def _doubtful(self, one: _Pass, was: int, now: int) -> bool:
        return not one.bit or bool((self._records[0][was].repeats | self._records[1][now].repeats) & one.bit)

    def found(self) -> list[Finding]:
        """Return what became of all of them."""
        lacking, added = self._records
        pairs = [
            altered_into(lacking[was], added[now])._replace(guessed=was in self._guessed[0])
            for was, now in sorted(self._partner.items())
        ]
        left = [
            self._records[of][number]._replace(guessed=number in self._guessed[of])
            for of in (0, 1)
            for number in sorted(self._left[of])
        ]
        return [*pairs, *left]


def altered_into(was: Finding, now: Finding) -> Finding:
    """Return a record of the source, and what the target has of it."""
    differ = (
        was.key_hash != now.key_hash,
        was.value_hash != now.value_hash,
        was.headers_hash != now.headers_hash,
        was.timestamp_ms != now.timestamp_ms,
    )
    fields = ",".join(name for name, changed in zip(FIELDS, differ, strict=True) if changed)
    return was._replace(
        verdict=ALTERED,
        fields=fields,
        target_offset=now.target_offset,
        target_rank=now.target_rank,
        other_after=-1,
        other_before=-1,
    )
