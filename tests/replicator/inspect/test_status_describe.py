"""A partition's status from what both clusters say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cli.commands.status_check import LagBounds, problems
from replicator.config import Flow, load_text
from replicator.inspect.expected_starts import ExpectedStart
from replicator.inspect.flow_plan import gone_topics
from replicator.inspect.flow_runs import EndedFlow, Runner, config_fault, ended, runners
from replicator.inspect.flow_status import FlowStatus, PartitionStatus, State, assembled, with_pause
from replicator.inspect.status import Times, describe, with_occurrence
from replicator.lane.plan import LanePlan
from replicator.lane.start_decision import Facts, decide, source_deleted, unlisted
from replicator.model import checkpoint
from replicator.model.checkpoint import Evidence, Position, Stored
from replicator.model.errors import Incident, ReplicatorError, TopicMissing, Unreachable
from replicator.model.partition import Committed, LogEnds, Partition
from replicator.model.route import Route
from replicator.state.claims import Claim, Claims
from replicator.state.config_fault import ConfigFault
from replicator.state.control_topic import Control
from replicator.state.flow_end import FlowEnd
from replicator.state.generation import LaneAssignment
from replicator.state.occurrences import Occurrence
from replicator.state.run_settings import NO_SETTINGS, Paused, RateLimit, RunSettings

NOW_MS = 1_800_000_000_000
MINUTE_MS = 60_000
SOURCE, COPY, TARGET = Partition("t", 2), Partition("a.t", 2), LogEnds("x", 0, 0, 0)


FILE = """\
clusters:
  a: {properties: {bootstrap.servers: "a:1"}}
  b: {properties: {bootstrap.servers: "b:1"}}
flows:
  f: {source: a, target: b, topics: [t]}
