"""A partition's status from what both clusters say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replicator.config import Flow, load_text
from replicator.inspect.status import PartitionStatus, StatusFacts, describe
from replicator.kafka.topic_questions import TopicInfo
from replicator.model import checkpoint
from replicator.model.checkpoint import Evidence
from replicator.model.partition import Committed, LogEnds, Partition
from replicator.state.claims import Claim

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


def committed(offset: int, *, age_ms: int = 500, moved_ms: int = 0, topic_id: str = "id-1") -> Committed:
    evidence = Evidence(
        generation=3,
        owner="me",
        source_topic="t",
        source_cluster="c",
        source_topic_id=topic_id,
        target_topic_id="x",
        count=42,
        committed_ms=NOW_MS - age_ms,
        moved_ms=moved_ms,
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
    facts = StatusFacts(TopicInfo("t", "id-1", 4), 2, "a.t", position, start, end, oldest_ms, oldest_known)
    return describe(flow, facts, NOW_MS)


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


@pytest.mark.parametrize("no_time_ms", [0, -1])
def test_a_record_without_a_time_has_no_age(flow: Flow, no_time_ms: int) -> None:
    status = described(flow, committed(98), oldest_age_ms=NOW_MS - no_time_ms)
    assert (status.lag_records, status.lag_seconds) == (2, None)
    facts = StatusFacts(
        TopicInfo("t", "id-1", 4), 2, "a.t", committed(90), 0, 90, high_watermark=100, open_ms=no_time_ms
    )
    held = describe(flow, facts, NOW_MS)
    assert (held.held_back_records, held.held_back_since_ms, held.state) == (10, None, "in_sync")


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


def test_a_restart_that_commits_the_position_again_does_not_hide_that_it_stands_still(flow: Flow) -> None:
    again = committed(90, age_ms=500, moved_ms=NOW_MS - 10 * MINUTE_MS)
    assert described(flow, again, oldest_age_ms=10 * MINUTE_MS).state == "stalled"
    moved = committed(90, age_ms=500, moved_ms=NOW_MS - 500)
    assert described(flow, moved, oldest_age_ms=10 * MINUTE_MS).state == "behind"


@pytest.mark.parametrize(("open_age_ms", "state"), [(10 * MINUTE_MS, "source_waits"), (500, "in_sync")])
def test_a_transaction_that_hangs_at_the_source_is_no_lag_but_shown(flow: Flow, open_age_ms: int, state: str) -> None:
    facts = StatusFacts(
        TopicInfo("t", "id-1", 4), 2, "a.t", committed(90), 0, 90, high_watermark=100, open_ms=NOW_MS - open_age_ms
    )
    status = describe(flow, facts, NOW_MS)
    assert (status.state, status.lag_records, status.held_back_records) == (state, 0, 10)
    assert status.held_back_since_ms == NOW_MS - open_age_ms


def test_what_needs_a_decision(flow: Flow) -> None:
    assert described(flow, committed(5), start=10, oldest_age_ms=5).state == "records_lost"
    assert described(flow, committed(101)).state == "source_truncated"
    assert described(flow, committed(100, topic_id="id-0")).state == "source_recreated"
    known = StatusFacts(TopicInfo("t", "id-1", 4), 2, "a.t", committed(90), 0, 90, None, True)
    for change, state in (
        ({"source_cluster": "c"}, "in_sync"),
        ({"source_cluster": "another"}, "other_source"),
        ({"target": LogEnds("x", 0, 0, 0)}, "in_sync"),
        ({"target": LogEnds("y", 0, 0, 0)}, "target_recreated"),
        ({"target": LogEnds("x", 0, 0, -2)}, "target_lost_data"),
    ):
        assert describe(flow, replace(known, **change), NOW_MS).state == state
    foreign = described(flow, Committed(7, "something else"))
    assert (foreign.state, foreign.position, foreign.lag_records) == ("foreign_position", 7, None)


@pytest.mark.parametrize(
    ("target", "state"),
    [
        (None, "target_deleted"),
        (LogEnds("other", 0, 0, 0), "target_recreated"),
        (LogEnds("x", 0, 5, 5), "position_expired"),
    ],
)
def test_a_claim_without_a_position_was_copied_to_before(flow: Flow, target: LogEnds | None, state: str) -> None:
    source, copy = Partition("t", 2), Partition("a.t", 2)
    claim = Claim(copy, source, "id-1", "x", 0, 10, 1, "me", NOW_MS)
    facts = StatusFacts(TopicInfo("t", "id-1", 4), 2, "a.t", None, 0, 100, target=target, claim=claim)
    assert describe(flow, facts, NOW_MS).state == state
