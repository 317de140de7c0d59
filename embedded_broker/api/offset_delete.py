"""OffsetDelete (47).

Behaviour: deletes offsets of a group, except for topics that a member is subscribed to (GROUP_SUBSCRIBED_TO_TOPIC). For
a classic group with members that are not consumers the whole request is refused (NON_EMPTY_GROUP).
Version notes: only v0 exists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.state.group_types import GroupState
from embedded_broker.state.groups import Group
from embedded_broker.state.transactions import TopicPartition
from embedded_broker.wire.responses import Answer

if TYPE_CHECKING:
    from embedded_broker.coordinators.group_registry import AnyGroup


@api(47, "offset_delete", range(1), changes=True)
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle OffsetDelete: see the behaviour and version notes above."""
    if not request.group_id:
        return {"error_code": ErrorCode.invalid_group_id}
    group = broker.groups.get(request.group_id)
    if group is None:
        return {"error_code": ErrorCode.group_id_not_found}
    if isinstance(group, Group) and group.state is not GroupState.EMPTY and not group.is_consumers:
        return {"error_code": ErrorCode.non_empty_group}
    wanted = [(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions]
    refusals = {partition: _refusal(broker, group, partition) for partition in wanted}
    allowed = [partition for partition in wanted if refusals[partition] is ErrorCode.none]
    await broker.groups.offsets.delete(request.group_id, allowed)
    return {
        "error_code": ErrorCode.none,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": each.partition_index, "error_code": refusals[topic.name, each.partition_index]}
                    for each in topic.partitions
                ],
            }
            for topic in request.topics
        ],
    }


def _refusal(broker: Parts, group: AnyGroup, partition: TopicPartition) -> ErrorCode:
    if broker.topics.partition(*partition) is None:
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.group_subscribed_to_topic if broker.groups.is_subscribed(group, partition[0]) else ErrorCode.none
