"""Which flows are started again, and when the process leaves: the table, and the rules around it."""

from __future__ import annotations

import itertools

import pytest

from replicator.flow.restarts import BUG, TRANSITIONS, TYPOS, FlowEvent, Restarts, Stage, once, worst


def two() -> Restarts:
    return Restarts({"a": 10.0, "b": 20.0})


def alive(*names: str) -> Restarts:
    made = two()
    for name in names:
        made.lanes_started(name)
    return made


@pytest.mark.parametrize("code", [2, 3, 4])
def test_a_flow_that_ended_is_started_again_at_its_discovery_interval_while_another_is_alive(code: int) -> None:
    made = alive("a", "b")
    made.ended("a", code, 100.0)
    assert made.exit_code() is None
    assert made.next_due_s() == 110.0
    assert made.due(109.9) == []
    assert made.due(110.0) == ["a"]
    assert made.stage("a") is Stage.STARTING
    assert made.due(111.0) == [], "once"
    made.ended("a", code, 112.0)
    assert made.due(122.0) == ["a"]


@pytest.mark.parametrize("code", [0, 5])
def test_after_a_clean_stop_or_being_taken_over_a_flow_is_over(code: int) -> None:
    made = alive("a", "b")
    made.ended("a", code, 0.0)
    assert made.stage("a") is Stage.OVER
    assert made.due(1e9) == []


def test_a_flow_that_was_taken_over_is_named_each_discovery_interval_while_others_run() -> None:
    made = alive("a", "b")
    made.ended("a", 5, 100.0)
    assert (made.next_due_s(), made.reminders(109.9)) == (110.0, [])
    assert made.reminders(110.0) == ["a"]
    assert (made.next_due_s(), made.reminders(111.0)) == (120.0, [])
    assert made.due(1e9) == []
    made.ended("b", 0, 112.0)
    assert made.reminders(1e9) == []


def test_a_flow_that_was_asked_to_stop_is_not_named_again() -> None:
    made = alive("a", "b")
    made.ended("a", 0, 100.0)
    assert (made.next_due_s(), made.reminders(1e9)) == (None, [])


def test_a_stop_while_a_flow_starts_again_does_not_hide_how_it_has_ended() -> None:
    made = alive("a", "b")
    made.ended("a", 4, 0.0)
    made.due(10.0)
    made.stop()
    made.ended("a", 0, 10.5)
    made.ended("b", 0, 10.5)
    assert (made.codes, made.exit_code()) == ({"a": 4, "b": 0}, 4)
    ran = alive("a", "b")
    ran.ended("a", 4, 0.0)
    ran.due(10.0)
    ran.lanes_started("a")
    ran.stop()
    ran.ended("a", 0, 11.0)
    assert ran.codes["a"] == 0, "its lanes ran"


def test_a_stop_before_lanes_have_told_of_all_partitions_does_not_hide_how_their_flow_has_ended() -> None:
    made = alive("a", "b")
    made.ended("a", 4, 0.0)
    made.due(10.0)
    made.lanes_started("a")
    made.stop()
    made.ended("a", 0, 11.0, early=True)
    made.ended("b", 0, 11.0, early=True)
    assert (made.codes, made.exit_code()) == ({"a": 4, "b": 0}, 4)


def test_a_bug_stops_the_process() -> None:
    made = alive("a", "b")
    made.ended("a", 70, 0.0)
    assert made.stopping
    made.ended("b", 0, 1.0)
    assert made.exit_code() == 70


def test_when_none_is_alive_the_process_leaves_with_the_worst_code() -> None:
    made = alive("a", "b")
    made.ended("a", 3, 0.0)
    made.ended("b", 4, 1.0)
    assert made.next_due_s() is None
    assert made.due(1e9) == []
    assert made.exit_code() == 4


def test_a_flow_that_is_starting_is_waited_for_but_keeps_nobody_alive() -> None:
    made = two()
    made.ended("a", 3, 0.0)
    assert made.exit_code() is None
    assert made.due(1e9) == []
    made.lanes_started("b")
    assert made.due(1e9) == ["a"]


def test_nothing_is_started_again_once_the_process_was_asked_to_stop() -> None:
    made = alive("a", "b")
    made.ended("a", 4, 0.0)
    made.stop()
    assert made.next_due_s() is None
    assert made.due(1e9) == []
    made.ended("b", 0, 1.0)
    assert made.exit_code() == 4


def test_steps_outside_the_table_are_refused() -> None:
    for stage, event in itertools.product(Stage, FlowEvent):
        assert ((stage, event) in TRANSITIONS) == (
            (stage in (Stage.STARTING, Stage.RUNNING) and event in (FlowEvent.ENDED_PASSING, FlowEvent.ENDED_FOR_GOOD))
            or (stage is Stage.STARTING and event is FlowEvent.LANES_STARTED)
            or (stage is Stage.ENDED and event is FlowEvent.DUE)
            or event is FlowEvent.REPLACED
        )
    made = alive("a")
    made.ended("a", 5, 0.0)
    with pytest.raises(KeyError):
        made.lanes_started("a")


