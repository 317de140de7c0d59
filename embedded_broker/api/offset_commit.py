"""OffsetCommit (8).

Behaviour: answered when the offsets are on disk. A group without members takes commits from anybody; its first
commit makes it. A topic that doesn't exist is refused.
Version notes: v2 to v4 carry a retention time, which is not kept (as in Kafka without it, offsets.retention.minutes
counts); v6 adds the leader epoch, v7 static members; v9 says GROUP_ID_NOT_FOUND for a member's unknown group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.registry import Answer, api
from embedded_broker.coordinators.offsets import Commit, Committer, Results

if TYPE_CHECKING:
    from embedded_broker.broker import Broker
    from embedded_broker.connection import Connection


@api(8, "offset_commit", range(2, 10))
async def handle(broker: Broker, conn: Connection, request: Any, version: int) -> Answer:
    """See the module."""
    generation = request.generation_id_or_member_epoch
    instance_id = request.group_instance_id if version >= 7 else None
    who = Committer(request.group_id, request.member_id, instance_id, generation)
    group = broker.groups.get(request.group_id)
    results: Results = {}
    commits: list[Commit] = []
    for topic in request.topics:
        for each in topic.partitions:
            partition = (topic.name, each.partition_index)
            if broker.topics.partition(*partition) is None:
                results[partition] = ErrorCode.unknown_topic_or_partition
                continue
            leader_epoch = each.committed_leader_epoch if version >= 6 else -1
            commits.append(Commit(partition, each.committed_offset, leader_epoch, each.committed_metadata or ""))
    if version >= 9 and group is None and generation >= 0:
        results |= {commit.partition: ErrorCode.group_id_not_found for commit in commits}
    elif commits:
        broker.groups.touch(request.group_id, request.member_id)
        results |= await broker.groups.offsets.commit(who, group, commits)
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": each.partition_index,
                        "error_code": results[topic.name, each.partition_index],
                    }
                    for each in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }
