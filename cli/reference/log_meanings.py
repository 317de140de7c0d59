"""What each log event means. A test holds that none is missing and none is left over."""

from __future__ import annotations

from cli.reference.transaction_meanings import TRANSACTION_EVENTS

EVENTS = {
    **TRANSACTION_EVENTS,
    "aborted": (
        "The open transaction was aborted. Nothing of it reaches a read_committed reader; the lane goes back to "
        "its last committed positions and copies the same records again."
    ),
    "all_partitions_stopped": (
        "Incidents have stopped every partition of a flow that one process runs alone (`--standalone`), so it ends, "
        "with exit code 4."
    ),
    "bug": (
        "The process has reached a state that must not occur; the line has the traceback. The process ends with exit "
        "code 70: please report it."
    ),
    "client": (
        "A message of the Kafka client library about a connection or a broker. At most three lines a minute are "
        "written for each cause; the last one of those that were left out follows after the minute, with `left_out`. "
        "At level debug all of them are written."
    ),
    "committed": (
        "A transaction was committed on the target: records and positions together. On Spark one line stands "
        "for all transactions of a round."
    ),
    "config_fault_not_noted": (
        "The note that the flow file has a fault could not be written to the target, so `status` doesn't show it."
    ),
    "config_not_reloaded": (
        "The flow file was read again, after SIGHUP or a change of it, and has a fault. Nothing is changed: all flows "
        "go on with the settings that they have."
    ),
    "config_reloaded": (
        "The flow file was read again, after SIGHUP or a change of it. Flows that were added are started, those that "
        "were removed are stopped, those that have changed are stopped and started; the others aren't touched."
    ),
    "connecting": "The flow begins to connect to both clusters.",
    "copied_again": "A repair has committed missing records on the target.",
    "copying": "A partition that had waited, or was stopped, is copied again.",
    "decided": (
        "An operator's decision about an incident was acted on. Source offsets from `offset` to before `end`, which "
        "a command other than retry has left out, are not copied."
    ),
    "file_is_older": (
        "The open generation has other settings than this worker's flow file, and the flow has had this file before, "
        "or one with a higher `revision`. The worker runs the open settings; `eos-replicate apply` takes the file."
    ),
    "generation_left_to_another": (
        "Another worker is changing the generation at the same time. This one waits for what that one opens."
    ),
    "generation_tried_again": (
        "An operator's command has written to the control topic while a process that runs the flow alone opened a "
        "generation. It tries again."
    ),
    "generation_over": (
        "Another generation of the flow follows: the worker stops its lanes, and goes on under that one."
    ),
    "group_left": (
        "This process can't run the lane: a file of its connections is missing, or the machine has no more memory, "
        "descriptors or threads. It leaves the workers' group, so that another worker gets its lanes, and comes back "
        "after a pause of 5 seconds, of up to five minutes when that has happened again."
    ),
    "group_trouble": (
        "The client that is a member of the workers' group reports an error. It goes on trying, and so do the lanes."
    ),
    "lane_left": (
        "Another worker runs this lane now, or its transaction timed out. A lane that is still this worker's is "
        "started again."
    ),
    "lanes_assigned": "The workers' group has given this worker these lanes. They are all that it has.",
    "lanes_followed": (
        "The open generation has no settings, but another number of lanes than this worker's flow file. The worker "
        "runs that."
    ),
    "lanes_opened_early": "No other worker was found alive: the lanes are opened before the group has assigned them.",
    "lanes_revoked": (
        "The workers' group gives these lanes to another worker. They are copied here until that one has taken over."
    ),
    "lanes_topic_not_made": (
        "The topic by which workers share the flow's lanes was deleted, and can't be made again now. Lanes go on where "
        "they are; it is tried again at each discovery."
    ),
    "members_unknown": "The other workers that share the flow could not be asked for.",
    "membership_lost": (
        "The worker is no member of the workers' group just now. Its lanes are copied until another worker has "
        "taken over."
    ),
    "policy_bound_reached": (
        "The flow's policy would leave out more source offsets of a partition within 24 hours than its bound says: the "
        "incident waits for an operator."
    ),
    "aside_topic_missing": "The topic for records that the policy sets aside could not be made: none is set aside.",
    "position_set": (
        "`position set` has moved the position of a partition from `before` to `after`, as `by` has decided."
    ),
    "partition_adopted": (
        "`adopt-mm2` has set the position of a partition that MirrorMaker 2 had copied, as `by` has decided."
    ),
    "handed_over_later": (
        "`position set` or `adopt-mm2` is over and could not open the daemon's next generation: whoever starts the "
        "flow opens it."
    ),
    "position_set_tried_again": (
        "`position set` or `adopt-mm2` has failed for a reason that may be temporary, and tries again; the change is "
        "made once or not at all."
    ),
    "decision_postponed": (
        "An operator's decision can't be acted on now, and is tried again after half a minute; nothing was changed."
    ),
    "decisions_unread": (
        "Rounds on Spark can't read decisions about stopped partitions now; they are read again a second later. This "
        "is logged once for each cause."
    ),
    "deleted_group_kept": (
        "Offsets of a group that was deleted at the source are kept at the target; `reason` says why (`groups.deleted: "
        "delete`). It is looked at again after a minute, and told again when the reason changes."
    ),
    "discovery_failed": (
        "Topics could not be listed now; the lanes go on with those that are known, and it is tried again at "
        "the next interval. It is logged once for an outage, and again when its cause changes."
    ),
    "end_not_noted": "The way in which a flow has ended could not be written to the target, where `status` reads it.",
    "engine": "The engine that carries the flow's records, if it isn't `records` by default.",
    "executors": "Spark has no executor for the tasks yet.",
    "fenced": (
        "Another producer was given this lane's transactional id, or the transaction timed out. The lane reads "
        "who owns its positions: it starts again, or leaves them to that one; a process that runs the flow alone then "
        "ends with exit code 5."
    ),
    "flow_ended": (
        "A flow has ended with an error. While another flow of the process runs, it is started again later, and so is "
        "one that a reload has started with settings that are wrong; the same cause again is logged at level debug."
    ),
    "flow_over": (
        "A flow isn't run by this process any more, since another one has taken it over. It is written each discovery "
        "interval, as long as other flows of this process run."
    ),
    "flow_started_again": "A flow that had ended has lanes that run again.",
    "flow_tried_again": "A flow that had ended is started again.",
    "generation_not_checked": (
        "The control topic could not be read now, so it is not known whether this generation is still open. It "
        "is tried again, and logged once for an outage, and again when its cause changes."
    ),
    "generation_opened": "A generation was opened: this number of lanes, and what runs them.",
    "handed_over": "A job has opened the daemon's next generation: `run` continues from its positions.",
    "heartbeats_failed": (
        "Heartbeat records can't be written at the source, or read at the target, and why (`heartbeat`). It is tried "
        "again, and told again when the reason changes. Copying goes on."
    ),
    "failed_over": (
        "The flow was failed over (`failover`), in this generation. Nothing is copied until `failover --undo`; its "
        "positions are kept."
    ),
    "being_failed_over": (
        "Somebody has begun to fail the flow over (`failover`), in this generation; other workers may still copy. A "
        "worker that starts then waits. If the command has died, the worker finishes the change after ten seconds."
    ),
    "failover_finished": (
        "A failover whose command had died was finished: all workers are fenced, and nothing is copied until `failover "
        "--undo`. There is no verdict: give the command again."
    ),
    "failover_undone": "The flow may run again, and is started.",
    "group_deleted": (
        "The flow's offsets of a group that was deleted at the source were deleted at the target: it had no members "
        "(`groups.deleted: delete`)."
    ),
    "group_left_alone": (
        "Partitions of a consumer group that are not moved at the target, and why (`groups`). It is said once, and "
        "again when the reason changes."
    ),
    "groups_followed": (
        "How many consumer groups of the source are synced (`groups`): at the start, and when it changes."
    ),
    "groups_held_with": (
        "The source topics that groups wait for, as they were found (`groups.hold_with: auto`): producers that commit "
        "offsets of groups in their transactions write to them. It is said when there are more."
    ),
    "groups_not_synced": (
        "Offsets of consumer groups, or of some of them, could not be synced in this round, and why (`groups`). It is "
        "tried again, and told again when the reason changes. Copying goes on."
    ),
    "groups_synced_again": "The offsets of all consumer groups are synced again.",
    "incident": (
        "A fact that needs a decision. It stops one partition, or the flow: see [incidents](../operate/incidents.md)."
    ),
    "incident_repaired": "The target lost records below its position; the repair copies them again.",
    "kept_not_noted": (
        "Who keeps the positions of a flow that was failed over could not be written to the target, where `status` and "
        "`workers` read it. The positions are committed."
    ),
    "lane_ended": (
        "A lane has ended with an error. At level error it ends its flow; at level warning workers share the flow, and "
        "the lane is started again."
    ),
    "lane_started": "A lane has fenced its predecessor, read and committed its positions, and begins to copy.",
    "not_handed_over": (
        "A job did not give the flow back to `run`: handing over failed, or a repair has copied only a part of what "
        "the target had lost. Workers stand by. Run the same job again."
    ),
    "lag_unknown": (
        "A bug in the code that finds the lag for metrics, with its traceback. Copying goes on, without lag in the "
        "metrics."
    ),
    "map_consolidated_again": "The blocks of the offset map are put into its index again.",
    "map_not_consolidated": (
        "Blocks of the offset map could not be put into its index, and why (`consolidate_map`). They stay, and it is "
        "tried again, the more often in a row the later. Copying goes on, and the map is whole."
    ),
    "map_not_deleted": (
        "Blocks of the offset map that are in its index could not be deleted: the right is missing "
        "(`consolidate_map`). It is tried again with the next blocks."
    ),
    "map_not_checked": (
        "At a lane's start it could not be found out whether the offset map's newest block is there: the map begins "
        "again where it would have gone on. Records are copied as ever."
    ),
    "map_not_written": (
        "The offset map's topic could not be made or looked at, so this flow is copied without a map until it can "
        "be: whenever topics are listed it is tried again."
    ),
    "map_off": (
        "A lane copies without the offset map for now, because its topic can't be written; it tries again, and "
        "`map_on` follows. Records that it copies meanwhile have no entry in the map."
    ),
    "map_on": "A lane has committed a block of the offset map again.",
    "map_section_wrong": (
        "A bug: a transaction's records of a partition could not be put into the offset map. They are copied without "
        "it."
    ),
    "metrics_served": "The process answers over HTTP at this address: the status page, /metrics, /healthz, /readyz.",
    "not_fenced_at_once": "The predecessor could not be fenced ahead of the lane's producer, which fences it itself.",
    "not_released": (
        "The positions could not be released at a clean stop. Everything is committed; only the next start "
        "takes longer."
    ),
    "no_topic_selected": (
        "No topic of the source is selected by `topics` and `exclude` now; the flow runs, and copies those that appear."
    ),
    "open_transaction_ended": (
        "The target's brokers had left a transaction of the lane's own producer open in a partition; the lane has "
        "committed or aborted it, as its position says."
    ),
    "origins_not_checked": (
        "Claims of other flows on the source cluster can't be read, so it isn't known whether topics come back over "
        "flows of other files."
    ),
    "owner_unknown": "The positions' owner could not be read now; it is asked again.",
    "position_unknown": "The position of a range could not be read now; it is asked again.",
    "positions_kept": "The positions of a flow that was failed over were committed again, so that they don't expire.",
    "positions_not_kept": (
        "Positions of a flow that was failed over could not be committed again just now: all of them, or those of "
        "topics on which a right is missing; `reason` says why. It is tried again."
    ),
    "positions_unknown": "Positions could not be read now; they are asked for again.",
    "range_begun_again": "A task begins its range again from the position that is committed.",
    "range_failed": "A task has failed; its range is tried again, from the position that is committed.",
    "range_taken_over": "Another attempt at the same range, or another generation, has fenced this task.",
    "reassigned": "The routes of a lane have changed: its partitions are checked again.",
    "recovered": "A cluster answers again.",
    "recommitted": "All positions of a lane were committed again, so that the target doesn't expire them.",
    "records_lost": (
        "Under at_most_once only: records of a transaction were not written and will not be; one line for each "
        "partition. Where the outcome of a commit is unknown they are lost only if it was applied (`certain` is "
        "false). Records that a process held when it was killed are in no line."
    ),
    "repair_decided": "A repair has compared what is missing with what stands on the target now.",
    "request_failed": "A request over HTTP could not be answered for a bug, with its traceback. Copying goes on.",
    "restarted": (
        "A lane starts over with a new producer, from the fence, because the outcome of a commit is unknown or "
        "a cluster did not answer. Nothing is lost or doubled by it."
    ),
    "round_began": "A round on Spark begins.",
    "round_failed": "A round on Spark could not run; the next one is tried after a pause.",
    "setup_tried_again": (
        "A step before the lanes start has failed; it is tried again until `limits.connect_timeout_ms`, by a worker "
        "that shares its flow and has run it before for as long as it takes."
    ),
    "spark_started": "Spark runs, with so many tasks at a time.",
    "standing_by": (
        "The worker runs nothing of the flow until the `reason` is gone: a job has the flow, the flow is copied from "
        "another source cluster than this worker's file names, or its settings need a newer version."
    ),
    "start_not_resolved": (
        "The offset at which a partition starts (`start` of the flow) could not be asked for yet; it is tried "
        "again until `limits.connect_timeout_ms`."
    ),
    "started": "The process begins: its version, its flows and their clusters.",
    "starts_at_earliest": (
        "The offset at which a partition starts could not be found in time. The partition starts at the "
        "earliest offset, so that nothing is left out."
    ),
    "schema_modes_reset": (
        "Subjects at the target were in mode IMPORT, as a process leaves them that is killed while it writes there, "
        "and have the registry's mode now; `detail` names them. If one of them had a mode of its own before, set it "
        "again. Nothing is wrong if another process was just writing to them: it sets the mode once more."
    ),
    "schemas_followed": "The schema registries were compared: so many schemas are kept at the target.",
    "schemas_in_conflict": (
        "Schemas of the source's registry can't have their ids or versions at the target's, or are refused there. They "
        "are named; their subjects, and schemas that refer to them, wait until that has changed. Other subjects go on."
    ),
    "schemas_not_synced": (
        "A schema registry doesn't answer, or refuses something, and why. It is tried again, and told again when the "
        "reason changes; copying goes on."
    ),
    "schemas_registered": "Schemas were registered at the target, with their ids and versions.",
    "schemas_synced_again": "After `schemas_not_synced` or `schemas_in_conflict`: the schemas are at the target.",
    "settings_taken": (
        "The pauses and limits that operators have set with `pause`, `resume` and `rate` were changed, and apply from "
        "now on."
    ),
    "settings_unread": (
        "What operators have set and decided (pauses, limits, decisions about incidents) can't be read now: what was "
        "read before applies, and copying goes on. It is tried again each second, and logged once for each cause."
    ),
    "stopped": "The process ends, with this exit code.",
    "stopping": "A stop was asked for: the open transactions are finished.",
    "summary": (
        "The records that were copied since the flow's last summary, its lag, and the states of its partitions: every "
        "30 s in which something has changed, once an hour if nothing has, and before the process ends. On Spark only "
        "the records that were copied."
    ),
    "decision_outdated": (
        "An operator's decision doesn't apply any more: more records of the source are gone, or the topic is another "
        "one. Nothing was left out; the incident that stops the partition now needs a decision of its own."
    ),
    "exit_on_incident": "An incident has stopped partitions, so the flow ends, as --exit-on-incident wants it.",
    "history_failed": "A bug in the code that keeps the status page's plots, with its traceback. Copying goes on.",
    "summary_failed": (
        "A bug in the code that sums up the flows, with its traceback. Copying goes on, without summaries."
    ),
    "took_over": (
        "The lane has fenced a process that had not released its positions: one that was killed, or that still runs "
        "and writes nothing more there. If that one runs the flow alone, it ends now with exit code 5."
    ),
    "acls_created": "A target topic has got rights of reading that its source topic has (`sync_acls`).",
    "acls_left": (
        "A right of reading was taken away at the source, and the target topic has it still. Take it away there by "
        "hand: it can't be told from one that somebody has given there on purpose."
    ),
    "acls_not_created": (
        "Rights of reading can't be listed, or created on the target, or would keep the flow from its own topic, or be "
        "on a topic that isn't known as the flow's own, and why (`sync_acls`). It is tried again at each discovery, "
        "and told again when the reason changes. Copying goes on."
    ),
    "topic_configs_not_set": (
        "A target topic keeps other configs than its source topic has, and why (`topic_configs.sync`): such as that it "
        "isn't known as the flow's own. They are set again at each discovery, and told again when the reason changes. "
        "Copying goes on."
    ),
    "topic_configs_set": "Configs of a target topic were set as its source has them now (`topic_configs.sync`).",
    "topic_created": "A topic was created on the target.",
    "topic_grown": "A topic of the target was given more partitions, as the source has.",
    "unreachable": (
        "No broker of a cluster has answered for 4 s, or 2.5 s at the start of a flow; `reason` says why, and "
        "`recovered` follows. Its partitions wait; `waiting` isn't logged for each of them. It is logged again once a "
        "failover is undone."
    ),
    "waiting": (
        "A partition can't be copied now, for a reason that needs no decision, such as a missing right: see "
        "[waiting](../operate/incidents.md#waiting). Partition -1 means the whole topic."
    ),
}
