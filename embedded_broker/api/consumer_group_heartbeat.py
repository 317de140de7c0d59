"""ConsumerGroupHeartbeat (68), the new consumer protocol (KIP-848).

Behaviour: joins, renews the session, reconciles assignments, leaves (epoch -1), or leaves temporarily as a static
member (-2). The broker assigns, by `uniform` or `range`; patterns of topic names have RE2's syntax, and match topics
that the member may describe. Answered when its changes are on disk. A member whose epoch is wrong is told
FENCED_MEMBER_EPOCH; it stays a member until its session ends, and may join again with epoch 0 and the same id. A group
with members of the classic protocol accepts none of this one and vice versa, as Kafka with
group.consumer.migration.policy=disabled; an empty group changes its protocol.
Version notes: from v1 on the member generates its own id, and may subscribe by a pattern.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from embedded_broker.api.owner import owner_of
from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.security.acls import Operation, Resource
from embedded_broker.state.consumer_types import ConsumerHeartbeat, Partitions, by_topic
from embedded_broker.wire.responses import Answer

NAME_STEPS = 2
MILLISECOND = timedelta(milliseconds=1)


@api(68, "consumer_group_heartbeat", range(2))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle ConsumerGroupHeartbeat: see the behaviour and version notes above."""
    rebalance_timeout_ms = request.rebalance_timeout // MILLISECOND
    names = request.subscribed_topic_names
    heartbeat = ConsumerHeartbeat(
        request.member_id,
        request.member_epoch,
        conn.client_id,
        conn.client_host,
        request.instance_id,
        request.rack_id,
        None if rebalance_timeout_ms == -1 else rebalance_timeout_ms,
        None if names is None else frozenset(names),
        request.subscribed_topic_regex if version >= 1 else None,
        request.server_assignor,
        None if request.topic_partitions is None else _owned(request.topic_partitions),
    )
    if names:
        await conn.share().spent(len(names) * NAME_STEPS)
    answer = await broker.groups.consumer.heartbeat(
        request.group_id, heartbeat, version, _sees(broker, conn), owner_of(conn)
    )
    assignment = answer.assignment
    return {
        "error_code": answer.error_code,
        "error_message": answer.error_message,
        "member_id": answer.member_id or None,
        "member_epoch": answer.member_epoch,
        "heartbeat_interval": answer.heartbeat_interval_ms,
        "assignment": None if assignment is None else _assignment(assignment),
    }


def _sees(broker: Parts, conn: Client) -> Callable[[str], bool] | None:
    """Return a function that says whether a pattern may find a topic; None: all of them."""
    authorizer, session = broker.security.authorizer, conn.session
    if authorizer is None:
        return None
    return lambda name: authorizer.may(session, Operation.DESCRIBE, Resource.TOPIC, name)


def _owned(topics: Any) -> Partitions:
    return frozenset((topic.topic_id, index) for topic in topics for index in topic.partitions)


def _assignment(partitions: Partitions) -> dict[str, Any]:
    topics = by_topic(partitions).items()
    return {"topic_partitions": [{"topic_id": topic_id, "partitions": indexes} for topic_id, indexes in topics]}
