"""What `status --json` says of records whose time is unknown, and of a topic that stands still."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from integration_tests.harness import raw
from integration_tests.harness.two_topics import TwoTopics

OLD, TIMELESS = 20, 3
YEAR_S = 365 * 86_400


def seconds(shown: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """All numbers below a key that speaks of seconds, with that key."""
    if isinstance(shown, dict):
        for key, value in shown.items():
            yield from seconds(value, key)
    elif isinstance(shown, list):
        for value in shown:
            yield from seconds(value, name)
    elif isinstance(shown, int | float) and "seconds" in name:
        yield name, shown


@pytest.mark.tier("full")
def test_a_timestamp_of_zero_is_no_lag_since_1970(two_topics: TwoTopics) -> None:
    two = two_topics
    two.assert_stops(two.running(OLD), 0)
    for _ in range(TIMELESS):
        raw.put(two.source, two.first, 0, raw.record(b"k", b"timeless", timestamp_ms=0))
    shown = two.status()
    row = next(row for row in shown["partitions"] if row["source_topic"] == two.first)
    assert row["lag_records"] == TIMELESS
    assert not [found for found in seconds(shown) if found[1] > YEAR_S], shown
