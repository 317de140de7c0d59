"""OffsetCommit (8).

Behaviour: answered when the offsets are on disk. A group without members accepts commits from any client; its first
commit creates it. A commit for a topic that doesn't exist is refused.
Version notes: v2 to v4 carry a retention time, which is not kept (as in Kafka without it, offsets.retention.minutes
counts); v6 adds the leader epoch, v7 static members; v9 is the first for members of the new consumer protocol, who are
answered STALE_MEMBER_EPOCH when their epoch isn't the current one and a partition of the request was assigned to them
after it (KIP-1251), and says GROUP_ID_NOT_FOUND for a member's unknown group; v10 names topics by id.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.commit_requests import CommittedTopic, answered, prepared
from embedded_broker.api.owner import owner_of
from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.coordinators.offsets import Committer, PartitionCommit, Results
from embedded_broker.wire.responses import Answer

FIRST_WITH_IDS = 10


@api(8, "offset_commit", range(2, 11))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle OffsetCommit: see the behaviour and version notes above."""
    share, asked = conn.share(), [_asked(broker, topic, version) for topic in request.topics]
    who = Committer(
        request.group_id,
        request.member_id,
        request.group_instance_id if version >= 7 else None,
        request.generation_id_or_member_epoch,
        version,
        owner_of(conn),
    )
    known = [each for each in asked if each is not None]
    results, commits = await prepared(broker, share, who, known, has_epochs=version >= 6)
    if commits:
        results |= await _commit(broker, who, commits)
    topics = [
        {
            **({"topic_id": topic.topic_id} if version >= FIRST_WITH_IDS else {"name": topic.name}),
            "partitions": await answered(share, each and each.name, topic.partitions, results),
        }
        for each, topic in zip(asked, request.topics, strict=True)
    ]
    return {"topics": topics}


def _asked(broker: Parts, topic: Any, version: int) -> CommittedTopic | None:
    """Return which topic is meant; None if there is no topic with its id."""
    if version < FIRST_WITH_IDS:
        return CommittedTopic(topic.name, broker.topics.get(topic.name), topic.partitions)
    found = broker.topics.by_id(topic.topic_id)
    return None if found is None else CommittedTopic(found.name, found, topic.partitions)


async def _commit(broker: Parts, who: Committer, commits: list[PartitionCommit]) -> Results:
    group = broker.groups.get(who.group_id)
    if who.version >= 9 and group is None and who.generation >= 0:
        return {commit.partition: ErrorCode.group_id_not_found for commit in commits}
    renew = partial(broker.groups.classic.touch, who.group_id, who.member_id)
    return await broker.groups.offsets.commit(who, group, commits, renew)
