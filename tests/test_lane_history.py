"""The oracle of schedules in which workers share a flow: it finds lanes that were nobody's, and duels."""

from __future__ import annotations

from integration_tests.harness.lane_history import Began, Gone, LaneHistory


def test_a_lane_is_nobodys_until_somebody_else_begins_it() -> None:
    began = [Began(1, 1, 0, 0), Began(1, 1, 1, 0), Began(5, 1, 1, 1), Began(14, 1, 0, 1)]
    history = LaneHistory(began, [Gone(10, 0)], [2, 9, 10, 12])
    assert list(history.orphaned()) == [(4, 1, "lane 0 of generation 1, held by 0")], "lane 1 was another's before"
    history.session_s = 2
    assert [others for _, others, _ in history.orphaned()] == [2], "a rebalance may have been under way"


def test_who_stands_still_has_its_lanes_again() -> None:
    history = LaneHistory([Began(1, 1, 0, 0)], [Gone(2, 0, 5)], [2])
    assert [found[:2] for found in history.orphaned()] == [(3, 0)]
    assert not list(LaneHistory([Began(1, 1, 0, 0)], [Gone(2, 0)]).orphaned()), "nobody was there any more"


def test_another_generation_ends_all_lanes_of_the_one_before() -> None:
    began = [Began(1, 1, 3, 0), Began(6, 2, 0, 1)]
    assert [found[:2] for found in LaneHistory(began, [Gone(4, 0)], []).orphaned()] == [(2, 0)]


def test_a_duel_is_counted_for_each_lane_of_each_generation() -> None:
    began = [Began(at, 1, 0, at % 2) for at in range(1, 8)] + [Began(9, 1, 1, 0), Began(10, 2, 0, 0)]
    assert LaneHistory(began, [], [0.5, 3, 9.5, 11]).taken_over() == {(1, 0): (6, 2), (1, 1): (0, 2), (2, 0): (0, 1)}


def test_what_the_target_was_away_does_not_count() -> None:
    began = [Began(1, 1, 0, 0), Began(70, 1, 0, 1)]
    history = LaneHistory(began, [Gone(10, 0)], [], away_s=[(5, 12), (20, 50), (69, 90)])
    assert [found[:2] for found in history.orphaned()] == [(60 - 2 - 30 - 1, 0)]
