"""Where each source record stands, if several sections claim it: where the last one says. Used by `fold`."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import pairwise

from replicator.offset_map.run_index import MappedRun


def last_claims(claims: Sequence[MappedRun]) -> list[MappedRun]:
    """Return disjoint runs, ascending by source offset, of claims in the order in which they were made."""
    order = sorted(range(len(claims)), key=lambda number: claims[number].first)
    if all(claims[one].end <= claims[other].first for one, other in pairwise(order)):
        return [claims[number] for number in order]
    found: list[MappedRun] = []
    open_claims: list[int] = []  # negative numbers: the last claim is the first one of the heap
    at = number = 0
    while number < len(order) or open_claims:
        if not open_claims:
            at = max(at, claims[order[number]].first)
        while number < len(order) and claims[order[number]].first <= at:
            heappush(open_claims, -order[number])
            number += 1
        while open_claims and claims[-open_claims[0]].end <= at:
            heappop(open_claims)
        if not open_claims:
            continue
        claim = claims[-open_claims[0]]
        until = min(claim.end, claims[order[number]].first) if number < len(order) else claim.end
        _append(found, MappedRun(at, until - at, claim.place + at - claim.first))
        at = until
    return found


def _append(found: list[MappedRun], run: MappedRun) -> None:
    if found and found[-1].end == run.first and found[-1].place + found[-1].length == run.place:
        run = MappedRun(found[-1].first, found[-1].length + run.length, found.pop().place)
    found.append(run)
