"""ConsumerGroupDescribe (69), for groups of the new consumer protocol (KIP-848).

Behaviour: epochs, members, their current and target assignments. A group that doesn't exist, or is a classic one, is
answered GROUP_ID_NOT_FOUND. Deleted topics are left out of assignments. The authorized operations are returned on
request.
Version notes: v1 adds the member type, which is always consumer.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.describe_groups import tell_rights
from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.state.consumer_groups import ConsumerGroup
from embedded_broker.state.consumer_members import ConsumerMember
from embedded_broker.state.consumer_types import NOTHING, Partitions, by_topic
from embedded_broker.wire.responses import ENTRY_BYTES, Answer

CONSUMER_MEMBER = 1


@api(69, "consumer_group_describe", range(2))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle ConsumerGroupDescribe: see the behaviour and version notes above."""
    groups, share = [], conn.share()
    for group_id in request.group_ids:
        groups.append(_describe(broker, group_id))
        for member in groups[-1].get("members", ()):
            names = len(member["subscribed_topic_names"])
            topics = sum(len(member[each]["topic_partitions"]) for each in ("assignment", "target_assignment"))
            await share.spent(10 + names + 5 * topics, ENTRY_BYTES * (2 + names // 4 + topics))
        await share.spent(3)
    if request.include_authorized_operations:
        tell_rights(broker, conn, groups)
    return {"groups": groups}


def _describe(broker: Parts, group_id: str) -> dict[str, Any]:
    if not group_id:
        return {"group_id": group_id, "error_code": ErrorCode.invalid_group_id}
    group = broker.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        message = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a consumer group."
        return {"group_id": group_id, "error_code": ErrorCode.group_id_not_found, "error_message": message}
    members = group.members
    return {
        "group_id": group_id,
        "group_state": group.state.value,
        "group_epoch": members.epoch,
        "assignment_epoch": members.assignment_epoch,
        "assignor_name": members.assignor(),
        "members": [_member(broker, member, members.targets.get(member.member_id, NOTHING)) for member in members],
    }


def _member(broker: Parts, member: ConsumerMember, target: Partitions) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.topic_names),
        "subscribed_topic_regex": member.topic_regex,
        "assignment": _assignment(broker, member.assigned),
        "target_assignment": _assignment(broker, target),
        "member_type": CONSUMER_MEMBER,
    }


def _assignment(broker: Parts, partitions: Partitions) -> dict[str, Any]:
    named = [(broker.topics.by_id(topic_id), indexes) for topic_id, indexes in by_topic(partitions).items()]
    return {
        "topic_partitions": [
            {"topic_id": topic.topic_id, "topic_name": topic.name, "partitions": indexes}
            for topic, indexes in named
            if topic is not None
        ]
    }
