"""Which tests wait for `make test-long`, by broker. Used by `conftest`.

But for a few of Spark, each test runs in `make test` on the embedded broker or on real Kafka, most on both. To restart
a container takes 20 seconds, and what another crash point of the same kind would show on Kafka was shown already by
the embedded broker.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

EVERYWHERE = (
    "exactly_once/test_delivery_modes.py::test_after_a_switch_*clean stop]",
    "exactly_once/test_delivery_modes.py::test_at_*_a_crash*-before_flush]",
    "exactly_once/test_delivery_modes.py::test_at_*_a_crash*-before_offsets]",
)
"""Parameters that `make test` leaves out on both brokers: others of the same test run there."""
ON_KAFKA = (
    "clients/test_families.py::*",
    "contract/test_kill.py::test_a_transaction_that_was_open_goes_on_after_a_kill*",
    "contract/test_kill.py::test_an_idempotent_producer_goes_on_without_loss_or_double*",
    "contract/test_log_evidence.py::test_markers_that_compaction_took_are_holes_too*",
    "exactly_once/test_backfill.py::test_a_backfill_that_died_is_begun_again_and_a_daemon_waits_for_it*",
    "exactly_once/test_backfill.py::test_a_stop_leaves_every_partition_claimed_where_it_would_have_begun*",
    "exactly_once/test_backfill.py::test_a_topic_that_goes_while_it_is_copied_is_named*",
    "exactly_once/test_backfill.py::test_positions_of_partitions_that_are_done_are_kept*",
    "exactly_once/test_delivery_modes.py::test_at_*_a_crash*-before_send]",
    "exactly_once/test_delivery_modes.py::test_at_*_a_crash*-claimed]",
    "exactly_once/test_disk_full.py::*",
    "exactly_once/test_kill_broker.py::test_the_target_is_killed_inside_a_transaction*",
    "exactly_once/test_kill_broker.py::test_worker_and_target_die_together*",
    "exactly_once/test_kill_worker.py::test_a_worker_killed_at_any_step_*-before_flush]",
    "exactly_once/test_kill_worker.py::test_a_worker_killed_at_any_step_*-before_send]",
    "exactly_once/test_kill_worker.py::test_a_worker_killed_at_any_step_*-fenced]",
    "exactly_once/test_kill_worker.py::test_a_worker_killed_at_any_step_*-mid_batch]",
    "exactly_once/test_lane_changes.py::test_the_process_that_changed_the_lanes_is_killed*-before_end_txn]",
    "exactly_once/test_lane_changes.py::test_the_process_that_changed_the_lanes_is_killed*-claimed]",
    "exactly_once/test_lane_changes.py::test_the_process_that_changed_the_lanes_is_killed*-fenced]",
    "exactly_once/test_lost_messages.py::test_a_lost_commit_starts_over*DROP]",
    "exactly_once/test_lost_messages.py::test_any_other_message_of_a_transaction_is_lost*-drop]",
    "exactly_once/test_positions_kept.py::test_a_successor_that_was_fenced_before_its_claim_*",
    "exactly_once/test_repair.py::test_killed_anywhere_*",
    "exactly_once/test_rounds.py::test_start_latest_*",
    "exactly_once/test_stop_in_trouble.py::test_a_cluster_is_down_at_the_start*",
    "exactly_once/test_stop_in_trouble.py::test_a_transaction_that_was_given_up_is_told*",
    "exactly_once/test_stop_in_trouble.py::test_the_source_is_down*",
    "exactly_once/test_stop_in_trouble.py::test_the_target_is_down*in a restart]",
    "exactly_once/test_stop_in_trouble.py::test_the_target_is_down_and_topics_are_being_listed*",
    "exactly_once/test_torture.py::*",
    "exactly_once/test_truncation.py::test_a_commit_that_came_under_a_later_epoch_*",
    "exactly_once/test_truncation.py::test_a_position_behind_an_aborted_tail_*of its own]",
    "exactly_once/test_truncation.py::test_a_running_worker_behind_an_aborted_tail_*",
    "exactly_once/test_truncation.py::test_a_source_that_lost_copied_records_*worker down*",
    "exactly_once/test_truncation.py::test_a_worker_that_began_behind_an_aborted_tail_*",
    "exactly_once/test_zombie.py::test_a_worker_that_is_fenced_in_the_middle_of_writing_*",
    "partitions/test_lane_start.py::test_two_workers_that_start_slowly_*",
    "partitions/test_source_records_gone.py::test_deleted_while_no_worker_runs*",
    "partitions/test_stop_in_time.py::test_the_source_is_away*at once*",
    "partitions/test_stop_in_time.py::test_the_source_is_away*killed]",
    "partitions/test_stop_in_time.py::test_the_source_is_away_and_a_lane_starts_again*",
    "partitions/test_stop_in_time.py::test_the_target_is_away*idle*",
    "partitions/test_stop_in_time.py::test_the_target_is_away*suspended]",
    "partitions/test_target_topics.py::test_while_no_worker_runs*deleted]",
)
ON_EMBEDDED = (
    "exactly_once/test_changes.py::*",
    "exactly_once/test_hanging_transaction.py::*",
    "exactly_once/test_incidents.py::*",
    "exactly_once/test_lane_changes.py::*",
    "exactly_once/test_open_at_the_target.py::*",
    "exactly_once/test_positions_kept.py::*",
    "exactly_once/test_repair.py::*",
    "exactly_once/test_two_flows.py::*",
    "exactly_once/test_zombie.py::*",
)
"""What `make test` shows on real Kafka: it concerns the replicator, and hardly the broker."""
SPARK_ON_KAFKA = (
    "spark/test_backfill.py::test_live_and_backfill_take_turns_while_the_source_is_written*",
    "spark/test_reconcile.py::test_a_real_flow_agrees_and_so_it_does_while_it_runs*",
)
"""What Spark does is the same on both brokers but for what these two show: real fetches, positions and transactions.
In `make test` they run on real Kafka only, the other tests of Spark on the embedded broker only."""
SPARK_LONG = (
    "spark/test_backfill.py::test_a_flow_stays_on_spark_and_goes_anywhere*",
    "spark/test_cluster.py::test_a_cluster_without_room_*",
    "spark/test_cluster.py::test_damage_is_found_*",
    "spark/test_cluster.py::test_secrets_go_*",
    "spark/test_cluster.py::test_what_executors_lack_*",
    "spark/test_compaction.py::test_what_compaction_removed_from_the_source*",
    "spark/test_compaction.py::test_where_fewer_offsets_are_empty*",
    "spark/test_report.py::test_a_clean_run_*",
    "spark/test_report.py::test_compaction_*",
    "spark/test_report.py::test_values_are_left_out_*",
    "spark/test_reconcile.py::test_only_a_window_of_time*",
    "spark/test_reconcile.py::test_the_other_passes_agree_with_it*",
    "spark/test_reconcile.py::test_what_is_missing_is_planned_and_copied_again*",
)


def is_long(test: str, kind: str) -> bool:
    """Whether `test`, by its id from `integration_tests/` on, waits for `make test-long` when it runs on `kind`."""
    if test.startswith("spark/") and kind:
        return _among(test, SPARK_LONG) or (kind == "kafka") is not _among(test, SPARK_ON_KAFKA)
    if _among(test, EVERYWHERE):
        return True
    only_here = _among(test, ON_KAFKA)
    return only_here if kind == "kafka" else _among(test, ON_EMBEDDED) and not only_here


def _among(test: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(test.replace("[", "("), pattern.replace("[", "(")) for pattern in patterns)
