"""Every kind of incident: what was found, what it means, and what to do. Pure data.

`errors.Incident` takes its advice from here, and from nowhere else: an incident without advice cannot exist.
docs/operate/incidents.md shows the same rows; a test compares them. A command stands there as it is typed, from
`eos-replicate` to `-c FILE`, with TEXT and FILE for what only the reader knows, and with ID and FLOW, which are filled
in where they are known; another test types each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IncidentKind:
    """What an operator needs to know of one name: what was `found`, what that `means`, `advice` says what to do."""

    found: str
    means: str
    advice: str


_UNKNOWN = "See docs/operate/incidents.md; nothing of this partition is copied until the cause is gone"
_ANOTHER_FLOW = (
    "take the topic out of this flow (exclude), and copy what the source still has of it by another flow under another "
    "target name (rename)"
)
_INSTEAD = f"Otherwise {_ANOTHER_FLOW}"
_ID = " resolve ID "
_RESOLVE, _WHY = "eos-replicate incident resolve ID", "--why TEXT -c FILE"
_ADOPT = (
    f"To continue this copy from the position that the offset map has: {_RESOLVE} --adopt map {_WHY}. If that is "
    "refused, find the last record that the target has a copy of, and give the source offset after it: --adopt OFFSET "
    "in place of --adopt map."
)
_ONE_RECORD = (
    f"To go on without this one record, and keep it in a topic of the flow: {_RESOLVE} --set-aside {_WHY}. With --skip "
    "in place of --set-aside the record isn't kept"
)
_NOT_CARRIABLE = (
    "In a compacted topic write a newer record of the same key: compaction then removes this one, and the flow goes "
    f"on. {_ONE_RECORD}"
)
_REPAIR = (
    "Stop the flow's workers, or add --take-over. Run eos-replicate reconcile --local --repair apply --flow FLOW -c "
    "FILE: it copies the missing records again. It exits with 1 also if all is copied again, and with 4 if the flow "
    "was not handed over. Then start the workers, and reconcile again. For records that the offset map doesn't cover, "
    "leave --local out: that needs Spark"
)
_REBUILD_CONTROL = (
    "then run eos-replicate rebuild-control --flow FLOW -c FILE. It creates the topic anew, and says what it can't "
    "restore. Add --take-over if a worker that has died still holds positions"
)
_REBUILD = f"Stop all workers of the flow; {_REBUILD_CONTROL}"
_NOTE_FIRST = (
    "Before you delete the topic, note what it alone has (pauses, rates, and what was failed over), as far as status "
    "or its records show it, and see that the source answers, without which it can't be rebuilt"
)
_NEW_NAMES = "Stop all workers of the flow, and copy under a new flow name to new target names"

_SOURCE = {
    "source_records_gone": IncidentKind(
        "Retention or DeleteRecords removed source records before they were copied; the range is named",
        "These records can't be copied any more. Going on without them leaves a gap in the copy",
        "Give the source more retention, so that it doesn't happen again. To go on without these records, which status "
        f"and reconcile then list as left out: {_RESOLVE} --skip {_WHY}",
    ),
    "source_truncated": IncidentKind(
        "The source ends below the position, or a leader epoch shows that its log was cut",
        "An unclean leader election removed records that were copied already; new records get their offsets",
        "Find out what was lost at the source. To go on where its log was cut, and keep the copies of what it has "
        f"lost: {_RESOLVE} --skip {_WHY}. If that is refused, and you know where it was cut, stop the flow, and set "
        "the position to that offset with the command position set. For a position without a leader epoch --retry "
        "isn't safe: once the source's log has reached the position again, nothing shows the cut, and the records that "
        f"were written below it since are left out. {_INSTEAD}",
    ),
    "source_topic_deleted": IncidentKind(
        "The source topic of a position doesn't exist any more",
        "It was deleted. The position and the copy are kept",
        "If it was deleted on purpose, take it out of the flow (topics, exclude). If it is created again under this "
        "name, that is source_topic_recreated",
    ),
    "source_topic_recreated": IncidentKind(
        "The source topic has another id than the one that was copied",
        "It was deleted and created again: its offsets mean other records. The range that would be skipped is named",
        f"To copy the new topic from its beginning, after what the target has of the old one: {_RESOLVE} "
        f"--restart-topic {_WHY}. One command is enough for all partitions of the topic. Otherwise take the topic out "
        "of this flow (exclude) and copy the new one by another flow: under another target name (rename), or under the "
        "same one after the target topic was deleted",
    ),
    "source_cluster_changed": IncidentKind(
        "The source cluster has another id than the one the position was written for",
        "bootstrap.servers leads to another cluster, or the cluster was set up again",
        "Correct bootstrap.servers. To copy from another cluster, use another flow",
    ),
    "source_topic_changed": IncidentKind(
        "The position belongs to another source topic than the one the flow maps to this target topic",
        "topics or rename was changed so that a second source topic goes to the same target topic",
        "Undo the change of topics or rename, or give the new topic a target name of its own",
    ),
    "source_corrupt": IncidentKind(
        "The checksum of a source batch is wrong",
        "The source's disk or network altered records",
        "Find the broker whose replica is damaged (kafka-dump-log.sh), let a healthy one lead the partition; then "
        f"{_RESOLVE} --retry -c FILE",
    ),
    "source_partitions_added": IncidentKind(
        "The source topic has more partitions than its target, and new_partitions is stop",
        "Records of one key may be in another partition from now on",
        "Add the partitions at the target yourself, or set new_partitions: copy and restart the worker",
    ),
    "unknown_source_topic": IncidentKind(
        "A topic that the flow names doesn't exist at the source",
        "A mistake in the flow file, or a topic that was deleted. A new flow doesn't start; one that has run before "
        "goes on with its other topics",
        "Correct topics in the flow. If a topic that the flow has copied was deleted on purpose, take it out of the "
        "flow (topics, exclude); if it is created again under this name, that is source_topic_recreated. A topic that "
        "the flow has never copied can be created",
    ),
}

_TARGET = {
    "target_topic_deleted": IncidentKind(
        "The target topic, or a partition of it, doesn't exist, although the flow has claimed it",
        "Somebody deleted it, and Kafka deleted the positions with it. The copies are gone",
        f"A new topic would hide the loss, so none is created. Instead, {_ANOTHER_FLOW}",
    ),
    "target_topic_recreated": IncidentKind(
        "The target topic has another id than the one that was written",
        "It was deleted and created again: what was copied before is gone from the target. Records that the source "
        "doesn't have any more can't be copied again",
        "First give the new topic the partitions and configs that it shall have: an existing topic keeps its configs, "
        "unless topic_configs.sync is on. To copy all that the source still has into it: "
        f"{_RESOLVE} --restart-topic {_WHY}. One command is enough for all partitions of the topic. Its readers see "
        f"records again that they have read before. {_INSTEAD}",
    ),
    "target_topic_too_small": IncidentKind(
        "An existing target topic has fewer partitions than its source",
        "This flow has claimed no partition of it, and it was too small from the start, or somebody has written to it. "
        "So the flow doesn't change it",
        "Add partitions to it, delete it if nobody needs it, or change rename",
    ),
    "target_rewrites_timestamps": IncidentKind(
        "A target topic has message.timestamp.type=LogAppendTime, as its configs or its acknowledgements say",
        "The target would replace the timestamp of every record",
        "Set message.timestamp.type=CreateTime on it, or list message.timestamp.type in topic_configs.extra if that "
        "is what you want",
    ),
    "target_timestamp_bounds": IncidentKind(
        "A record's timestamp is older, or further ahead, than the target topic takes "
        "(message.timestamp.before.max.ms, message.timestamp.after.max.ms)",
        "The target would refuse it. Nothing from this record on is written; everything before it is committed",
        "Raise that config of the target topic (kafka-configs.sh): the flow goes on at its next discovery. "
        f"{_ONE_RECORD}",
    ),
    "target_lost_data": IncidentKind(
        "The target ends below, or acknowledged a record below, what this flow had written",
        "The target lost acknowledged records, for instance by an unclean leader election",
        _REPAIR,
    ),
    "target_not_empty": IncidentKind(
        "The target partition has records, but the flow has neither a position nor a claim there",
        "Copying from the start could double records",
        "If nobody needs the records, and the flow has no position in any partition of the target topic (position "
        "show), delete that topic; or change rename. If MirrorMaker 2 has copied them, stop it and go on where it has "
        f"ended: eos-replicate adopt-mm2 --flow FLOW --dry-run -c FILE. {_ADOPT}",
    ),
    "target_has_later_records": IncidentKind(
        "A committed record follows the last one that this flow has written",
        "Somebody else writes to the target topic, the position went back, or records were committed and their "
        "position was not",
        "Stop the other writer, and compare both sides with reconcile. To accept the records on the target as they "
        "are, stop the flow, and set the position again with the command position set, which incident show prints: to "
        "its present offset if they are not this flow's. If they are copies of source records from the position on, "
        "give the source offset after the last of them, or these are copied a second time. Then start the flow. "
        f"{_INSTEAD}",
    ),
    "target_transaction_open": IncidentKind(
        "A transaction over the target partition doesn't end",
        "It belongs to another program, or to this flow, whose user lacks the right Alter on the cluster. The detail "
        "says whose it is, at which offset it begins, and which command ends it",
        "Wait until its writer ends it, or end it with the command that the detail has. If the detail has none, run "
        "reconcile first. If the transaction is this flow's own, grant Alter on the cluster. Then "
        f"{_RESOLVE} --retry -c FILE",
    ),
    "target_records_hidden": IncidentKind(
        "A record that the position covers was aborted",
        "The broker lost the marker of a commit, and a later abort ended that transaction",
        _REPAIR,
    ),
    "record_too_large": IncidentKind(
        "A source record is larger than the target topic or the client takes",
        "It can't be written as it is. Everything before this record is committed",
        "Raise max.message.bytes of the target topic (kafka-configs.sh), or limits.record_bytes_max in the flow file. "
        "If the source's batches are compressed, leave compression.type out of the target's properties, or set it to "
        f"zstd. Then {_RESOLVE} --retry -c FILE. If the flow file was changed, or the same record stops the partition "
        f"again, restart the worker. {_ONE_RECORD}. If the record is larger than limits.record_bytes_max, --set-aside "
        "keeps only headers that say where it was, and neither key nor value",
    ),
    "record_refused": IncidentKind(
        "The target refuses this record; the message has its reason",
        "For instance a record without key into a compacted topic",
        "Change the target topic's configs so that it takes the record. Then "
        f"{_RESOLVE} --retry -c FILE. {_ONE_RECORD}",
    ),
    "header_not_carriable": IncidentKind(
        "A record has a header key that isn't UTF-8",
        "The client library can't carry it unchanged. Everything before this record is committed",
        _NOT_CARRIABLE,
    ),
    "timestamp_not_carriable": IncidentKind(
        "A record has no timestamp, or one that isn't above zero",
        "The client library would replace it by the time of writing. Everything before this record is committed",
        _NOT_CARRIABLE,
    ),
}

_STATE = {
    "position_expired": IncidentKind(
        "A partition was claimed and its target topic is the same, but it has no position any more",
        "The committed offset expired (offsets.retention.minutes, after the flow stood still) or was deleted",
        f"{_ADOPT} {_INSTEAD}",
    ),
    "position_unreadable": IncidentKind(
        "The metadata of a committed offset wasn't written by this program",
        "Another program commits offsets of the flow's group, or somebody has reset its offsets",
        "Find out who commits offsets of the group eos-replicate.<flow>. If the flow was running when that happened, "
        "it commits its own position again at the next discovery, and goes on at once. If it wasn't: "
        f"{_ADOPT} {_INSTEAD}",
    ),
    "position_newer_than_control": IncidentKind(
        "A position was written under a generation that the control topic doesn't know",
        "The control topic lost records, or was created again",
        _REBUILD,
    ),
    "newer_format": IncidentKind(
        "A position, or a record of the flow's own topics, has a format that this version must not ignore",
        "A newer version of eos-replicate has run this flow",
        "Run the newer version. Nothing was written",
    ),
    "control_topic_lost": IncidentKind(
        "The flow's control topic is missing, or has no generation in it, although the flow has run",
        "It was deleted, or something else created it. If it were simply created anew, two generations could copy at "
        "once",
        _REBUILD,
    ),
    "control_topic_behind": IncidentKind(
        "The control topic doesn't know the generation that a running lane was started under",
        "It was truncated, or deleted and created again",
        _REBUILD,
    ),
    "control_topic_unreadable": IncidentKind(
        "The control topic holds a record that isn't of this program, or its records are in an impossible order",
        "Something else writes there",
        "Find out who writes to __eos.<flow>.control and stop it. Stop all workers of the flow. "
        f"{_NOTE_FIRST}. Delete it, {_REBUILD_CONTROL}",
    ),
    "control_topic_unfit": IncidentKind(
        "The control topic has more than one partition, or isn't compacted",
        "It could lose a generation, or split them over partitions",
        "Set cleanup.policy=compact. If it has more than one partition, stop all workers of the flow. "
        f"{_NOTE_FIRST}. Delete it, {_REBUILD_CONTROL}",
    ),
    "claims_topic_lost": IncidentKind(
        "The flow's claims topic is missing, although the flow has run",
        "It was deleted. Without claims a lost position looks like a new partition",
        _NEW_NAMES,
    ),
    "claims_topic_unreadable": IncidentKind(
        "The claims topic holds a record that isn't of this program",
        "Something else writes there",
        f"Find out who writes to __eos.<flow>.claims and stop it. {_NEW_NAMES}",
    ),
    "lanes_topic_unfit": IncidentKind(
        "The topic by which workers share the flow's lanes has another number of partitions than there are lanes",
        "Partitions were added to it, or it was made by something else. Workers would be given lanes that don't exist",
        "Stop the flow's workers, delete the topic, and start them again: it is created anew, and it holds no data",
    ),
    "foreign_group_member": IncidentKind(
        "A client that isn't a worker is a member of the group by which workers share the flow's lanes",
        "The group assigns lanes to it as well, and it doesn't copy them",
        "Stop that client: it uses the flow's own group eos-replicate.<flow>.workers. Its lanes then go to the workers",
    ),
    "map_topic_unfit": IncidentKind(
        "The flow's map topic has another number of partitions than 16, would lose blocks by retention or compaction, "
        "or doesn't take blocks of 512 KiB",
        "Records are copied as before, but their target offsets are not written down",
        "Set cleanup.policy=delete, retention.ms=-1, retention.bytes=-1 and max.message.bytes=1048588 on "
        "__eos.<flow>.offsets. If it has another number of partitions, delete it: it is created anew. Lanes look again "
        "within minutes, and nothing has to be restarted",
    ),
    "map_lost": IncidentKind(
        "The flow's map topic is not the one that its positions name, or has lost the newest block of a lane",
        "Records are copied as before. The target offsets of records that were copied before may not be known any "
        "more; the map begins anew",
        "Find out who has deleted __eos.<flow>.offsets or its records; nothing else has to be done. To compare records "
        "that the new map doesn't cover, run eos-replicate reconcile without --local, which compares contents",
    ),
    "map_transaction_open": IncidentKind(
        "A transaction in the flow's map topic stays open",
        "Its records may name the offsets of copies, so nothing is copied again. The flow itself goes on",
        "Find it with kafka-transactions.sh find-hanging. End the program that has it open, or abort it with "
        "kafka-transactions.sh abort. Then repair again",
    ),
    "flows_in_conflict": IncidentKind(
        "Two flows would write one target topic, or a topic would come back to where it was read",
        "Records would be doubled, or copied in a circle",
        "Exclude the topic from one of the flows, or change its rename. If the other flow is retired, delete its own "
        "topics (__eos.<flow>.control and __eos.<flow>.claims) on the cluster that it wrote to",
    ),
    "target_topic_name_invalid": IncidentKind(
        "rename makes a name of this source topic that no target topic can have: it is too long, or internal",
        "The target topic can't be created. The other topics are copied",
        "Exclude the topic from this flow, or change its rename; another flow can copy it under a shorter name",
    ),
    "refused_by_cluster": IncidentKind(
        "A cluster refuses a request, and would refuse it again; the message has its reason",
        "For instance a policy of the cluster, or a replication factor that it doesn't have",
        "Correct what the message names",
    ),
}

_JOBS = {
    "target_partition_unknown": IncidentKind(
        "reconcile found records in a target partition that the source topic doesn't have",
        "Somebody else wrote them, or the source topic was created again with fewer partitions",
        "Find out who writes to the target topic, and take the right away; the flow never writes there",
    ),
    "nothing_to_reconcile": IncidentKind(
        "reconcile was asked before the flow has copied anything", "There is nothing to compare", "Run the flow first"
    ),
    "too_many_differences": IncidentKind(
        "reconcile --local found too many records that don't stand where the offset map says",
        "This partition was not compared",
        "Run eos-replicate reconcile without --local: it uses Spark, and has no such bound",
    ),
    "repair_outdated": IncidentKind(
        "The flow has gone on, or the target has lost more, since the reconciliation that found what to repair",
        "The records that were missing then may be there now",
        "Stop the flow if it still runs, reconcile again, and repair what that finds",
    ),
    "repair_record_gone": IncidentKind(
        "The source doesn't have a missing record any more",
        "It can't be copied again",
        "Repair again, with the same command: it copies what the source still has. "
        "What it has lost is at the offsets named here, and can only be restored from elsewhere",
    ),
    "repair_too_large": IncidentKind(
        "More than 100,000 ranges of records are missing",
        "More was lost than single records",
        f"Repair some of the topics at a time (--topics). {_INSTEAD}",
    ),
    "topic_gone": IncidentKind(
        "A topic was deleted while reconcile read it", "Nothing can be said about it", "Reconcile again"
    ),
    "timestamp_out_of_range": IncidentKind(
        "A record has a timestamp beyond the year 294247, usually because its producer counts nanoseconds",
        "Spark can't read such a timestamp, so reconcile can't compare this partition; the flow copies it as it is",
        "Correct the producer. The rest can be compared once retention has removed the records, or with a --to before "
        "them",
    ),
    "batch_corrupt": IncidentKind(
        "A record batch of either cluster is corrupt: its checksum or its lengths are wrong",
        "A broker's disk or network altered it. Nothing can be said about the records of that batch",
        "Find the broker whose replica is damaged (kafka-dump-log.sh), let a healthy one lead the partition, and "
        "reconcile again",
    ),
}

KINDS: Mapping[str, IncidentKind] = {**_SOURCE, **_TARGET, **_STATE, **_JOBS}
"""By name, in the order in which docs/operate/incidents.md shows them."""


def advice_for(name: str, id_: str = "", flow: str = "") -> str:
    """Say what to do about an incident of this name. `id_`, `flow` as of `filled_in`."""
    return filled_in(KINDS[name].advice, id_, flow) if name in KINDS else _UNKNOWN


def filled_in(advice: str, id_: str = "", flow: str = "") -> str:
    """Fill in commands of an advice what `incident resolve` takes, and the flow whose incident it is; empty: it isn't
    known, and ID or FLOW stay there."""
    advice = advice.replace(_ID, f" resolve {id_} ") if id_ else advice
    return advice.replace(" --flow FLOW ", f" --flow {flow} ") if flow else advice


def with_place_of_id(advice: str, flow: str) -> str:
    """Fill in the flow, and say where the ID stands that the advice doesn't have yet: a worker gives it when it writes
    the incident down, after it was told."""
    advice, place = filled_in(advice, flow=flow), f"eos-replicate incident list --flow {flow} -c FILE"
    if _ID not in advice or place in advice:
        return advice
    return f"{advice.rstrip('.')}. The ID is shown by {place}"
