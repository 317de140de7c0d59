"""A partition's life: every event in every state, and what is told of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import get_args

import pytest
from structlog import get_logger
from structlog.testing import capture_logs

from replicator.lane import diagram, partition
from replicator.lane.incident_report import IncidentReport
from replicator.lane.partition import (
    RETRY_S,
    RETRY_S_MAX,
    TRANSITIONS,
    Admit,
    Admitted,
    Commits,
    Copying,
    Decided,
    Event,
    HeldUp,
    HoldUp,
    LanePartition,
    PositionCommitted,
    Reason,
    RecordsCommitted,
    SessionBegan,
    SessionFacts,
    State,
    Stop,
    Stopped,
    Undecided,
    Wait,
    Waiting,
)
from replicator.lane.partitions import PartitionCounts, Partitions
from replicator.lane.refusal_search import NOT_REFUSED, RefusalSearch
from replicator.model.checkpoint import STRAY, Evidence, Position, Unreadable
from replicator.model.errors import Incident
from replicator.model.origins import Origin
from replicator.model.partition import Committed, Partition
from replicator.model.route import Route
from replicator.state.claims import Claim

AT, OTHER = Partition("orders", 0), Partition("orders", 1)
ROUTE, OTHER_ROUTE = (Route(at, Partition("a.orders", at.partition), "s", "t") for at in (AT, OTHER))
GONE = Incident("source_records_gone", "offsets 3 to 9", topic="orders", partition=0)
POSITION = Position(
    7,
    Evidence(
        generation=1, owner="me", source_topic="orders", source_cluster="A", source_topic_id="s", target_topic_id="t"
    ),
)
BEFORE = replace(POSITION, offset=9)
CLAIM = Claim(
    target=ROUTE.target,
    source=AT,
    source_topic_id="s",
    target_topic_id="t",
    target_end=0,
    offset=7,
    generation=1,
    owner="me",
    at_ms=1,
)
EVENTS: tuple[Event, ...] = (
    SessionBegan(),
    Admit(),
    Admit(CLAIM),
    PositionCommitted(),
    Wait(Reason.NO_ANSWER, "away"),
    Wait(Reason.NOT_ALLOWED, "no right"),
    Stop(GONE),
    Stop(GONE, lasting=True),
    HoldUp(Reason.TARGET_SLOW, "slow"),
    RecordsCommitted(),
    Decided(),
)


def after(*events: Event) -> LanePartition:
    made = LanePartition(ROUTE, POSITION)
    for number, event in enumerate(events):
        if isinstance(event, Admit):
            made.position = POSITION
        made.apply(event, float(number))
    return made


def lives() -> Iterator[tuple[Event, ...]]:
    for length in range(5):
        yield from product(EVENTS, repeat=length)


def test_a_decision_lets_the_next_judgement_decide_whoever_found_the_incident() -> None:
    assert after(Stop(GONE, lasting=True), Decided()).state == Stopped(GONE)
    for life in ((), (Admit(),), (Wait(Reason.NO_ANSWER, "away"),)):
        assert after(*life, Decided()) == after(*life)


def test_every_event_is_in_the_table_for_every_state() -> None:
    assert set(TRANSITIONS) == set(get_args(State))
    assert all(set(row) == set(get_args(partition.Event)) for row in TRANSITIONS.values())


def test_every_life_goes_as_the_table_says() -> None:
    seen = set[tuple[type, type]]()
    for life in lives():
        if not life:
            continue
        before, now = after(*life[:-1]), after(*life)
        seen.add((type(before.state), type(life[-1])))
        assert type(now.state) is TRANSITIONS[type(before.state)][type(life[-1])][0], life
    assert len(seen) == len(TRANSITIONS) * len(get_args(partition.Event))


def test_it_is_copied_only_after_it_was_admitted_in_the_same_session() -> None:
    """Invariant 1: in every life, whatever was read before the fence counts for nothing."""
    for life in lives():
        admitted = False
        for event in life:
            match event:
                case Admit():
                    admitted = True
                case SessionBegan() | Wait() | Stop():
                    admitted = False
        assert after(*life).copied == admitted, life


def test_a_position_that_was_never_committed_goes_with_its_claim() -> None:
    for last in (Wait(Reason.NO_ANSWER, ""), Stop(GONE)):
        assert after(Admit(CLAIM), last).position is None
        assert after(Admit(CLAIM, BEFORE), last).position == BEFORE
        assert after(Admit(CLAIM), PositionCommitted(), last).position == POSITION
        assert after(Admit(), last).position == POSITION


def test_a_new_session_forgets_what_the_last_one_has_read() -> None:
    made = after(Admit(), PositionCommitted())
    made.unreadable, made.commits = Unreadable(Committed(7, "theirs"), STRAY, ""), Commits.NO
    made.apply(SessionBegan(), 0.0)
    assert (made.position, made.unreadable, made.commits) == (None, None, Commits.YES)
    assert (made.state, made.copied) == (Undecided(Copying()), False)


def test_a_session_leaves_to_the_next_what_the_lane_has_to_remember_and_nothing_else() -> None:
    made = after(Admit(), PositionCommitted())
    made.session = SessionFacts(5.0, True, 7, True, True, frozenset({Origin("c", "t", "f")}))
    made.refusal, made.report = RefusalSearch(until=3), IncidentReport(last=GONE)
    made.apply(SessionBegan(), 0.0)
    assert made.session == SessionFacts()
    assert (made.refusal, made.report) == (RefusalSearch(until=3), IncidentReport(last=GONE))


def test_an_incident_ends_the_search_for_a_refused_record_and_nothing_else_does() -> None:
    for event in (SessionBegan(), Admit(), PositionCommitted(), Wait(Reason.NO_ANSWER, "x"), RecordsCommitted()):
        made = after(Admit(), PositionCommitted())
        made.refusal = RefusalSearch(until=3)
        made.apply(event, 0.0)
        assert made.refusal.until == 3, event
    made.apply(Stop(GONE), 0.0)
    assert made.refusal == NOT_REFUSED


def test_what_was_told_stays_until_the_position_is_committed() -> None:
    told = after(Wait(Reason.NOT_ALLOWED, "x")).told
    assert after(Wait(Reason.NOT_ALLOWED, "x"), Admit(CLAIM)).state == Admitted(told, CLAIM)
    assert after(Wait(Reason.NOT_ALLOWED, "x"), SessionBegan()).told == told


def test_the_same_reason_again_waits_longer_whatever_was_tried_in_between() -> None:
    made, pauses = LanePartition(ROUTE), list[float]()
    for _ in range(8):
        made.apply(Admit(), 10.0)
        made.apply(Wait(Reason.NO_ANSWER, "away"), 10.0)
        assert isinstance(made.state, Waiting)
        assert made.state.since_s == 10.0
        pauses.append(made.state.retry_s - 10.0)
    assert pauses == [min(RETRY_S_MAX, RETRY_S * 2**number) for number in range(8)]
    made.apply(Wait(Reason.NOT_ALLOWED, "another"), 20.0)
    assert made.state == Waiting(Reason.NOT_ALLOWED, "another", 20.0, 20.0 + RETRY_S)


@pytest.fixture
def two() -> Partitions:
    made = Partitions(get_logger(), lambda: 0.0)
    made.begin([ROUTE, OTHER_ROUTE])
    return made


def test_a_state_is_logged_when_it_changes_and_not_when_it_is_found_again(two: Partitions) -> None:
    with capture_logs() as lines:
        for event in (Wait(Reason.NO_ANSWER, "away"), Wait(Reason.NO_ANSWER, "still"), Stop(GONE), Stop(GONE), Admit()):
            two.apply(AT, event)
        two.begin([ROUTE, OTHER_ROUTE])
        two.apply(AT, Stop(GONE))
        two.apply(AT, Admit())
        two.on_committed()
        two.on_committed()
    assert [line["event"] for line in lines] == ["waiting", "incident", "copying"]


def test_a_lane_that_commits_no_records_is_said_to_wait_until_it_does(two: Partitions) -> None:
    """Over producer sessions, too, and without a line for each try."""
    slow = HoldUp(Reason.TARGET_SLOW, "slow")
    with capture_logs() as lines:
        two.apply(AT, Admit())
        two.on_committed()
        two.apply(OTHER, Stop(GONE))
        for _ in range(2):
            two.hold_up(slow)
            assert isinstance(two[AT].state, HeldUp)
            assert (set(two.copied), two.publish()) == ({AT}, PartitionCounts(0, 1, 1))
            two.begin([ROUTE, OTHER_ROUTE])
            two.apply(AT, Admit())
            two.apply(OTHER, Stop(GONE))
            two.on_committed()
        two.records_committed()
        two.records_committed()
    assert two.told() == {AT: Copying(), OTHER: Stopped(GONE)}
    assert [line["event"] for line in lines] == ["incident", "waiting", "copying"]


def test_the_first_copying_is_no_news(two: Partitions) -> None:
    with capture_logs() as lines:
        two.apply(AT, Admit())
        two.on_committed()
    assert lines == []


def test_copied_and_told_follow_each_event(two: Partitions) -> None:
    assert (two.copied, two.told()) == ({}, {})
    two.apply(AT, Admit())
    assert (set(two.copied), set(two.admitted), two.told()) == ({AT}, {AT}, {})
    two.on_committed()
    two.apply(OTHER, Stop(GONE, lasting=True))
    assert (set(two.copied), set(two.admitted)) == ({AT}, set())
    assert two.told() == {AT: Copying(), OTHER: Stopped(GONE, True)}
    assert (two.lasting(OTHER), two.lasting(AT)) == (GONE, None)
    two.begin([ROUTE])
    assert list(two) == [AT]


def test_the_source_is_read_anew_whenever_others_are_copied(two: Partitions) -> None:
    def anew(event: Event) -> bool:
        two.read_anew = False
        two.apply(AT, event)
        return two.read_anew

    assert two.read_anew, "a session begins with that"
    changes: list[Event] = [
        Admit(),
        PositionCommitted(),
        HoldUp(Reason.TARGET_SLOW, "slow"),
        RecordsCommitted(),
        Stop(GONE),
        Stop(GONE),
    ]
    assert [anew(event) for event in changes] == [True, False, False, False, True, False]
    two.read_anew = False
    two.begin([ROUTE])
    assert two.read_anew


def test_what_concerns_the_whole_lane_leaves_alone_what_waits_or_is_stopped() -> None:
    counted = list[PartitionCounts]()
    made = Partitions(get_logger(), lambda: 0.0, counted.append)
    made.begin([ROUTE])
    made.apply(AT, Stop(GONE))
    made.wait_all([ROUTE, OTHER_ROUTE], Wait(Reason.NO_ANSWER, "away"))
    assert [type(state) for state in made.told().values()] == [Stopped, Waiting]
    made.wait_all([ROUTE, OTHER_ROUTE], Wait(Reason.NOT_ALLOWED, "no right"))
    assert isinstance(state := made.told()[OTHER], Waiting)
    assert (state.reason, counted) == (Reason.NO_ANSWER, [PartitionCounts(0, 1, 1)])


def test_the_page_has_the_table() -> None:
    page = diagram.PAGE.read_text()
    assert diagram.written(page) == page, "run python -m replicator.lane.diagram"
