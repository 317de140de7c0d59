"""A partition's status from what both clusters say."""

from __future__ import annotations

import pytest

from replicator import checkpoint
from replicator.admin import TopicInfo
from replicator.checkpoint import Evidence
from replicator.config import Flow, load_text
from replicator.planes.contract import Committed
from replicator.status import PartitionStatus, Seen, describe

NOW_MS = 1_800_000_000_000
MINUTE_MS = 60_000


@pytest.fixture(scope="module")
def flow() -> Flow:
    text = """\
clusters:
  a: {properties: {bootstrap.servers: "a:1"}}
  b: {properties: {bootstrap.servers: "b:1"}}
flows:
  f: {source: a, target: b, topics: [t]}
"""
    return load_text(text, env={}).flows["f"]


def committed(offset: int, *, age_ms: int = 500, topic_id: str = "id-1") -> Committed:
    evidence = Evidence(
        generation=3,
        owner="me",
        source_topic="t",
        source_cluster="c",
        source_topic_id=topic_id,
        target_topic_id="x",
        count=42,
        committed_ms=NOW_MS - age_ms,
    )
    return Committed(offset, checkpoint.encode(evidence))


def described(
    flow: Flow,
    position: Committed | None,
    *,
    start: int = 0,
    end: int = 100,
    oldest_age_ms: int | None = None,
    oldest_known: bool = True,
) -> PartitionStatus:
    oldest_ms = None if oldest_age_ms is None else NOW_MS - oldest_age_ms
    seen = Seen(TopicInfo("t", "id-1", 4), 2, "a.t", position, start, end, oldest_ms, oldest_known)
    return describe(flow, seen, NOW_MS)


def test_in_sync(flow: Flow) -> None:
    status = described(flow, committed(100))
    assert status == PartitionStatus(
        source_topic="t",
        partition=2,
        target_topic="a.t",
        position=100,
        source_end=100,
        lag_records=0,
        lag_seconds=0.0,
        last_commit_ms=NOW_MS - 500,
        generation=3,
        owner="me",
        records_copied=42,
        state="in_sync",
    )


def test_behind_by_records_and_seconds(flow: Flow) -> None:
    status = described(flow, committed(90), oldest_age_ms=1500)
    assert (status.lag_records, status.lag_seconds, status.state) == (10, 1.5, "behind")


def test_only_markers_left_is_in_sync(flow: Flow) -> None:
    status = described(flow, committed(98), oldest_age_ms=None)
    assert (status.lag_records, status.lag_seconds, status.state) == (0, 0.0, "in_sync")


def test_an_unread_record_leaves_seconds_unknown(flow: Flow) -> None:
    status = described(flow, committed(98), oldest_known=False)
    assert (status.lag_records, status.lag_seconds, status.state) == (2, None, "behind")


def test_a_record_from_the_future_has_no_negative_lag(flow: Flow) -> None:
    assert described(flow, committed(98), oldest_age_ms=-5000).lag_seconds == 0.0


def test_no_position(flow: Flow) -> None:
    status = described(flow, None, start=10)
    assert (status.position, status.lag_records, status.lag_seconds, status.state) == (None, 90, None, "not_started")


@pytest.mark.parametrize(
    ("commit_age_ms", "record_age_ms", "state"),
    [
        (10 * MINUTE_MS, 10 * MINUTE_MS, "stalled"),
        (10 * MINUTE_MS, 500, "behind"),  # the first record after a quiet time
        (500, 10 * MINUTE_MS, "behind"),  # a backlog that is being copied
    ],
)
def test_stalled_needs_an_old_record_and_an_old_commit(
    flow: Flow, commit_age_ms: int, record_age_ms: int, state: str
) -> None:
    assert described(flow, committed(90, age_ms=commit_age_ms), oldest_age_ms=record_age_ms).state == state


@pytest.mark.parametrize(("open_age_ms", "state"), [(10 * MINUTE_MS, "source_waits"), (500, "in_sync")])
def test_a_transaction_that_hangs_at_the_source_is_no_lag_but_shown(flow: Flow, open_age_ms: int, state: str) -> None:
    seen = Seen(
        TopicInfo("t", "id-1", 4), 2, "a.t", committed(90), 0, 90, high_watermark=100, open_ms=NOW_MS - open_age_ms
    )
    status = describe(flow, seen, NOW_MS)
    assert (status.state, status.lag_records, status.held_back_records) == (state, 0, 10)
    assert status.held_back_since_ms == NOW_MS - open_age_ms


def test_what_needs_a_decision(flow: Flow) -> None:
    assert described(flow, committed(5), start=10, oldest_age_ms=5).state == "records_lost"
    assert described(flow, committed(101)).state == "source_truncated"
    assert described(flow, committed(100, topic_id="id-0")).state == "source_recreated"
    foreign = described(flow, Committed(7, "something else"))
    assert (foreign.state, foreign.position, foreign.lag_records) == ("foreign_position", 7, None)
