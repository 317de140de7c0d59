"""Which timestamps a topic takes, by its configs."""

from __future__ import annotations

import pytest

from replicator.model.timestamps import TimestampBounds

NOW_MS = 1_800_000_000_000
BEFORE, AFTER, BOTH = (f"message.timestamp.{which}.max.ms" for which in ("before", "after", "difference"))


@pytest.mark.parametrize(
    ("configs", "bounds"),
    [
        ({}, TimestampBounds()),
        ({BEFORE: "5", AFTER: "7"}, TimestampBounds(5, 7)),
        ({BOTH: "6"}, TimestampBounds(6, 6)),
        ({BEFORE: "5", AFTER: "7", BOTH: "6"}, TimestampBounds(5, 6)),
        ({BEFORE: "5", AFTER: "7", "message.timestamp.type": "LogAppendTime"}, TimestampBounds()),
    ],
)
def test_bounds_of_configs(configs: dict[str, str], bounds: TimestampBounds) -> None:
    assert TimestampBounds.of(configs) == bounds
    assert TimestampBounds.of({f"log.{key}": value for key, value in configs.items()}, "log.") == bounds
    assert bounds.bounded == (bounds != TimestampBounds())


@pytest.mark.parametrize(
    ("timestamp_ms", "word"),
    [
        (NOW_MS - 1000, ""),
        (NOW_MS - 1001, "is older than topic 'copy' takes (message.timestamp.before.max.ms=1000)"),
        (NOW_MS + 2000, ""),
        (NOW_MS + 2001, "is further ahead than topic 'copy' takes (message.timestamp.after.max.ms=2000)"),
        (2**62, "beyond the year 9999"),
    ],
)
def test_what_is_refused_is_said_with_its_config(timestamp_ms: int, word: str) -> None:
    refused = TimestampBounds(1000, 2000).refusal(timestamp_ms, NOW_MS, "copy")
    assert bool(refused) == bool(word)
    assert word in refused
    assert TimestampBounds().refusal(timestamp_ms, NOW_MS, "copy") == ""
