"""What retention explains before the first record that both sides show, where a position counts the records. Pure.

Known are: how many records stand there on either side, how many offsets are gone from the beginning of each log, and,
by the count, how many records are gone from the source's. Records go from the beginning only. Of a log that has its
beginning nothing is gone: then what the other side lacks is a difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from replicator.proof import verdicts as v

Allowed = frozenset[str]
EXPIRED, UNPROVEN, MISSING = frozenset({v.EXPIRED}), frozenset({v.UNPROVEN}), frozenset({v.MISSING})
GONE = frozenset({v.NEVER_MINE})
SURPLUS = frozenset({v.EXTRA, v.DOUBLED})


class Prefixes(NamedTuple):
    """`lacking` source records have no copy, `surplus` target records no original; so many offsets, and records of the
    source, are gone."""

    lacking: int
    surplus: int
    source_gone: int
    target_gone: int
    source_records_gone: int


def expected_prefixes(prefixes: Prefixes, surplus: Sequence[Allowed]) -> Iterator[Allowed]:
    """The verdicts on all of them. `surplus`: what they are where retention doesn't explain them."""
    if prefixes.source_gone and prefixes.target_gone and prefixes.lacking and prefixes.surplus:
        # One of two logs begins later. Either the surplus ones are older than all that the source has, and the lacking
        # ones were lost; or they are somebody else's, and the lacking ones are older than all that the target has.
        yield from _first(prefixes.lacking, prefixes.target_gone, UNPROVEN, MISSING)
        yield from _first(prefixes.surplus, prefixes.source_records_gone, UNPROVEN, SURPLUS)
        return
    yield from _lacking(prefixes)
    if not prefixes.source_gone:
        yield from surplus
        return
    # Of what the target has from before nobody knows more than how many records there were.
    left = prefixes.source_records_gone - prefixes.surplus
    is_proven = not prefixes.target_gone or left <= prefixes.target_gone
    yield from _first(prefixes.surplus, prefixes.source_records_gone, GONE if is_proven else UNPROVEN, SURPLUS)


def _lacking(prefixes: Prefixes) -> Iterator[Allowed]:
    """All are older than the target's beginning, if the offsets that are gone had room for them: those that were lost
    beside them are behind it, and can't be told from those that commit markers made room for. If they hadn't, some were
    lost for certain, and nobody knows which."""
    if not prefixes.target_gone:
        yield from [MISSING] * prefixes.lacking
        return
    fit = prefixes.lacking + prefixes.source_records_gone <= prefixes.target_gone
    yield from _first(prefixes.lacking, prefixes.target_gone, EXPIRED if fit else UNPROVEN, MISSING)


def _first(count: int, explained: int, allowed: Allowed, otherwise: Allowed) -> Iterator[Allowed]:
    for number in range(count):
        yield allowed if number < explained else otherwise
