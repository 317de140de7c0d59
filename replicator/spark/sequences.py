"""How two sequences correspond: pairs of equal elements, both in order. Pure.

Alignment resynchronises by content: elements that occur once on both sides are found first, the longest run of them
that rises on both sides is kept (patience sorting), and what lies between two of them is compared in itself. So one
element that is gone moves nothing behind it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence

Pairs = list[tuple[int, int]]

CELLS_MAX = 1_000_000
"""Above this many comparisons a stretch without any element of its own is matched position by position."""


def rising(pairs: Iterable[tuple[int, int]]) -> Pairs:
    """The longest chain of pairs that rises strictly on both sides.

    Args:
        pairs: with distinct left and distinct right numbers, in any order.
    """
    ordered = sorted(pairs)
    tails: list[int] = []  # right number that ends the best chain of each length
    owners: list[int] = []  # index into `ordered` of that pair
    before = [-1] * len(ordered)
    for index, (_, right) in enumerate(ordered):
        length = bisect_left(tails, right)
        before[index] = owners[length - 1] if length else -1
        if length == len(tails):
            tails.append(right)
            owners.append(index)
        else:
            tails[length], owners[length] = right, index
    chain: Pairs = []
    index = owners[-1] if owners else -1
    while index >= 0:
        chain.append(ordered[index])
        index = before[index]
    return chain[::-1]


def matched(left: Sequence[int], right: Sequence[int]) -> Pairs:
    """Index pairs of equal elements, strictly rising on both sides; as many as sensible, not always the most."""
    found: Pairs = []
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
        chain = _unique(left, right, low, high, low_right, high_right)
        if not chain:
            found += _repeats(left, right, low, high, low_right, high_right)
            continue
        found += chain
        for here, there in [*chain, (high, high_right)]:
            todo.append((low, here, low_right, there))
            low, low_right = here + 1, there + 1
    return sorted(found)


def _unique(left: Sequence[int], right: Sequence[int], low: int, high: int, low_right: int, high_right: int) -> Pairs:
    """Elements that occur exactly once in both windows, as the longest rising chain."""
    count, count_right = Counter(left[low:high]), Counter(right[low_right:high_right])
    at = {right[index]: index for index in range(low_right, high_right) if count_right[right[index]] == 1}
    return rising(
        (index, at[left[index]]) for index in range(low, high) if left[index] in at and count[left[index]] == 1
    )


def _repeats(left: Sequence[int], right: Sequence[int], low: int, high: int, low_right: int, high_right: int) -> Pairs:
    """Only repeated elements: the longest common subsequence, or the same position where that is too much."""
    rows, columns = high - low, high_right - low_right
    if not set(left[low:high]) & set(right[low_right:high_right]):
        return []
    if rows * columns > CELLS_MAX:
        same = range(min(rows, columns))
        return [(low + step, low_right + step) for step in same if left[low + step] == right[low_right + step]]
    best = [[0] * (columns + 1) for _ in range(rows + 1)]
    for row in range(rows - 1, -1, -1):
        for column in range(columns - 1, -1, -1):
            if left[low + row] == right[low_right + column]:
                best[row][column] = best[row + 1][column + 1] + 1
            else:
                best[row][column] = max(best[row + 1][column], best[row][column + 1])
    pairs: Pairs = []
    row = column = 0
    while row < rows and column < columns:
        if left[low + row] == right[low_right + column]:
            pairs.append((low + row, low_right + column))
            row, column = row + 1, column + 1
        elif best[row + 1][column] >= best[row][column + 1]:
            row += 1
        else:
            column += 1
    return pairs