def test_the_worst_code_is_the_one_to_see_first() -> None:
    assert worst([]) == 0
    assert worst([0, 2, 3]) == 3
    assert worst([5, 3, 4]) == 4
    assert worst([4, 70, 5]) == 70


def test_a_flow_that_is_replaced_follows_itself_and_keeps_the_process_alive() -> None:
    made = alive("a")
    assert made.ended("b", 5, 1.0) is False
    assert made.replace("b", 5.0), "it has ended: it can be started at once"
    made.lanes_started("b")
    assert not made.replace("a", 3.0), "it has to be stopped before"
    assert made.exit_code() is None
    assert made.ended("a", 4, 2.0), "started again at once, whatever its end was"
    assert made.stage("a") is Stage.STARTING
    assert made.codes == {"a": 0, "b": 0}


def test_a_flow_that_is_removed_leaves_nothing_behind() -> None:
    made = alive("a", "b")
    made.ended("b", 4, 1.0)
    assert not made.remove("b"), "nothing of it runs"
    assert made.stages() == {"a": Stage.RUNNING}
    assert made.add("c", 1.0)
    made.lanes_started("c")
    assert made.remove("a")
    made.ended("a", 4, 2.0)
    assert made.codes == {"c": 0}
    assert made.add("a", 1.0), "it may come back"


@pytest.mark.parametrize("then", ["replace", "remove"])
def test_a_stop_and_a_bug_come_before_what_the_file_says(then: str) -> None:
    for stop, code in ((True, 4), (False, BUG)):
        made = alive("a", "b")
        if then == "replace":
            made.replace("a", 1.0)
        else:
            made.remove("a")
        if stop:
            made.stop()
        assert not made.ended("a", code, 1.0)
        assert made.stopping
        made.ended("b", 0, 1.0)
        assert made.exit_code() == code


def reloaded(*, alone: bool = True) -> Restarts:
    """Flows of which a has run, and is started anew with what its file has now."""
    made = Restarts({"a": 10.0} if alone else {"a": 10.0, "b": 20.0})
    made.lanes_started("a")
    assert not made.replace("a", 10.0)
    assert made.ended("a", 0, 100.0)
    return made


@pytest.mark.parametrize("code", sorted(TYPOS))
def test_what_a_reload_has_started_is_tried_again_until_it_runs_if_nothing_else_does(code: int) -> None:
    made = reloaded()
    for now_s in (110.0, 120.0):
        assert made.waits("a", code)
        assert not made.ended("a", code, now_s)
        assert (made.exit_code(), made.stage("a"), made.next_due_s()) == (None, Stage.ENDED, now_s + 10.0)
        assert made.due(now_s + 10.0) == ["a"]
    made.lanes_started("a")
    assert not made.waits("a", code)
    made.ended("a", code, 200.0)
    assert made.exit_code() == code, "its settings were right: what ends it now ends the process, as ever"


def test_what_waits_for_an_operator_keeps_the_others_going() -> None:
    """It is failed over, say: it tells that it is alive, though no lane has started."""
    flows = Restarts({"frozen": 1.0, "other": 1.0})
    flows.ended("other", 3, 10.0)
    assert flows.next_due_s() is None, "one that starts may end the same way: the process must come to an end"
    flows.lanes_started("frozen")
    assert flows.next_due_s() == 11.0
    assert flows.due(11.0) == ["other"]


def test_a_call_that_is_made_once() -> None:
    made: list[int] = []
    call = once(lambda: made.append(1))
    call()
    call()
    assert made == [1]


def test_a_flow_that_waits_for_another_file_is_started_at_once_when_that_comes() -> None:
    made = reloaded()
    made.ended("a", 3, 110.0)
    assert made.replace("a", 5.0)
    made.ended("a", 3, 111.0)
    assert (made.exit_code(), made.next_due_s()) == (None, 116.0)


@pytest.mark.parametrize("code", [0, 4, 5, BUG])
def test_what_is_no_typo_ends_the_process_after_a_reload_as_at_a_start(code: int) -> None:
    made = reloaded()
    assert not made.waits("a", code)
    made.ended("a", code, 110.0)
    assert made.exit_code() == code


def test_a_process_that_waits_for_another_file_ends_when_it_is_asked_to() -> None:
    made = reloaded()
    made.ended("a", 3, 110.0)
    made.stop()
    assert (made.exit_code(), made.due(1e9), made.next_due_s()) == (3, [], None)


def test_while_one_waits_for_another_file_others_are_started_again_too() -> None:
    made = reloaded(alone=False)
    made.lanes_started("b")
    made.ended("a", 3, 110.0)
    made.ended("b", 3, 111.0)
    assert made.exit_code() is None
    assert made.due(131.0) == ["a", "b"]


def test_a_flow_that_a_reload_has_added_is_on_trial_too_and_gone_when_it_is_removed() -> None:
    made = Restarts({"a": 10.0})
    made.lanes_started("a")
    assert made.add("b", 10.0)
    made.ended("b", 3, 100.0)
    made.ended("a", 0, 101.0)
    assert made.exit_code() is None
    assert not made.remove("b")
    assert made.exit_code() == 0
