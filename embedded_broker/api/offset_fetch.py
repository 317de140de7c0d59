"""OffsetFetch (9).

Behaviour: a partition without an offset has -1 and no error. With require_stable, a partition that an open transaction
will change is answered UNSTABLE_OFFSET_COMMIT, and the client retries.
Version notes: v2 may ask for all partitions (null), v5 adds leader epochs, v7 require_stable, v8 many groups at once,
v9 member id and epoch, which are checked in groups of the new consumer protocol (UNKNOWN_MEMBER_ID,
STALE_MEMBER_EPOCH); v10 names topics by id.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.coordinators.offsets import FetchedOffset
from embedded_broker.runtime.fair_share import Share
from embedded_broker.state.consumer_groups import ConsumerGroup
from embedded_broker.wire.responses import ENTRY_BYTES, Answer

FIRST_WITH_IDS = 10


@api(9, "offset_fetch", range(1, 11))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle OffsetFetch: see the behaviour and version notes above."""
    require_stable = request.require_stable if version >= 7 else False
    share = conn.share()
    if version < 8:
        topics = _by_name(broker, request.group_id, request.topics, require_stable)
        await _pay(share, topics)
        return {"topics": topics}
    groups = []
    for group in request.groups:
        answer: dict[str, Any] = {"group_id": group.group_id, "error_code": _refusal(broker, group, version)}
        if answer["error_code"] is ErrorCode.none:
            fetch = _by_id if version >= FIRST_WITH_IDS else _by_name
            answer["topics"] = fetch(broker, group.group_id, group.topics, require_stable)
        groups.append(answer)
        await _pay(share, answer.get("topics", ()))
    return {"groups": groups}


async def _pay(share: Share, topics: Iterable[dict[str, Any]]) -> None:
    """Pay for what was found. Of its texts the answer has copies only when it is encoded."""
    partitions = [each for topic in topics for each in topic["partitions"]]
    await share.spent(1 + len(partitions), sum(ENTRY_BYTES + len(each["metadata"]) for each in partitions))


def _refusal(broker: Parts, wanted: Any, version: int) -> ErrorCode:
    group = broker.groups.get(wanted.group_id)
    if version < 9 or not isinstance(group, ConsumerGroup):
        return ErrorCode.none
    return group.validate_fetch(wanted.member_id, wanted.member_epoch)


def _by_name(broker: Parts, group_id: str, topics: Any, require_stable: bool) -> list[dict[str, Any]]:
    by_topic: dict[str, list[dict[str, Any]]] = {topic.name: [] for topic in topics or ()}
    wanted = [(topic.name, index) for topic in topics or () for index in topic.partition_indexes]
    fetched = broker.groups.offsets.fetch(group_id, None if topics is None else wanted, require_stable)
    for (name, index), found in fetched.items():
        by_topic.setdefault(name, []).append(_partition(index, found))
    return [{"name": name, "partitions": partitions} for name, partitions in by_topic.items()]


def _by_id(broker: Parts, group_id: str, topics: Any, require_stable: bool) -> list[dict[str, Any]]:
    if topics is None:
        every = _by_name(broker, group_id, None, require_stable)
        known = [(broker.topics.get(each["name"]), each["partitions"]) for each in every]
        return [{"topic_id": topic.topic_id, "partitions": found} for topic, found in known if topic is not None]
    answers = []
    for wanted in topics:
        topic = broker.topics.by_id(wanted.topic_id)
        if topic is None:
            unknown = FetchedOffset(error_code=ErrorCode.unknown_topic_id)
            partitions = [_partition(index, unknown) for index in wanted.partition_indexes]
        else:
            asked = [(topic.name, index) for index in wanted.partition_indexes]
            fetched = broker.groups.offsets.fetch(group_id, asked, require_stable)
            partitions = [_partition(index, found) for (_, index), found in fetched.items()]
        answers.append({"topic_id": wanted.topic_id, "partitions": partitions})
    return answers


def _partition(index: int, found: FetchedOffset) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": found.offset,
        "committed_leader_epoch": found.leader_epoch,
        "metadata": found.metadata,
        "error_code": found.error_code,
    }
