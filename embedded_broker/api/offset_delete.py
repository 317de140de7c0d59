"""OffsetDelete (47).

Behaviour: deletes offsets of a group, except for topics that a member is subscribed to (GROUP_SUBSCRIBED_TO_TOPIC). For
a classic group with members that are not consumers the whole request is refused (NON_EMPTY_GROUP).
Version notes: only v0 exists.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.commit_requests import WRITTEN_STEPS, answered
from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.coordinators.offsets import Results
from embedded_broker.state.group_types import GroupState
from embedded_broker.state.groups import Group
from embedded_broker.state.transactions import TopicPartition
from embedded_broker.wire.responses import Answer


@api(47, "offset_delete", range(1), changes=True)
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle OffsetDelete: see the behaviour and version notes above."""
    share, results, there = conn.share(), Results(), list[TopicPartition]()
    for topic in request.topics:
        for each in topic.partitions:
            partition = topic.name, each.partition_index
            results[partition] = ErrorCode.unknown_topic_or_partition
            if broker.topics.partition(*partition) is not None:
                there.append(partition)
            await share.spent(1)
    await share.spent(len(there) * WRITTEN_STEPS)
    # From here on until it is appended nobody else has a turn: a member may join and subscribe.
    group = broker.groups.get(request.group_id)
    if not request.group_id:
        return {"error_code": ErrorCode.invalid_group_id}
    if group is None:
        return {"error_code": ErrorCode.group_id_not_found}
    if isinstance(group, Group) and group.state is not GroupState.EMPTY and not group.is_consumers:
        return {"error_code": ErrorCode.non_empty_group}
    is_subscribed = broker.groups.subscribed(group)
    for partition in there:
        refused = is_subscribed(partition[0])
        results[partition] = ErrorCode.group_subscribed_to_topic if refused else ErrorCode.none
    allowed = [partition for partition in there if results[partition] is ErrorCode.none]
    await broker.groups.offsets.delete(request.group_id, allowed)
    topics = [
        {"name": topic.name, "partitions": await answered(share, topic.name, topic.partitions, results)}
        for topic in request.topics
    ]
    return {"error_code": ErrorCode.none, "topics": topics}
