"""What retention explains before the first record that both sides show, where a position counts the records. Pure.

Known are: how many records stand there on either side, how many offsets are gone from the beginning of each log, and,
by the count, how many records are gone from the source's. Records go from the beginning only. Of a log that has its
beginning nothing is gone: then what the other side lacks is a difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from replicator.spark.reconcile import verdicts as v

Allowed = frozenset[str]
EXPIRED, UNPROVEN, MISSING = frozenset({v.EXPIRED}), frozenset({v.UNPROVEN}), frozenset({v.MISSING})
GONE = frozenset({v.NEVER_MINE})
SURPLUS = frozenset({v.EXTRA, v.DOUBLED})


class Heads(NamedTuple):
    """`lacking` source records have no copy, `surplus` target records no original; so many offsets, and records of the
    source, are gone."""

    lacking: int
    surplus: int
    source_gone: int
    target_gone: int
    source_records_gone: int


def expected_heads(heads: Heads, surplus: Sequence[Allowed]) -> Iterator[Allowed]:
    """The verdicts on all of them. `surplus`: what they are where retention doesn't explain them."""
    if heads.source_gone and heads.target_gone and heads.lacking and heads.surplus:
        # One of two logs begins later. Either the surplus ones are older than all that the source has, and the lacking
        # ones were lost; or they are somebody else's, and the lacking ones are older than all that the target has.
        yield from _first(heads.lacking, heads.target_gone, UNPROVEN, MISSING)
        yield from _first(heads.surplus, heads.source_records_gone, UNPROVEN, SURPLUS)
        return
    yield from _lacking(heads)
    if not heads.source_gone:
        yield from surplus
        return
    # Of what the target has from before nobody knows more than how many records there were.
    left = heads.source_records_gone - heads.surplus
    is_proven = not heads.target_gone or left <= heads.target_gone
    yield from _first(heads.surplus, heads.source_records_gone, GONE if is_proven else UNPROVEN, SURPLUS)


def _lacking(heads: Heads) -> Iterator[Allowed]:
    """All are older than the target's beginning, if the offsets that are gone had room for them: those that were lost
    beside them are behind it, and can't be told from those that commit markers made room for. If they hadn't, some were
    lost for certain, and nobody knows which."""
    if not heads.target_gone:
        yield from [MISSING] * heads.lacking
        return
    fit = heads.lacking + heads.source_records_gone <= heads.target_gone
    yield from _first(heads.lacking, heads.target_gone, EXPIRED if fit else UNPROVEN, MISSING)


def _first(count: int, explained: int, allowed: Allowed, otherwise: Allowed) -> Iterator[Allowed]:
    for number in range(count):
        yield allowed if number < explained else otherwise
