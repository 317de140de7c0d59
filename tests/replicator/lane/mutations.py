"""Bugs that a lane could have, planted by exchanging one function each, and the tests here that find them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from replicator.lane import facts, target_check, transaction
from replicator.lane.driver import LaneDriver
from replicator.lane.facts import FactReader
from replicator.lane.origin_check import OriginCheck
from replicator.lane.own_transactions import OPEN
from replicator.lane.partition import Commits, LanePartition, Waiting
from replicator.lane.partitions import Partitions
from replicator.lane.policy import LivePolicy
from replicator.lane.positions import LanePositions
from replicator.lane.readiness import TargetReadiness
from replicator.lane.reports import Reports
from replicator.lane.session import ProducerSession
from replicator.lane.start import LaneStart
from replicator.lane.transaction import CommitKind, LaneTransactions
from replicator.model.errors import Abortable, Incident, UnknownOutcome
from replicator.model.partition import Partition
from replicator.planes.contract import Copied, Flushed
from tests.replicator.lane import (
    test_between_transactions,
    test_driver,
    test_kept_alive,
    test_lane,
    test_origin_check,
    test_own_transactions,
    test_readiness,
    test_reports,
    test_session,
    test_start,
    test_transaction,
)
from tests.replicator.lane.fakes.blocks_of import digest_of
from tests.replicator.lane.fakes.loads import A, filled, held, numbered
from tests.replicator.lane.fakes.world import World

Patch = pytest.MonkeyPatch
Finder = Callable[[], None]


@dataclass(frozen=True)
class Mutation:
    """A bug: `plant` installs it, and each of `finders` fails with it."""

    plant: Callable[[Patch], None]
    finders: tuple[Finder, ...]

    @property
    def name(self) -> str:
        """What the bug is."""
        return self.plant.__name__

    def assert_found(self, patch: Patch, failures: type[BaseException] | tuple[type[BaseException], ...]) -> None:
        """Each finder passes, and fails by one of `failures` once the bug is there: not by an accident of its code."""
        for finder in self.finders:
            finder()
        self.plant(patch)
        for finder in self.finders:
            with pytest.raises(failures):
                finder()


MUTATIONS: list[Mutation] = []


def mutation(*finders: Finder) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    """Put a bug on the list."""

    def take(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
        MUTATIONS.append(Mutation(plant, finders))
        return plant

    return take


@mutation(test_lane.test_nothing_of_a_topic_that_was_made_again_goes_under_the_old_position)
def skip_the_check_of_topic_ids(patch: Patch) -> None:
    patch.setattr(transaction, "check_ids", lambda entries, here, there: None)


@mutation(
    test_transaction.test_a_topic_that_is_another_one_at_a_clean_stop_is_an_incident_and_its_position_is_released_as_it_stands,
    test_transaction.test_positions_that_move_past_markers_ask_for_ids_first,
    test_transaction.test_a_keep_alive_commits_nothing_of_a_topic_that_is_another_one_and_everything_else,
)
def ask_for_topic_ids_with_records_only(patch: Patch) -> None:
    patch.setattr(LaneTransactions, "check_ids", lambda self, positions, concerned: None)


@mutation(test_between_transactions.test_records_of_somebody_else_between_two_transactions_stop_their_partition)
def drop_the_check_between_transactions(patch: Patch) -> None:
    patch.setattr(transaction, "check_between", lambda entries, copied, target: None)


@mutation(test_reports.test_a_foreign_record_is_reported_with_the_first_commit_of_the_lane)
def compare_no_target_with_its_position(patch: Patch) -> None:
    patch.setattr(LaneStart, "check_target", lambda self, partitions, known=None: None)


@mutation(
    test_own_transactions.test_a_late_batch_of_the_predecessor_is_aborted_at_the_start,
    test_own_transactions.test_a_lost_marker_is_committed_at_the_next_start,
)
def leave_transactions_of_its_own_open(patch: Patch) -> None:
    patch.setattr(LaneStart, "_end_own", lambda self, found: found)


@mutation(test_own_transactions.test_a_late_batch_between_two_transactions_is_never_committed)
def commit_over_what_is_open(patch: Patch) -> None:
    compare = target_check._compare_between

    def lenient(*arguments: Any) -> None:
        try:
            compare(*arguments)
        except Incident as incident:
            if incident.name != OPEN:
                raise

    patch.setattr(target_check, "_compare_between", lenient)


def _records_that_the_target_takes_late_are_copied() -> None:
    world = World(idle_s_max=60.0)
    filled(world)
    log = world.target.log(Partition("t.copy", 0))

    def ready() -> None:
        log.not_ready = ""

    def strike() -> None:
        log.not_ready = "no leader"
        world.source.log(A).put(*numbered("more", 5))
        world.on.append(("plane.flush", lambda: world.on.append(("plane.stalled", ready))))

    world.on.append(("plane.seek", lambda: world.on.append(("plane.poll", strike))))
    assert world.run() is None
    world.check_exact(held(world))
    assert world.position(A) == 13


@mutation(
    test_lane.test_one_refused_record_stops_its_partition_before_it_and_no_other,
    _records_that_the_target_takes_late_are_copied,
)
def commit_without_flush(patch: Patch) -> None:
    commit = LaneTransactions.commit

    def hasty(self: Any, kind: CommitKind, positions: Any, collected: Any = None) -> Any:
        flush = self._plane.flush
        self._plane.flush = lambda: _taken_for_acknowledged(self._plane)
        try:
            return commit(self, kind, positions, collected)
        finally:
            self._plane.flush = flush

    patch.setattr(LaneTransactions, "commit", hasty)


def _taken_for_acknowledged(plane: Any) -> Flushed:
    """What was written, wherever it has got to: nothing is waited for, and no acknowledgement is looked at."""
    copied: dict[Partition, Copied] = {}
    for at, run in plane._runs.items():
        first, count = plane._target.log(plane._routes[at]).end - len(run.targets), len(run.offsets)
        digest = digest_of(plane._digests[at], run.values)
        copied[at] = Copied(run.offsets[-1] + 1, run.epoch, count, count, digest, first, first + count)
    return Flushed(copied, plane.written())


def _everything_is_copied_after_an_abort() -> None:
    world = World()
    records = filled(world)

    def fail() -> None:
        raise Abortable("a broker is away")

    world.on.append(("plane.flush", fail))
    assert world.run() is None
    world.check_exact(records)
    assert world.position(A) == 8


@mutation(
    _everything_is_copied_after_an_abort,
    partial(test_session.test_after_an_abort_the_source_is_sought_before_the_next_poll, "plane.flush", 1),
)
def read_on_after_an_abort(patch: Patch) -> None:
    abort = ProducerSession._abort

    def forgetful(self: Any, error: Any) -> None:
        anew = self._partitions.read_anew
        abort(self, error)
        self._partitions.read_anew = anew

    patch.setattr(ProducerSession, "_abort", forgetful)


@mutation(test_lane.test_everything_is_copied_once_and_released)
def seek_behind_the_position(patch: Patch) -> None:
    seeks = LanePositions.seeks

    def wrong(self: Any) -> Any:
        return {at: seek._replace(offset=seek.offset + 1) for at, seek in seeks(self).items()}

    patch.setattr(LanePositions, "seeks", wrong)


@mutation(_everything_is_copied_after_an_abort)
def seek_before_the_position(patch: Patch) -> None:
    seeks = LanePositions.seeks

    def wrong(self: Any) -> Any:
        return {at: seek._replace(offset=max(0, seek.offset - 1)) for at, seek in seeks(self).items()}

    patch.setattr(LanePositions, "seeks", wrong)
    patch.setattr(LivePolicy, "on_committed", lambda self, copied, ends: True)


@mutation(test_lane.test_a_missing_right_makes_its_topic_wait_and_is_noticed_when_it_is_back)
def ignore_failed_partitions(patch: Patch) -> None:
    collect = LaneTransactions.collect

    def blind(self: Any, positions: Any) -> Any:
        collected = collect(self, positions)
        collected.failed = {}
        return collected

    patch.setattr(LaneTransactions, "collect", blind)


@mutation(
    test_transaction.test_each_transaction_asks_for_ids_after_its_last_fetch_and_before_its_end,
    test_transaction.test_a_cluster_that_does_not_answer_at_a_clean_stop_keeps_no_position_from_being_released,
)
def release_without_positions(patch: Patch) -> None:
    patch.setattr(ProducerSession, "release", lambda self: None)


@mutation(test_origin_check.test_what_is_learned_later_is_written_into_the_claims_once)
def renew_no_claim(patch: Patch) -> None:
    patch.setattr(OriginCheck, "renewed", lambda self, partition: None)


@mutation(test_origin_check.test_a_flow_that_claims_later_is_found_before_its_first_record_is_committed)
def commit_first_records_without_asking_where_they_come_from(patch: Patch) -> None:
    patch.setattr(OriginCheck, "before_commit", lambda self, copied: ({}, []))


@mutation(test_lane.test_an_expired_position_and_another_target_topic_are_told_by_the_claim)
def commit_first_positions_without_their_claims(patch: Patch) -> None:
    patch.setattr(LanePartition, "claim", property(lambda self: None))


@mutation(test_lane.test_an_idle_lane_notices_its_successor)
def overlook_a_successor(patch: Patch) -> None:
    patch.setattr(facts, "check_owners", lambda plan, known, found: None)


@mutation(test_kept_alive.test_a_stopped_partition_is_kept_again_once_the_right_is_back)
def keep_only_positions_of_copied_partitions_alive(patch: Patch) -> None:
    recommits = LanePositions.recommits

    def only_copied(self: Any, now_ms: int, owner: str | None = None) -> Any:
        copied = {entry.route.target for entry in self.copying.values()}
        return {target: found for target, found in recommits(self, now_ms, owner).items() if target in copied}

    patch.setattr(LanePositions, "recommits", only_copied)


@mutation(test_kept_alive.test_a_position_is_kept_once_read_is_back_though_write_is_not)
def keep_no_position_whose_right_is_back(patch: Patch) -> None:
    patch.setattr(LaneStart, "before_all", lambda self, positions: None)


@mutation(test_readiness.test_one_that_goes_away_between_transactions_is_left_out_of_the_next)
def copy_partitions_that_wait(patch: Patch) -> None:
    copied: Callable[[LanePartition], bool] = LanePartition.copied.fget  # type: ignore[attr-defined]

    def waiting_too(self: LanePartition) -> bool:
        return copied(self) or (isinstance(self.state, Waiting) and self.commits is Commits.YES)

    patch.setattr(LanePartition, "copied", property(waiting_too))


@mutation(test_lane.test_nothing_is_committed_to_a_topic_that_turns_to_its_own_timestamps)
def take_no_notice_of_other_timestamps(patch: Patch) -> None:
    patch.setattr(LaneTransactions, "_check_timestamps", lambda self, positions, restamped, undone: None)


def _a_commit_whose_answer_was_lost_doubles_nothing() -> None:
    world = World()
    records = filled(world)

    def lose() -> None:
        raise UnknownOutcome("the answer was lost")

    world.on.append(("step.before_end_txn", lambda: world.on.append(("plane.end_answered", lose))))
    assert world.run() is None
    world.check_exact(records)
    assert world.position(A) == 8


@mutation(test_session.test_transactions_that_fail_again_and_again_are_tried_ever_more_slowly)
def try_again_at_once(patch: Patch) -> None:
    patch.setattr(ProducerSession, "_abort_and_wait", ProducerSession._abort)


@mutation(test_driver.test_a_lane_that_is_given_other_routes_starts_over_with_them_and_doubles_nothing)
def start_over_with_the_old_routes(patch: Patch) -> None:
    patch.setattr(LaneDriver, "reassign", lambda self, plan: self._pause.set())


@mutation(test_driver.test_before_its_first_start_a_lane_tries_as_long_as_a_cluster_may_take_to_answer)
def give_up_at_the_first_failure(patch: Patch) -> None:
    patch.setattr(LaneDriver, "_gives_up", lambda self, error: True)


@mutation(test_start.test_what_kept_one_back_is_asked_about_again_until_it_has_gone)
def never_ask_again_about_what_waits(patch: Patch) -> None:
    patch.setattr(Partitions, "due", lambda self: [])


@mutation(
    _a_commit_whose_answer_was_lost_doubles_nothing,
    test_session.test_an_unknown_outcome_ends_the_session_and_nothing_is_sent_by_its_producer_again,
)
def go_on_after_an_unknown_outcome(patch: Patch) -> None:
    commit = LaneTransactions.commit

    def hopeful(self: Any, kind: CommitKind, positions: Any, collected: Any = None) -> Any:
        try:
            return commit(self, kind, positions, collected)
        except UnknownOutcome as error:
            raise Abortable(str(error)) from error

    patch.setattr(LaneTransactions, "commit", hopeful)


@mutation(test_lane.test_one_refused_record_stops_its_partition_before_it_and_no_other)
def forget_what_stopped_a_partition(patch: Patch) -> None:
    patch.setattr(LaneStart, "stop", lambda self, at, incident, lasting=False: None)


@mutation(test_readiness.test_it_gets_no_record_and_the_others_go_on)
def write_where_there_is_no_leader(patch: Patch) -> None:
    patch.setattr(TargetReadiness, "keep_out", lambda self, partitions, now=False: {})


@mutation(test_reports.test_one_whose_cause_has_gone_is_closed_when_its_partition_is_admitted)
def never_close_a_report(patch: Patch) -> None:
    entries = Reports.entries
    patch.setattr(Reports, "entries", lambda self, plan, admitted, now_ms: entries(self, plan, (), now_ms))


@mutation(test_lane.test_a_record_that_is_committed_while_the_start_is_looked_up_is_copied)
def take_the_end_after_the_offset_of_the_time(patch: Patch) -> None:
    starts = FactReader._starts

    def late(self: Any, fresh: Any, source: Any) -> Any:
        found = starts(self, fresh, source)
        again = self._to.source.log_ends(fresh)
        return {at: again[at].stable if found.get(at) == source[at].stable else found[at] for at in found}

    patch.setattr(FactReader, "_starts", late)
