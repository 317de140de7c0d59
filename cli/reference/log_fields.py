"""What the fields of log events mean, for docs/reference/log-events.md."""

from __future__ import annotations

COMMON = {
    "timestamp": "The time, UTC, in ISO 8601.",
    "level": "The level.",
    "event": "The event's name.",
}
BOUND = {
    "flow": "Name of the flow.",
    "generation": "Number of the generation: which lanes there are, and what runs them.",
    "lane": "Number of the lane within its generation.",
    "range": "For a task on Spark: the partition, and the source offset at which its range ends.",
    "partition": "For a repair: topic and partition.",
}
FIELDS = {
    "added": "Names of flows that the file has now and had not before.",
    "acls": "Who is allowed or denied what, from which host.",
    "address": "Where the process answers over HTTP.",
    "advice": "What to do next.",
    "after": "The new position: a source offset.",
    "before": "The old position.",
    "bound": "Source offsets that the policy may leave out within 24 hours.",
    "by": "Who has decided; in events about a generation: the process that has begun it.",
    "bytes": "Bytes of keys, values and headers of the records.",
    "changed": "Names of flows of which a setting, or a property of one of their clusters, is another one now.",
    "cluster": "Name of a cluster in the flow file.",
    "clusters": "`bootstrap.servers` of each cluster.",
    "certain": "Whether the records are lost. If not they may be, or are read again; they are not counted.",
    "command": "The decision: an option of `incident resolve`.",
    "commits": "How many transactions with records.",
    "configs": "Configs of a topic, each with the value that it has or had, and the one that the source topic has.",
    "copying": "How many partitions are copied.",
    "copied": "How many missing records are copied.",
    "delay_ms": "Pause before the next try, in milliseconds.",
    "detail": "What happened, in words.",
    "differs": "Settings whose values differ.",
    "end": "The source offset behind what the incident is about; -1 where none applies.",
    "engine": "`records` or `batches`.",
    "exit_code": "The exit code that follows: see [exit codes](exit-codes.md).",
    "first_target": "The target offset of the first record that was written.",
    "flow": "Name of the flow.",
    "flows": "In `started`: source and target of each flow. In `stopped`: the exit code of each flow.",
    "generation": "Number of the generation.",
    "group": "A consumer group of the source.",
    "groups": "How many consumer groups.",
    "kept": (
        "How many positions the lane commits again without copying: those of topics that were deleted or are not "
        "selected."
    ),
    "kind": (
        "The class of the error. In `generation_opened`: what runs the generation, if it is a job (rounds, backfill or "
        "repair)."
    ),
    "lane": "Number of the lane within its generation.",
    "lag_records": "How many offsets the flow is behind the ends of its source; null where that isn't known.",
    "lag_seconds": (
        "How long ago the source had, as this process saw it, an end that is not copied yet: of the partition that is "
        "furthest behind; null where that isn't known."
    ),
    "lanes": "How many lanes the generation has; in events of a worker that shares them: which it has.",
    "left_out": "How many lines of this cause were left out before this one.",
    "master": "Spark's master URL.",
    "ms": "How long the transaction was open, in milliseconds; 0 where it had no record.",
    "name": "Name of the incident.",
    "needs_restart": "Sections of the file that have changed and that a process takes at its start only.",
    "occurrence": "The incident's id in `incident list`.",
    "offsets_left_out": "How many source offsets it has left out in the last 24 hours.",
    "offsets": (
        "First and last source offsets of what was lost: every record that was read between the two, both included."
    ),
    "offset": "The source offset where the flow stands; -1 where none applies.",
    "own_lanes": "How many lanes the worker's flow file has.",
    "owner": "The process that had the positions: host, process id, and a name of its own.",
    "partition": "Number of the partition; -1 where none applies.",
    "partitions": (
        "How many partitions. In `lane_started`: those that are copied. In `took_over`: those that the other process "
        "had."
    ),
    "paused": "The source topics that are paused, or (flow) for all of the flow.",
    "position": "The source offset from which it is copied.",
    "positions": "Source topic and partition, with the source offset that is copied next.",
    "range": "Topic and partition of the range.",
    "ranges": "How many ranges the round has.",
    "rates": "The highest rates, by source topic, or (flow) for all of the flow.",
    "reasons": "Settings of the flow that `batches` can't honour.",
    "reason": "Why, in words. In `waiting`: one of the reasons under [waiting](../operate/incidents.md#waiting).",
    "records": "How many records.",
    "records_per_s": "How many records a second.",
    "removed": "Names of flows that the file doesn't have any more.",
    "round": "Number of the round since the process began.",
    "schemas": "How many schemas.",
    "slots": "How many tasks run at a time.",
    "source": "Name of the source cluster.",
    "standing": "How many records are on the target already.",
    "stopped": "How many partitions incidents have stopped.",
    "subjects": "How many subjects of a schema registry.",
    "superseded": "How many records of a compacted topic have a later one of their key, and are not copied.",
    "target": "Name of the target cluster.",
    "topic": (
        "Name of the topic: of the target's in `topic_created`, `topic_grown`, `topic_configs_set`, `acls_created` and "
        "`acls_left`, otherwise of the source's."
    ),
    "topics": "Names of source topics.",
    "unchanged": "Names of flows that go on as they were.",
    "unreachable_s": "For how long no broker had answered, in seconds.",
    "version": "The version of eos-replicate.",
    "waiting": "How many partitions wait.",
    "why": "The reason that the operator has given.",
}
