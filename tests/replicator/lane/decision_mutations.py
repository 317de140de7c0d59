"""Bugs that acting on decisions could have, planted as in `mutations`, and the tests here that find them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from replicator.lane import incident_report, start_decision
from replicator.lane.decisions import LaneDecisions
from replicator.lane.incident_report import IncidentReport
from replicator.lane.partition import Decided
from replicator.lane.partitions import Partitions
from replicator.lane.positions import LanePositions
from replicator.lane.start_decision import Facts, StartDecision
from replicator.lane.transaction import LaneTransactions
from replicator.model.commands import ONE_RECORD, Command
from tests.replicator.lane import test_decisions, test_deleted_topics, test_reports, test_truncated
from tests.replicator.lane.mutations import MUTATIONS, Patch, mutation
from tests.replicator.lane.test_truncated import at_the_position

ALL_MUTATIONS = MUTATIONS


@mutation(
    test_decisions.test_what_the_source_has_lost_is_skipped_at_the_next_start,
    test_decisions.test_a_running_lane_acts_within_about_a_second,
)
def never_act_on_a_decision(patch: Patch) -> None:
    patch.setattr(LaneDecisions, "due", lambda self: {})


@mutation(test_decisions.test_a_running_lane_acts_within_about_a_second)
def read_decisions_at_a_start_only(patch: Patch) -> None:
    patch.setattr(LaneDecisions, "look", lambda self: None)


@mutation(test_decisions.test_nothing_is_skipped_in_a_topic_that_was_made_again)
def move_a_position_without_asking_for_ids(patch: Patch) -> None:
    commit = LaneTransactions.commit_decision

    def hasty(self: Any, *arguments: Any) -> None:
        self.check_ids = lambda positions, concerned: None
        try:
            commit(self, *arguments)
        finally:
            del self.check_ids

    patch.setattr(LaneTransactions, "commit_decision", hasty)


@mutation(
    partial(
        test_decisions.test_killed_at_any_call_it_is_done_once,
        test_decisions.losing,
        Command.SKIP,
        test_decisions.skipped_gap,
    )
)
def close_an_occurrence_before_its_position_moves(patch: Patch) -> None:
    commit = LaneTransactions.commit_decision

    def apart(self: Any, positions: Any, at: Any, moved: Any, closed: Any) -> None:
        self._plane.commit({}, [closed.encode()])
        commit(self, positions, at, moved, closed)

    patch.setattr(LaneTransactions, "commit_decision", apart)


@mutation(
    partial(
        test_decisions.test_killed_at_any_call_it_is_done_once,
        test_decisions.with_aside,
        Command.SET_ASIDE,
        test_decisions.set_aside,
    )
)
def set_a_record_aside_in_a_transaction_of_its_own(patch: Patch) -> None:
    commit = LaneTransactions.commit_decision

    def apart(self: Any, *arguments: Any) -> None:
        self._plane.commit({})
        commit(self, *arguments)

    patch.setattr(LaneTransactions, "commit_decision", apart)


@mutation(
    test_decisions.test_the_position_moves_to_exactly_the_end_that_was_decided_and_what_is_lost_beyond_is_another_incident
)
def skip_more_than_was_decided(patch: Patch) -> None:
    skipped = LanePositions.skipped
    patch.setattr(LanePositions, "skipped", lambda self, at, end, now_ms: skipped(self, at, end + 1, now_ms))


@mutation(test_decisions.test_retry_judges_again_under_the_running_lane)
def keep_a_lasting_incident_after_a_decision(patch: Patch) -> None:
    apply = Partitions.apply
    patch.setattr(
        Partitions, "apply", lambda self, at, event: None if isinstance(event, Decided) else apply(self, at, event)
    )


@mutation(test_reports.test_a_refused_record_is_reported_until_it_is_copied)
def leave_what_a_record_has_caused_open(patch: Patch) -> None:
    patch.setattr(IncidentReport, "passed", lambda self, plan, before, offset, now_ms: [])


@mutation(test_decisions.test_retried_in_vain_it_is_another_one_and_the_decision_is_used_up)
def find_a_retried_incident_under_its_old_id(patch: Patch) -> None:
    patch.setattr(IncidentReport, "decided", lambda self, closed: self)


@mutation(partial(test_truncated.test_it_goes_on_at_the_cut_and_what_was_copied_behind_it_stays, at_the_position, 2))
def copy_on_over_a_cut_that_offsets_do_not_show(patch: Patch) -> None:
    def as_ever(plan: Any, route: Any, facts: Facts, now_ms: int) -> StartDecision:
        return start_decision._decided(plan, route, replace(facts, adopts=None, restarts=""), now_ms)

    patch.setattr(start_decision, "_cut", as_ever)


@mutation(test_truncated.test_what_only_reading_shows_is_the_same_incident_after_a_restart)
def close_at_a_start_what_only_reading_shows(patch: Patch) -> None:
    patch.setattr(incident_report, "READING_SHOWS", ONE_RECORD)


@mutation(partial(test_deleted_topics.test_one_that_went_before_the_start_is_told_at_once, "keep"))
def ask_again_for_a_topic_that_was_deleted(patch: Patch) -> None:
    patch.setattr(Partitions, "_not_asked", staticmethod(lambda partition: False))
