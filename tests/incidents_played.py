"""Where each kind of incident is played: provoked, done what docs/operate/incidents.md says, and the flow goes on."""

from __future__ import annotations

RESOLVE = "integration_tests/test_incident_resolve.py"
PLAYED_IN = "integration_tests/test_incidents_played.py"
CAUSES = "integration_tests/test_causes_removed.py"
REBUILD = "integration_tests/test_rebuild_control.py"
PROOF = "integration_tests/proof/test_repair.py"
REPAIR = "integration_tests/exactly_once/test_repair.py"
ON_SPARK = "integration_tests/spark/test_refusals_played.py"

PLAYED: dict[str, str] = {
    "source_records_gone": f"{RESOLVE}"
    "::test_what_the_source_has_lost_is_skipped_while_the_flow_runs_and_while_it_does_not",
    "source_truncated": f"{PLAYED_IN}::test_a_source_whose_log_was_cut_is_copied_on_from_there",
    "source_topic_deleted": f"{CAUSES}::test_topics_go_on_once_they_or_the_flow_file_were_corrected",
    "source_topic_recreated": f"{RESOLVE}::test_a_source_topic_that_was_created_again_is_copied_from_its_beginning",
    "source_cluster_changed": f"{CAUSES}::test_a_flow_goes_on_once_it_leads_where_it_did",
    "source_topic_changed": f"{CAUSES}::test_a_flow_goes_on_once_it_leads_where_it_did",
    "source_corrupt": f"{PLAYED_IN}::test_a_damaged_batch_of_the_source_is_judged_again_once_it_is_sound",
    "source_partitions_added": f"{CAUSES}::test_topics_go_on_once_they_or_the_flow_file_were_corrected",
    "unknown_source_topic": f"{CAUSES}::test_topics_go_on_once_they_or_the_flow_file_were_corrected",
    "target_topic_deleted": f"{CAUSES}::test_topics_go_on_once_they_or_the_flow_file_were_corrected",
    "target_topic_recreated": f"{RESOLVE}::test_a_target_topic_that_was_created_again_is_filled_from_the_beginning",
    "target_topic_too_small": f"{CAUSES}::test_topics_go_on_once_they_or_the_flow_file_were_corrected",
    "target_rewrites_timestamps": f"{CAUSES}::test_topics_go_on_once_they_or_the_flow_file_were_corrected",
    "target_timestamp_bounds": f"{PLAYED_IN}::test_a_record_that_cannot_be_copied_is_set_aside_or_the_target_takes_it",
    "target_lost_data": f"{PLAYED_IN}::test_records_that_the_target_has_lost_are_copied_again",
    "target_not_empty": f"{RESOLVE}::test_what_another_program_has_copied_is_adopted_by_a_new_flow",
    "target_has_later_records": "integration_tests/test_position_set.py"
    "::test_records_of_somebody_else_are_adopted_and_the_flow_goes_on",
    "target_transaction_open": f"{PLAYED_IN}"
    "::test_a_transaction_of_somebody_else_ends_and_the_partition_is_judged_again",
    "target_records_hidden": f"{PLAYED_IN}::test_records_that_an_abort_has_hidden_are_copied_again",
    "record_too_large": f"{PLAYED_IN}::test_a_record_that_cannot_be_copied_is_set_aside_or_the_target_takes_it",
    "record_refused": f"{RESOLVE}::test_a_refused_record_is_skipped_or_tried_again",
    "header_not_carriable": f"{PLAYED_IN}::test_a_record_that_cannot_be_copied_is_set_aside_or_the_target_takes_it",
    "timestamp_not_carriable": f"{PLAYED_IN}::test_a_record_that_cannot_be_copied_is_set_aside_or_the_target_takes_it",
    "position_expired": f"{RESOLVE}::test_a_position_that_has_expired_is_given_anew_and_what_follows_is_copied_once",
    "position_unreadable": "integration_tests/partitions/test_stray_commits.py"
    "::test_a_position_that_was_reset_while_no_worker_ran_is_adopted_and_the_flow_goes_on",
    "position_newer_than_control": f"{REBUILD}::test_records_of_it_were_lost",
    "control_topic_lost": f"{REBUILD}::test_the_topic_is_deleted_under_a_running_flow_and_made_anew",
    "control_topic_behind": f"{REBUILD}::test_records_of_it_are_lost_under_a_running_flow",
    "control_topic_unreadable": f"{REBUILD}::test_one_that_somebody_else_made_is_used_or_has_to_go",
    "control_topic_unfit": f"{CAUSES}::test_configs_of_the_flows_own_topics_are_corrected",
    "claims_topic_lost": f"{CAUSES}::test_a_flow_that_lost_its_own_topics_is_copied_by_one_of_another_name",
    "claims_topic_unreadable": f"{CAUSES}::test_a_flow_that_lost_its_own_topics_is_copied_by_one_of_another_name",
    "map_topic_unfit": f"{CAUSES}::test_configs_of_the_flows_own_topics_are_corrected",
    "lanes_topic_unfit": f"{CAUSES}::test_a_lanes_topic_that_somebody_grew_is_deleted",
    "foreign_group_member": f"{CAUSES}::test_a_consumer_in_the_group_of_the_workers_is_stopped",
    "flows_in_conflict": "integration_tests/exactly_once/test_two_flows.py"
    "::test_a_topic_that_appears_in_two_flows_is_copied_by_the_first_only",
    "target_topic_name_invalid": f"{CAUSES}::test_topics_go_on_once_they_or_the_flow_file_were_corrected",
    "refused_by_cluster": f"{CAUSES}::test_topics_go_on_once_they_or_the_flow_file_were_corrected",
    "newer_format": "integration_tests/exactly_once/test_upgrade.py"
    "::test_what_can_not_go_back_is_refused_before_anything_is_written",
    "map_lost": "integration_tests/exactly_once/test_offset_map.py"
    "::test_a_map_topic_that_is_gone_holds_up_nothing_and_the_map_begins_anew",
    "map_transaction_open": f"{PROOF}::test_what_can_not_be_told_is_refused_by_name",
    "target_partition_unknown": f"{PLAYED_IN}::test_a_partition_that_only_the_target_has_is_named_and_holds_up_nothing",
    "too_many_differences": f"{ON_SPARK}::test_more_differences_than_one_process_takes_are_compared_by_spark",
    "repair_outdated": f"{REPAIR}::test_a_target_that_lost_its_end_is_made_whole_and_the_flow_goes_on",
    "repair_record_gone": f"{ON_SPARK}"
    "::test_what_a_cleaner_takes_at_the_source_between_comparison_and_repair_is_named_and_the_rest_is_copied",
    "repair_too_large": f"{ON_SPARK}::test_more_ranges_than_one_repair_takes_are_copied_by_another_flow",
    "topic_gone": "integration_tests/proof/test_gone_meanwhile.py"
    "::test_a_topic_that_was_created_again_while_it_is_compared_is_named_and_the_flow_goes_on",
    "timestamp_out_of_range": f"{ON_SPARK}"
    "::test_a_time_that_spark_can_not_read_leaves_the_records_before_it_to_be_compared",
    "batch_corrupt": f"{PLAYED_IN}::test_a_damaged_batch_of_the_copy_is_compared_once_it_is_sound",
    "nothing_to_reconcile": f"{CAUSES}::test_configs_of_the_flows_own_topics_are_corrected",
}
"""By kind: file and function."""
