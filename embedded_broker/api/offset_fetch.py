"""OffsetFetch (9).

Behaviour: a partition without an offset has -1 and no error. With require_stable, a partition that an open transaction
will change is answered UNSTABLE_OFFSET_COMMIT, and the client comes back.
Version notes: v2 may ask for all partitions (null), v5 adds leader epochs, v7 require_stable, v8 many groups at once,
v9 member id and epoch (for the new consumer protocol; not looked at). v10 names topics by id and is not offered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.registry import Answer, api

if TYPE_CHECKING:
    from embedded_broker.broker import Broker
    from embedded_broker.connection import Connection


@api(9, "offset_fetch", range(1, 10))
async def handle(broker: Broker, conn: Connection, request: Any, version: int) -> Answer:
    """See the module."""
    require_stable = request.require_stable if version >= 7 else False
    if version < 8:
        error_code, topics = _fetch(broker, request.group_id, request.topics, require_stable)
        return {"error_code": error_code, "topics": topics}
    groups = []
    for group in request.groups:
        error_code, topics = _fetch(broker, group.group_id, group.topics, require_stable)
        groups.append({"group_id": group.group_id, "topics": topics, "error_code": error_code})
    return {"groups": groups}


def _fetch(broker: Broker, group_id: str, topics: Any, require_stable: bool) -> tuple[ErrorCode, list[dict[str, Any]]]:
    by_topic: dict[str, list[dict[str, Any]]] = {topic.name: [] for topic in topics or ()}
    wanted = [(topic.name, index) for topic in topics or () for index in topic.partition_indexes]
    fetched = broker.groups.offsets.fetch(group_id, None if topics is None else wanted, require_stable)
    for (name, index), found in fetched.items():
        by_topic.setdefault(name, []).append(
            {
                "partition_index": index,
                "committed_offset": found.offset,
                "committed_leader_epoch": found.leader_epoch,
                "metadata": found.metadata,
                "error_code": found.error_code,
            }
        )
    return ErrorCode.none, [{"name": name, "partitions": partitions} for name, partitions in by_topic.items()]
