"""How two sequences correspond: pairs of equal elements, both in order. Pure.

Alignment resynchronises by content: elements that occur once on both sides are found first, the longest run of them
that rises on both sides is kept (patience sorting), and what lies between two of them is compared in itself. So one
element that is gone moves nothing behind it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence

IndexPairs = list[tuple[int, int]]

EDITS_MAX = 2_000
"""So many differences of a range without any element of its own are found exactly."""
NEIGHBOURS = (4, 16, 64, 256)
"""With more differences, equal elements are distinguished by so many elements that follow each of them; where those
are equal, too, the range is matched position by position."""


def rising(pairs: Iterable[tuple[int, int]]) -> IndexPairs:
    """Find the longest chain of pairs that rises strictly on both sides.

    Args:
        pairs: with distinct left and distinct right numbers, in any order.
    """
    ordered = sorted(pairs)
    chain_ends: list[int] = []  # right number that ends the best chain of each length
    owners: list[int] = []  # index into `ordered` of that pair
    before = [-1] * len(ordered)
    for index, (_, right) in enumerate(ordered):
        length = bisect_left(chain_ends, right)
        before[index] = owners[length - 1] if length else -1
        if length == len(chain_ends):
            chain_ends.append(right)
            owners.append(index)
        else:
            chain_ends[length], owners[length] = right, index
    chain: IndexPairs = []
    index = owners[-1] if owners else -1
    while index >= 0:
        chain.append(ordered[index])
        index = before[index]
    return chain[::-1]


def matched(left: Sequence[int], right: Sequence[int]) -> IndexPairs:
    """Find index pairs of equal elements, strictly rising on both sides; as many as sensible, not always the most."""
    found: IndexPairs = []
    todo = [(0, len(left), 0, len(right))]
    while todo:
        low, high, low_right, high_right = todo.pop()
        while low < high and low_right < high_right and left[low] == right[low_right]:
            found.append((low, low_right))
            low, low_right = low + 1, low_right + 1
        while low < high and low_right < high_right and left[high - 1] == right[high_right - 1]:
            high, high_right = high - 1, high_right - 1
            found.append((high, high_right))
        if low == high or low_right == high_right:
            continue
        pairs, whole = _in_window(left[low:high], right[low_right:high_right])
        chain = [(low + here, low_right + there) for here, there in pairs]
        found += chain
        for here, there in () if whole else [*chain, (high, high_right)]:
            todo.append((low, here, low_right, there))
            low, low_right = here + 1, there + 1
    return sorted(found)


def _in_window(left: Sequence[int], right: Sequence[int]) -> tuple[IndexPairs, bool]:
    """Find pairs, and whether these are all; else what lies between two of them is to be compared in itself."""
    if chain := once(left, right):
        return chain, False
    if not set(left) & set(right):
        return [], True
    repeats = _shortest_edit(left, right)
    if repeats is not None:
        return repeats, True
    for many in NEIGHBOURS:
        if chain := once(_with_following(left, many), _with_following(right, many)):
            return chain, False
    return [(at, at) for at, (one, other) in enumerate(zip(left, right, strict=False)) if one == other], True


def once(left: Sequence[int], right: Sequence[int]) -> IndexPairs:
    """Find index pairs of elements that occur exactly once on both sides, as the longest rising chain."""
    count, count_right = Counter(left), Counter(right)
    at = {one: index for index, one in enumerate(right) if count_right[one] == 1}
    return rising((index, at[one]) for index, one in enumerate(left) if one in at and count[one] == 1)


def _with_following(elements: Sequence[int], many: int) -> list[int]:
    """Return one number for each element and `many - 1` behind it, where there are so many."""
    found: list[int] = list(elements)
    width = 1
    while width < many:
        found = [hash((one, other)) for one, other in zip(found, found[width:], strict=False)]
        width *= 2
    return found


def _shortest_edit(left: Sequence[int], right: Sequence[int]) -> IndexPairs | None:
    """Find the longest common subsequence of sides with at most EDITS_MAX differences; None with more.

    Myers' greedy algorithm: work grows with the length plus the square of the differences. Diagonal k holds the points
    (here, here - k); `furthest[k]` is how far right each number of edits gets on it.
    """
    rows, columns = len(left), len(right)
    trail: list[array[int]] = []
    furthest = {1: 0}
    for edits in range(min(rows + columns, EDITS_MAX) + 1):
        reached = array("q", bytes(8 * (edits + 1)))
        for slot in range(edits + 1):
            k = 2 * slot - edits
            down = k == -edits or (k != edits and furthest[k - 1] < furthest[k + 1])
            here = furthest[k + 1] if down else furthest[k - 1] + 1
            there = here - k
            while here < rows and there < columns and left[here] == right[there]:
                here, there = here + 1, there + 1
            furthest[k] = reached[slot] = here
            if k == rows - columns and here >= rows:
                trail.append(reached)
                return _walked_back(trail, rows, columns)
        trail.append(reached)
    return None


def _walked_back(trail: Sequence[array[int]], rows: int, columns: int) -> IndexPairs:
    """Return the matches on the way to the end, from what each number of edits had reached."""
    found: IndexPairs = []
    here, there = rows, columns
    for edits in range(len(trail) - 1, 0, -1):
        before, k = trail[edits - 1], here - there
        slot = (k + edits) // 2  # in `before`, diagonal k - 1 is at slot - 1 and k + 1 at slot
        down = k == -edits or (k != edits and before[slot - 1] < before[slot])
        start = before[slot] if down else before[slot - 1] + 1
        while here > start:
            here, there = here - 1, there - 1
            found.append((here, there))
        here = start if down else start - 1
        there = here - (k + 1 if down else k - 1)
    while here > 0:
        here, there = here - 1, there - 1
        found.append((here, there))
    return found[::-1]