"""


@pytest.fixture(scope="module")
def flow() -> Flow:
    return load_text(FILE, env={}).flows["f"]


def committed(offset: int, *, age_ms: int = 500, moved_ms: int = 0, topic_id: str = "id-1") -> Position:
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
    return Position(offset, evidence)


def described(
    flow: Flow,
    position: Stored | ReplicatorError | None,
    *,
    start: int = 0,
    end: int = 100,
    high_watermark: int | None = None,
    oldest_ms: int | None = None,
    oldest_known: bool = True,
    open_ms: int | None = None,
    source_cluster: str = "c",
    source: ReplicatorError | None = None,
    target: LogEnds | ReplicatorError = TARGET,
    claim: Claim | None = None,
    stopped: Incident | None = None,
) -> PartitionStatus:
    """As a lane decides."""
    here = source or LogEnds("id-1", start, end, end if high_watermark is None else high_watermark)
    there = "" if isinstance(target, TopicMissing) else "x"
    route = Route(SOURCE, COPY, "id-1", there, stopped)
    plan = LanePlan(flow, 3, 0, "", source_cluster, (), 1, LaneAssignment(1))
    decision = decide(plan, route, Facts(position, claim, here, target, None, 3), NOW_MS)
    expected = ExpectedStart(route, position, here, target, decision)
    return describe(flow, expected, Times(oldest_ms, oldest_known, open_ms), NOW_MS)


def test_in_sync(flow: Flow) -> None:
    assert described(flow, committed(100)) == PartitionStatus(
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
    status = described(flow, committed(90), oldest_ms=NOW_MS - 1500)
    assert (status.lag_records, status.lag_seconds, status.state) == (10, 1.5, "behind")


def test_only_markers_left_is_in_sync(flow: Flow) -> None:
    status = described(flow, committed(98))
    assert (status.lag_records, status.lag_seconds, status.state) == (2, 0.0, "in_sync")


def test_an_unread_record_leaves_seconds_unknown(flow: Flow) -> None:
    status = described(flow, committed(98), oldest_known=False)
    assert (status.lag_records, status.lag_seconds, status.state) == (2, None, "behind")


def test_a_record_from_the_future_has_no_negative_lag(flow: Flow) -> None:
    assert described(flow, committed(98), oldest_ms=NOW_MS + 5000).lag_seconds == 0.0


@pytest.mark.parametrize("no_time_ms", [0, -1])
def test_a_record_without_a_time_has_no_age(flow: Flow, no_time_ms: int) -> None:
    status = described(flow, committed(98), oldest_ms=no_time_ms)
    assert (status.lag_records, status.lag_seconds) == (2, None)
    held = described(flow, committed(90), end=90, high_watermark=100, open_ms=no_time_ms)
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
    assert described(flow, committed(90, age_ms=commit_age_ms), oldest_ms=NOW_MS - record_age_ms).state == state


def test_a_restart_that_commits_the_position_again_does_not_hide_that_it_stands_still(flow: Flow) -> None:
    again = committed(90, age_ms=500, moved_ms=NOW_MS - 10 * MINUTE_MS)
    assert described(flow, again, oldest_ms=NOW_MS - 10 * MINUTE_MS).state == "stalled"
    moved = committed(90, age_ms=500, moved_ms=NOW_MS - 500)
    assert described(flow, moved, oldest_ms=NOW_MS - 10 * MINUTE_MS).state == "behind"


@pytest.mark.parametrize(("open_age_ms", "state"), [(10 * MINUTE_MS, "source_waits"), (500, "in_sync")])
def test_a_transaction_that_hangs_at_the_source_is_no_lag_but_shown(flow: Flow, open_age_ms: int, state: str) -> None:
    status = described(flow, committed(90), end=90, high_watermark=100, open_ms=NOW_MS - open_age_ms)
    assert (status.state, status.lag_records, status.held_back_records) == (state, 0, 10)
    assert status.held_back_since_ms == NOW_MS - open_age_ms


def test_what_needs_a_decision_shows_what_is_not_copied(flow: Flow) -> None:
    for status, state, incident, lag in (
        (described(flow, committed(5), start=10), "records_lost", "source_records_gone", 95),
        (described(flow, committed(101)), "source_truncated", "source_truncated", 0),
        (described(flow, committed(90, topic_id="id-0"), start=7), "source_recreated", "source_topic_recreated", 93),
        (described(flow, committed(90), source_cluster="another"), "other_source", "source_cluster_changed", 10),
        (
            described(flow, committed(90), target=LogEnds("y", 0, 0, 0)),
            "target_recreated",
            "target_topic_recreated",
            100,
        ),
        (described(flow, committed(90), target=LogEnds("x", 0, 0, -2)), "target_lost_data", "target_lost_data", 10),
        (described(flow, committed(90), stopped=Incident("flows_in_conflict", "")), "stopped", "flows_in_conflict", 10),
    ):
        assert (status.state, status.incident, status.lag_records) == (state, incident, lag)
    assert "offsets 5 to 9 were deleted" in described(flow, committed(5), start=10).detail
    foreign = described(flow, checkpoint.read(Committed(7, "something else")))
    assert (foreign.state, foreign.position, foreign.lag_records) == ("foreign_position", 7, None)


def test_all_of_a_topic_that_was_created_again_is_behind_however_far_the_old_one_was_copied(flow: Flow) -> None:
    status = described(flow, committed(150, topic_id="id-0"), start=7, oldest_ms=NOW_MS - 1_500)
    assert (status.lag_records, status.lag_seconds) == (93, 1.5)


@pytest.mark.tier("default")
def test_a_position_that_went_with_its_target_topic_leaves_the_age_of_what_is_not_copied(flow: Flow) -> None:
    claim = Claim(COPY, SOURCE, "id-1", "former", 0, 0, 1, "me", NOW_MS)
    status = described(flow, None, start=7, oldest_ms=NOW_MS - 1_500, claim=claim)
    assert (status.incident, status.lag_records, status.lag_seconds) == ("target_topic_recreated", 93, 1.5)


def test_what_cannot_be_asked_of_one_partition_is_shown_there(flow: Flow) -> None:
    no_leader = Unreachable("cluster 'a': LEADER_NOT_AVAILABLE")
    for status in (
        described(flow, committed(90), source=no_leader),
        described(flow, committed(90), target=no_leader),
        described(flow, no_leader),
    ):
        assert (status.state, status.detail) == ("waiting", str(no_leader))
    assert described(flow, committed(90), target=no_leader).lag_records == 10


@pytest.mark.parametrize(
    ("does", "state", "incident"),
    [("stop", "topic_missing", "source_topic_deleted"), ("report", "topic_missing", ""), ("keep", "kept", "")],
)
def test_a_source_topic_that_was_deleted_is_shown_as_the_flow_says(
    flow: Flow, does: str, state: str, incident: str
) -> None:
    flow = flow.model_copy(update={"deleted_topics": does})
    gone, route = unlisted(SOURCE), Route(SOURCE, COPY, "", "")
    found = ExpectedStart(route, committed(90), gone, gone, source_deleted(flow, SOURCE, COPY, committed(90)))
    row = describe(flow, found, Times(), NOW_MS)
    assert (row.state, row.incident, row.position) == (state, incident, 90)
    shown = FlowStatus("f", "a", "b", "exactly_once", (row,))
    assert bool(problems(shown, LagBounds())) is (does != "keep")
    (planned,) = gone_topics({SOURCE: found}, ["another"])
    assert (planned.action, planned.partitions, planned.partitions_with_position) == ("gone", 1, 1)
    assert gone_topics({SOURCE: found}, ["t"]) == []


@pytest.mark.parametrize(
    ("target", "state"),
    [
        (TopicMissing("no such topic"), "target_deleted"),
        (LogEnds("other", 0, 0, 0), "target_recreated"),
        (LogEnds("x", 0, 5, 5), "position_expired"),
    ],
)
def test_a_claim_without_a_position_was_copied_to_before(
    flow: Flow, target: LogEnds | ReplicatorError, state: str
) -> None:
    claim = Claim(COPY, SOURCE, "id-1", "x", 0, 10, 1, "me", NOW_MS)
    assert described(flow, None, target=target, claim=claim).state == state


@pytest.mark.parametrize(
    ("written_end", "told"),
    [(10, ""), (8, "; --skip leaves out those before 8 only: what was lost since then is the next incident"), (-1, "")],
)
@pytest.mark.tier("default")
def test_what_was_lost_since_an_incident_was_written_down_is_not_said_to_be_skipped(
    flow: Flow, written_end: int, told: str
) -> None:
    position, source = committed(5), LogEnds("id-1", 10, 100, 100)
    plan = LanePlan(flow, 3, 0, "", "c", (), 1, LaneAssignment(1))
    route = Route(SOURCE, COPY, "id-1", "x", None)
    decision = decide(plan, route, Facts(position, None, source, TARGET, None, 3), NOW_MS)
    it = ExpectedStart(route, position, source, TARGET, decision)
    lost = "source_records_gone"
    written = Occurrence(
        id="4708a728d50b",
        target=COPY,
        source=SOURCE,
        name=lost,
        detail="what the lane found",
        offset=5,
        end=written_end,
        found_by="me",
        found_ms=0,
        generation=3,
        at_ms=0,
    )
    row = with_occurrence(describe(flow, it, Times(), NOW_MS), it, [written], {}, NO_SETTINGS)
    assert (row.occurrence, row.incident) == ("4708a728d50b", lost)
    assert row.detail == f"source offsets 5 to 9 were deleted before they were copied{told}"


def owned(owner: str, since_ms: int) -> Evidence:
    return replace(committed(1).evidence, owner=owner, owned_ms=since_ms)


def test_who_runs_the_flow_is_said_by_its_positions() -> None:
    assert runners({}) == ()
    assert runners({Partition("t", 0): owned("", 5)}) == ()
    each = [owned("old", 5), owned("new", 9), owned("new", 8), owned("", 7), owned("older", 0)]
    positions = {Partition("t", number): it for number, it in enumerate(each)}
    assert runners(positions) == (Runner("new", 8, 2), Runner("old", 5, 1), Runner("older", None, 1))
    assert runners(positions, LaneAssignment(1)) == runners(positions)


def test_who_runs_which_lanes_is_said_of_a_flow_with_several() -> None:
    positions = {Partition("t", number): owned("ab"[number % 2], 5) for number in range(4)}
    first, second = runners(positions, LaneAssignment(4, dealt={"t": 4}))
    lane_of = LaneAssignment(4, dealt={"t": 4}).lane_of
    assert (first.owner, set(first.lanes)) == ("a", {lane_of("t", 0), lane_of("t", 2)})
    assert (second.owner, set(second.lanes)) == ("b", {lane_of("t", 1), lane_of("t", 3)})


def test_how_the_flow_has_ended_is_shown_until_it_runs_again() -> None:
    end = FlowEnd(kind="Incident", detail="why", exit_code=4, owner="me", at_ms=10)
    shown = EndedFlow("Incident", "why", 4, "me", 10)
    assert ended(None, [owned("me", 5)]) is None
    assert ended(end, []) == ended(end, [owned("me", 5), owned("", 10)]) == shown
    assert ended(end, [owned("me", 5), owned("next", 11)]) is None
    assert (ended(end, [], 9), ended(end, [], 11)) == (shown, None), "a generation was opened since"


@pytest.mark.parametrize(
    ("state", "shown"), [("behind", "paused"), ("stalled", "paused"), ("records_lost", "records_lost")]
)
def test_a_pause_hides_no_incident(state: State, shown: State) -> None:
    row = PartitionStatus(source_topic="t", partition=0, target_topic="t.copy", state=state, detail="as it was")
    settings = NO_SETTINGS.pause(["t"], Paused(by="ann", at_ms=1, why="moved"))
    found = with_pause(row, settings)
    assert found.state == shown
    assert found.detail == ("paused by ann (moved)" if shown == "paused" else "as it was")
    assert with_pause(row, settings.resume([])) == row
    assert with_pause(replace(row, source_topic="u"), settings).state == state


def test_a_fault_of_the_file_is_shown_until_other_lanes_have_come() -> None:
    fault = ConfigFault(detail="no such key", owner="p", at_ms=5)
    assert config_fault(fault, []) == fault
    assert config_fault(replace(fault, detail=""), []) is None
    assert config_fault(None, []) is None


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ({}, {"": "at most 3 records/s, as the flow file says"}),
        ({"t": RateLimit(by="ann")}, {"": "at most 3 records/s, as the flow file says", "t": "no limit, set by ann"}),
        ({"": RateLimit(records_per_s=9, by="ann")}, {"": "at most 9 records/s, set by ann"}),
        ({"": RateLimit(by="ann")}, {"": "no limit, set by ann"}),
    ],
)
def test_the_limit_of_the_flow_file_is_told_until_an_operator_has_replaced_it(
    rates: dict[str, RateLimit], said: dict[str, str]
) -> None:
    limited = load_text(FILE.replace("topics: [t]", "topics: [t], rate: {records_per_s: 3}"), env={}).flows["f"]
    found = assembled(limited, (), Control(settings=RunSettings(rates=rates)), Claims({}, ()), {})
    assert {at: it.bound_said for at, it in found.rates.items()} == said
    assert assembled(limited, (), None, Claims({}, ()), {}).rates == {}, "an operator's can't be read"
