"""Values over time as the lines of an SVG. Pure: the page's template draws them.

Time runs from left to right over `WIDTH`, a value of zero lies at `HEIGHT`, the top of the scale at 0. Where a value
isn't known, the line is broken: nothing is drawn over what wasn't seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 600.0, 60.0
POINTS_MAX = 300
"""More would lie closer than a screen's pixels: of those at one place the largest value is shown."""


@dataclass(frozen=True, slots=True)
class Plot:
    """`lines`: the points of each, as SVG's `polyline` takes them. `top`: the value at the upper edge. `now`: the last
    value, None where it isn't known. `seconds`: how long ago the left edge is."""

    lines: tuple[str, ...]
    top: float
    now: float | None
    seconds: float


def plot(times_s: Sequence[float], values: Sequence[float | None]) -> Plot | None:
    """Draw `values` over `times_s`, of the same length, the oldest first. None where there is nothing to be drawn."""
    if len(times_s) < 2 or times_s[-1] <= times_s[0] or not any(value is not None for value in values):
        return None
    began_s, seconds = times_s[0], times_s[-1] - times_s[0]
    top = scale(max(value for value in values if value is not None))
    points = _thinned([(WIDTH * (at - began_s) / seconds, value) for at, value in zip(times_s, values, strict=True)])
    lines = tuple(" ".join(f"{x:.1f},{HEIGHT - HEIGHT * value / top:.1f}" for x, value in run) for run in _runs(points))
    return Plot(lines, top, values[-1], seconds)


def scale(largest: float) -> float:
    """Return the next of 1, 2, 5, 10, 20, 50, … that is not below `largest`; 1 where that is less."""
    if largest <= 1:
        return 1.0
    power = 10.0 ** math.floor(math.log10(largest))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= largest)


def _thinned(points: Sequence[tuple[float, float | None]]) -> list[tuple[float, float | None]]:
    if len(points) <= POINTS_MAX:
        return list(points)
    found: dict[int, tuple[float, float | None]] = {}
    for x, value in points:
        place = int(x / WIDTH * (POINTS_MAX - 1))
        before = found.get(place)
        if before is None or (value is not None and (before[1] is None or value > before[1])):
            found[place] = (x, value)
    return list(found.values())


def _runs(points: Sequence[tuple[float, float | None]]) -> Iterator[list[tuple[float, float]]]:
    """Yield points that follow each other without one that isn't known; a lone one becomes a short line, to be seen."""
    run: list[tuple[float, float]] = []
    for x, value in (*points, (WIDTH, None)):
        if value is not None:
            run.append((x, value))
        elif run:
            yield run if len(run) > 1 else [run[0], (run[0][0] + 1, run[0][1])]
            run = []
