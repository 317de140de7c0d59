"""Lines of a plot: nothing is drawn over what isn't known, and the largest value stays to be seen."""

from __future__ import annotations

import pytest

from replicator.observe.plot import HEIGHT, POINTS_MAX, WIDTH, plot, scale


@pytest.mark.parametrize(
    ("largest", "top"), [(0, 1), (1, 1), (1.1, 2), (4, 5), (5, 5), (99, 100), (101, 200), (6e5, 1e6)]
)
def test_scale(largest: float, top: float) -> None:
    assert scale(largest) == top


def test_zero_lies_at_the_bottom_and_the_top_of_the_scale_at_zero() -> None:
    found = plot([10, 20, 30], [0, 5, 10])
    assert found is not None
    assert found.lines == (f"0.0,{HEIGHT} {WIDTH / 2},{HEIGHT / 2} {WIDTH},0.0",)
    assert (found.top, found.now, found.seconds) == (10, 10, 20)


def test_what_is_not_known_breaks_the_line() -> None:
    found = plot([0, 1, 2, 3, 4], [1, 1, None, 1, None])
    assert found is not None
    assert [line.count(",") for line in found.lines] == [2, 2], "a value alone is a short line"
    assert found.now is None


@pytest.mark.parametrize(
    ("times", "values"), [([], []), ([1.0], [3]), ([1.0, 2.0], [None, None]), ([1.0, 1.0], [3, 4])]
)
def test_nothing_to_be_drawn(times: list[float], values: list[float | None]) -> None:
    assert plot(times, values) is None


def test_of_many_points_the_largest_stay() -> None:
    values: list[float | None] = [1.0] * 3_000
    values[1_234] = 50.0
    found = plot([float(at) for at in range(3_000)], values)
    assert found is not None
    [line] = found.lines
    points = [point.split(",") for point in line.split()]
    assert len(points) <= POINTS_MAX
    assert [round(float(x)) for x, y in points if float(y) == 0.0] == [round(WIDTH * 1_234 / 2_999)]
