"""OffsetDelete (47).

Behaviour: deletes offsets of a group. As long as the group has members, none of a topic that a consumer group may be
subscribed to goes (GROUP_SUBSCRIBED_TO_TOPIC; Kafka looks into the subscriptions, this broker takes all topics for
subscribed); a group of another kind is refused as a whole (NON_EMPTY_GROUP).
Version notes: only v0 exists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.registry import Answer, api
from embedded_broker.state.group_types import GroupState

if TYPE_CHECKING:
    from embedded_broker.broker import Broker
    from embedded_broker.connection import Connection


@api(47, "offset_delete", range(1))
async def handle(broker: Broker, conn: Connection, request: Any, version: int) -> Answer:
    """See the module."""
    group = broker.groups.get(request.group_id)
    if group is None:
        return {"error_code": ErrorCode.group_id_not_found}
    has_members = group.state is not GroupState.EMPTY
    if has_members and group.protocol_type != "consumer":
        return {"error_code": ErrorCode.non_empty_group}
    wanted = [(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions]
    error_code = ErrorCode.group_subscribed_to_topic if has_members else ErrorCode.none
    if not has_members:
        await broker.groups.offsets.delete(request.group_id, wanted)
    return {
        "error_code": ErrorCode.none,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": each.partition_index, "error_code": error_code} for each in topic.partitions
                ],
            }
            for topic in request.topics
        ],
    }
