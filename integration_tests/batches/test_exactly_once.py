"""What `records` goes through in `integration_tests.exactly_once`, on `batches`: the same tests, but for requests that
the second transaction protocol doesn't have. Then what only a change of engines can go wrong in."""

from __future__ import annotations

import random

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.exactly_once import test_torture as torture
from integration_tests.exactly_once.test_kill_broker import (
    test_the_source_is_dead_until_its_partitions_are_asked_about,
    test_the_source_is_killed_under_a_running_worker,
    test_the_target_is_dead_until_its_partitions_are_asked_about,
    test_the_target_is_killed_inside_a_transaction,
    test_the_target_is_killed_under_a_running_worker,
    test_worker_and_target_die_together,
)
from integration_tests.exactly_once.test_kill_worker import (
    test_a_second_worker_takes_over_and_the_first_one_leaves,
    test_a_successor_does_not_wait_for_the_dead_one_s_transaction,
    test_a_worker_killed_at_any_step_loses_and_doubles_nothing,
    test_what_was_written_but_not_committed_is_written_again,
    test_workers_that_take_over_from_each_other_again_and_again,
)
from integration_tests.exactly_once.test_lost_messages import (
    LANE,
    LIMITS,
    test_a_commit_that_arrives_after_its_producer_was_given_up_ends_nothing,
    test_a_commit_whose_reply_is_late_is_one_commit,
    test_a_lost_commit_starts_over,
    test_all_connections_break_again_and_again,
)
from integration_tests.exactly_once.test_offset_map import (
    test_a_map_topic_that_is_gone_holds_up_nothing_and_the_map_begins_anew,
    test_a_zombie_leaves_nothing_in_the_map,
    test_more_and_fewer_lanes_go_on_with_the_same_map,
    test_the_map_is_whole_over_kills_and_restarts,
)
from integration_tests.exactly_once.test_truncation import (
    test_a_position_behind_an_aborted_tail_is_not_taken_for_truncation,
    test_a_running_worker_behind_an_aborted_tail_survives_a_restart_of_the_source,
    test_a_source_that_lost_copied_records_is_an_incident_of_that_partition,
)
from integration_tests.exactly_once.test_zombie import (
    test_a_worker_that_is_fenced_in_the_middle_of_writing_leaves_its_successor_alone,
    test_a_worker_that_wakes_up_after_its_successor_came_writes_nothing_more,
    test_a_worker_that_wakes_up_alone_goes_on,
)
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.proxy import Action, Proxy, Side

APIS = ("Produce", "TxnOffsetCommit", "EndTxn")
__all__ = [
    "test_a_commit_that_arrives_after_its_producer_was_given_up_ends_nothing",
    "test_a_commit_whose_reply_is_late_is_one_commit",
    "test_a_lost_commit_starts_over",
    "test_a_map_topic_that_is_gone_holds_up_nothing_and_the_map_begins_anew",
    "test_a_position_behind_an_aborted_tail_is_not_taken_for_truncation",
    "test_a_running_worker_behind_an_aborted_tail_survives_a_restart_of_the_source",
    "test_a_second_worker_takes_over_and_the_first_one_leaves",
    "test_a_source_that_lost_copied_records_is_an_incident_of_that_partition",
    "test_a_successor_does_not_wait_for_the_dead_one_s_transaction",
    "test_a_worker_killed_at_any_step_loses_and_doubles_nothing",
    "test_a_worker_that_is_fenced_in_the_middle_of_writing_leaves_its_successor_alone",
    "test_a_worker_that_wakes_up_after_its_successor_came_writes_nothing_more",
    "test_a_worker_that_wakes_up_alone_goes_on",
    "test_a_zombie_leaves_nothing_in_the_map",
    "test_all_connections_break_again_and_again",
    "test_more_and_fewer_lanes_go_on_with_the_same_map",
    "test_the_map_is_whole_over_kills_and_restarts",
    "test_the_source_is_dead_until_its_partitions_are_asked_about",
    "test_the_source_is_killed_under_a_running_worker",
    "test_the_target_is_dead_until_its_partitions_are_asked_about",
    "test_the_target_is_killed_inside_a_transaction",
    "test_the_target_is_killed_under_a_running_worker",
    "test_what_was_written_but_not_committed_is_written_again",
    "test_worker_and_target_die_together",
    "test_workers_that_take_over_from_each_other_again_and_again",
]


@pytest.mark.parametrize(
    ("action", "sides"),
    [
        pytest.param(Action.CUT, (Side.REQUEST, Side.REPLY), id="cut"),
        pytest.param(Action.DROP, (Side.REPLY,), id="drop"),
    ],
)
def test_any_other_message_is_lost(
    make_copying: MakeCopying, proxy: Proxy, action: Action, sides: tuple[Side, ...]
) -> None:
    copying = make_copying(via=proxy.bootstrap, limits=LIMITS)
    worker = copying.running()
    with copying.writing():
        for api in ("Produce", "TxnOffsetCommit"):
            for side in sides:
                mark = worker.mark()
                lost = proxy.rule(api, side, action, client=LANE)
                lost.wait_hit()
                worker.wait_event("committed", after=mark)
    copying.finish(worker)


@pytest.mark.parametrize("seed", [7, 8, 9])
def test_any_schedule_of_faults_loses_and_doubles_nothing(
    make_copying: MakeCopying, proxy: Proxy, target: BrokerHandle, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torture, "APIS", APIS)
    torture.test_any_schedule_of_faults_loses_and_doubles_nothing(make_copying, proxy, target, seed)


@pytest.mark.parametrize("killed", [False, True])
def test_a_flow_changes_its_engine_and_goes_on(make_copying: MakeCopying, killed: bool) -> None:
    """Each time the next worker reads the other one's positions, and its offset map goes on."""
    drawn, copying = random.Random(3), make_copying(engine="records")
    for engine in ("records", "batches", "records", "batches"):
        copying.file.write(engine=engine)
        copying.load.mixed(100)
        with copying.writing():
            worker = copying.run(f"{drawn.choice(('before_end_txn', 'after_end_txn'))}@2=kill" if killed else "")
            if killed:
                worker.wait_exit()
            else:
                worker.wait_event("committed")
                worker.stop()
        assert not worker.seen("incident"), worker.tail()
    copying.load.mixed(100)
    copying.finish(copying.running())
