"""What becomes of a position that an operator sets, by what both clusters say: judged without any I/O."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from replicator.config import Flow
from replicator.jobs.position_plan import PlannedPosition, PositionFacts, check_grown, plan_position
from replicator.lane.ports import ClusterQuestions
from replicator.model.checkpoint import Evidence, Position, Unreadable
from replicator.model.commands import Command
from replicator.model.delivery import Delivery
from replicator.model.errors import TopicMissing
from replicator.model.partition import Committed, EndRecords, LogEnds, Partition
from replicator.state.claims import Claim
from replicator.state.decisions import NotDecided, Objection
from replicator.state.exported_positions import WantedPosition
from tests.replicator.lane.fakes.world import World

pytestmark = pytest.mark.tier("default")

AT, TO = Partition("t", 0), Partition("t.copy", 0)
EVIDENCE = Evidence(
    generation=3,
    owner="",
    source_topic="t",
    source_cluster="c",
    source_topic_id="S",
    target_topic_id="T",
    next_target_offset=20,
    count=15,
)
POSITION = Position(10, EVIDENCE)
CLAIM = Claim(TO, AT, "S", "T", 0, 0, 1, "o", 0)
SOURCE, TARGET = LogEnds("S", 2, 30, 30), LogEnds("T", 0, 21, 21)
FACTS = PositionFacts(
    target=TO,
    stored=POSITION,
    claim=CLAIM,
    source_log=SOURCE,
    target_log=TARGET,
    last=EndRecords((19,), 21),
    fenced=True,
)


@pytest.fixture
def flow() -> Flow:
    return World().flow


def planned(flow: Flow, offset: int, facts: PositionFacts = FACTS, **wanted: str) -> PlannedPosition:
    return plan_position(flow, WantedPosition(source=AT, offset=offset, **cast(Any, wanted)), facts, "c", 3)


def refused(flow: Flow, offset: int, facts: PositionFacts = FACTS, **wanted: str) -> tuple[Objection, str]:
    with pytest.raises(NotDecided) as it:
        planned(flow, offset, facts, **wanted)
    return it.value.reason, it.value.detail


def test_back_is_an_adoption_forward_a_gap_and_the_same_is_nothing(flow: Flow) -> None:
    rows = {to: planned(flow, to) for to in (2, 9, 10, 11, 30)}
    assert {to: (it.command, it.copied_again, it.left_out) for to, it in rows.items()} == {
        2: (Command.ADOPT, 8, 0),
        9: (Command.ADOPT, 1, 0),
        10: (None, 0, 0),
        11: (Command.SKIP, 0, 1),
        30: (Command.SKIP, 0, 20),
    }


@pytest.mark.parametrize("offset", [0, 1, 31])
def test_an_offset_that_the_source_does_not_have_is_refused(flow: Flow, offset: int) -> None:
    assert refused(flow, offset)[0] is Objection.OUT_OF_RANGE


@pytest.mark.parametrize("records", [(19, 25), (19, 20)])
def test_records_behind_those_that_the_position_covers_are_adopted_wherever_it_is_set(
    flow: Flow, records: tuple[int, ...]
) -> None:
    facts = replace(FACTS, target_log=LogEnds("T", 0, 40, 40), last=EndRecords(records, -1))
    assert [planned(flow, to, facts).command for to in (5, 10, 15)] == [Command.ADOPT] * 3


@pytest.mark.parametrize("offset", [5, 15])
@pytest.mark.parametrize(
    ("facts", "name"),
    [
        (replace(FACTS, source_log=LogEnds("S2", 0, 30, 30)), "source_topic_recreated"),
        (replace(FACTS, target_log=LogEnds("T2", 0, 21, 21)), "target_topic_recreated"),
        (
            replace(FACTS, stored=replace(POSITION, evidence=replace(EVIDENCE, source_cluster="d"))),
            "source_cluster_changed",
        ),
        (
            replace(FACTS, stored=replace(POSITION, evidence=replace(EVIDENCE, generation=4))),
            "position_newer_than_control",
        ),
        (replace(FACTS, target_log=LogEnds("T", 0, 19, 19)), "target_lost_data"),
    ],
)
def test_what_another_position_is_no_answer_to_is_refused_with_advice(
    flow: Flow, facts: PositionFacts, name: str, offset: int
) -> None:
    reason, detail = refused(flow, offset, facts)
    assert (reason, name in detail, "no answer" in detail) == (Objection.STOPPED, True, True)


def test_nothing_is_adopted_that_hides_a_loss(flow: Flow) -> None:
    hidden = replace(FACTS, last=EndRecords((), 21))
    assert "target_records_hidden" in refused(flow, 5, hidden)[1]
    assert planned(flow, 5, replace(hidden, compacted=True)).command is Command.ADOPT
    gone = replace(hidden, source_log=LogEnds("S", 12, 30, 30), target_log=LogEnds("T", 0, 19, 19))
    assert "target_lost_data" in refused(flow, 12, replace(gone, stored=Position(15, EVIDENCE)))[1]
    cut = replace(gone, source_log=LogEnds("S", 0, 8, 8))
    assert "target_lost_data" in refused(flow, 8, cut)[1], "truncation at the source is named first"


def test_an_open_transaction_is_waited_for_only_behind_the_fence(flow: Flow) -> None:
    open_ = replace(FACTS, target_log=LogEnds("T", 0, 21, 24), last=EndRecords((19,), 21))
    assert "target_transaction_open" in refused(flow, 5, open_)[1]
    assert planned(flow, 5, replace(open_, fenced=False)).command is Command.ADOPT
    assert planned(flow, 15, open_).command is Command.SKIP, "its evidence stays, and says the same at the next start"
    several = replace(open_, last=EndRecords((19, 22), -1))
    assert "target_transaction_open" in refused(flow, 5, several)[1]


def test_records_that_are_gone_and_a_source_that_was_cut_are_what_it_is_for(flow: Flow) -> None:
    gone = replace(FACTS, source_log=LogEnds("S", 14, 30, 30))
    assert planned(flow, 14, gone).left_out == 4
    cut = replace(FACTS, source_log=LogEnds("S", 0, 8, 8))
    assert planned(flow, 8, cut).command is Command.ADOPT


def test_without_a_position_of_this_flow_it_says_what_to_do(flow: Flow) -> None:
    for stored in (None, Unreadable(Committed(4, "?"), "position_unreadable", "not JSON")):
        reason, detail = refused(flow, 5, replace(FACTS, stored=stored))
        assert (reason, "incident resolve ID --adopt" in detail) == (Objection.NO_POSITION, True)
        assert detail.endswith(f"The ID is shown by eos-replicate incident list --flow {flow.name} -c FILE")
    assert "not begun" in refused(flow, 5, replace(FACTS, stored=None, claim=None))[1]


def test_what_a_cluster_does_not_say_is_raised(flow: Flow) -> None:
    for fact in ("stored", "source_log", "target_log", "last"):
        with pytest.raises(TopicMissing):
            planned(flow, 5, replace(FACTS, **cast(Any, {fact: TopicMissing("gone")})))


def test_exported_positions_are_for_the_topics_that_they_were_exported_of(flow: Flow) -> None:
    assert planned(flow, 5, source_topic_id="S", target_topic_id="T").after == 5
    for key in ("source_topic_id", "target_topic_id"):
        assert refused(flow, 5, FACTS, **{key: "other"})[0] is Objection.OUTDATED


def test_other_deliveries_promise_nothing_of_the_end_of_the_target(flow: Flow) -> None:
    flow = flow.model_copy(update={"delivery": Delivery.AT_LEAST_ONCE})
    weak = replace(FACTS, stored=replace(POSITION, evidence=replace(EVIDENCE, delivery="at_least_once")))
    later = replace(weak, target_log=LogEnds("T", 0, 40, 40), last=EndRecords((25,), 40))
    assert planned(flow, 15, later).command is Command.SKIP
    assert planned(flow, 5, later).command is Command.ADOPT


def test_what_was_shown_and_is_not_so_any_more_is_named(flow: Flow) -> None:
    shown = planned(flow, 5)
    assert (
        planned(flow, 5, replace(FACTS, target_log=LogEnds("T", 0, 23, 23), last=EndRecords((19,), 23))).outdated(shown)
        == ""
    )
    moved = planned(flow, 5, replace(FACTS, stored=Position(11, EVIDENCE))).outdated(shown)
    assert moved == "the position was 10, is 11"
    covers = replace(EVIDENCE, next_target_offset=21)
    assert "covers on the target was 20, is 21" in planned(
        flow, 5, replace(FACTS, stored=Position(10, covers), last=EndRecords((20,), 21))
    ).outdated(shown)


def test_of_a_flow_that_is_taken_over_what_it_has_copied_since_is_expected(flow: Flow) -> None:
    moving = replace(FACTS, moving=True, fenced=False)
    gone_on = replace(EVIDENCE, next_target_offset=25)
    later = replace(FACTS, stored=Position(14, gone_on), target_log=LogEnds("T", 0, 26, 26), last=EndRecords((24,), 26))
    for to, command in ((5, Command.ADOPT), (12, Command.ADOPT), (14, None), (20, Command.SKIP)):
        now = planned(flow, to, later)
        assert (now.command, now.outdated(planned(flow, to, moving))) == (command, ""), to
        assert now.outdated(planned(flow, to)), "of a flow that stands still nothing is"
    shown = planned(flow, 5, moving)
    assert "position was 10, is 9" in planned(flow, 5, replace(FACTS, stored=Position(9, EVIDENCE))).outdated(shown)
    assert "decided of it was [], is ['x']" in planned(flow, 5, replace(later, decided=frozenset("x"))).outdated(shown)
    foreign = replace(later, last=EndRecords((24, 25), -1))
    assert "what becomes of it was skip, is adopt" in planned(flow, 20, foreign).outdated(planned(flow, 20, moving))


def test_what_a_worker_commits_while_it_is_asked_is_no_record_of_somebody_else(flow: Flow) -> None:
    raced = replace(FACTS, moving=True, fenced=False, last=EndRecords((19, 22), -1), target_log=LogEnds("T", 0, 23, 23))
    assert planned(flow, 15, raced).command is Command.ADOPT
    assert planned(flow, 15, replace(raced, covered=23)).command is Command.SKIP


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_what_the_target_has_behind_a_moving_position_is_looked_at_behind_the_fence(flow: Flow, delivery: str) -> None:
    flow = flow.model_copy(update={"delivery": Delivery(delivery)})
    shown = {AT: planned(flow, 5, replace(FACTS, moving=True, fenced=False))}
    gone_on = replace(EVIDENCE, next_target_offset=21, delivery=delivery)
    facts = replace(FACTS, stored=Position(11, gone_on), target_log=LogEnds("T", 0, 23, 23), last=EndRecords((20,), 23))
    now = {AT: planned(flow, 5, facts)}
    check_grown(shown, now, cast(ClusterQuestions, _Ends(EndRecords((), 23))))
    foreign = cast(ClusterQuestions, _Ends(EndRecords((22,), 23)))
    if delivery == "at_least_once":
        check_grown(shown, now, foreign)
        return
    with pytest.raises(NotDecided, match="record at offset 22"):
        check_grown(shown, now, foreign)


class _Ends:
    """A target that answers for what stands behind an offset."""

    def __init__(self, read: EndRecords) -> None:
        self._read = read

    def end_records(self, starts: object, ends: object) -> dict[Partition, EndRecords]:
        assert (starts, ends) == ({TO: 21}, {TO: 23})
        return {TO: self._read}


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (EndRecords((), 23), ""),
        (EndRecords((21,), 23), "record at offset 21"),
        (EndRecords((), 21), "open transaction"),
    ],
)
def test_markers_may_have_come_behind_what_was_shown_and_no_record(flow: Flow, read: EndRecords, said: str) -> None:
    shown = {AT: planned(flow, 5)}
    grown = replace(FACTS, target_log=LogEnds("T", 0, 23, 23), last=EndRecords((19,), 23))
    target = cast(ClusterQuestions, _Ends(read))
    if not said:
        check_grown(shown, {AT: planned(flow, 5, grown)}, target)
        return
    with pytest.raises(NotDecided, match=said):
        check_grown(shown, {AT: planned(flow, 5, grown)}, target)
