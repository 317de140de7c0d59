"""CreatePartitions (37).

Behaviour: durable before it is answered. Assignments may name this broker only.
Version notes: none that matter here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.disk_full import refused_with
from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.metadata.topics import Topic
from embedded_broker.storage.disk_space import NoSpace
from embedded_broker.wire.responses import Answer

DUPLICATE: Mapping[str, Any] = {"error_code": ErrorCode.invalid_request, "error_message": "Duplicate topic name."}


@api(37, "create_partitions", range(4), changes=True)
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle CreatePartitions: see the behaviour and version notes above."""
    times = Counter(wanted.name for wanted in request.topics)
    twice = [{"name": name, **DUPLICATE} for name, count in times.items() if count > 1]
    once = [wanted for wanted in request.topics if times[wanted.name] == 1]
    return {"results": [*twice, *[await _grow(broker, wanted, request.validate_only) for wanted in once]]}


async def _grow(broker: Parts, wanted: Any, validate_only: bool) -> dict[str, Any]:
    async with broker.metadata.changes.one():
        topic = broker.topics.get(wanted.name)
        if topic is None:
            return _refusal(wanted, ErrorCode.unknown_topic_or_partition, "no such topic")
        problem = _problem(broker, topic, wanted)
        if problem is not None:
            return _refusal(wanted, *problem)
        if not validate_only:
            try:
                await broker.topics.grow(topic, wanted.count)
            except NoSpace as error:
                return _refusal(wanted, *refused_with(error))
    return {"name": wanted.name, "error_message": None}


def _problem(broker: Parts, topic: Topic, wanted: Any) -> tuple[ErrorCode, str] | None:
    more = wanted.count - len(topic.partitions)
    if topic.is_internal:
        return ErrorCode.invalid_request, "an internal topic"
    if more <= 0:
        return ErrorCode.invalid_partitions, f"the topic has {len(topic.partitions)} partitions already"
    if wanted.assignments is not None:
        if len(wanted.assignments) != more:
            return ErrorCode.invalid_replica_assignment, f"{more} partitions, {len(wanted.assignments)} assignments"
        if any(tuple(each.broker_ids) != (broker.config.node_id,) for each in wanted.assignments):
            return ErrorCode.invalid_replica_assignment, f"the only broker is {broker.config.node_id}"
    left = broker.topics.free_partitions()
    if more > left:
        return ErrorCode.policy_violation, f"{left} partitions more can be had on this broker"
    return None


def _refusal(wanted: Any, error_code: ErrorCode, detail: str) -> dict[str, Any]:
    return {"name": wanted.name, "error_code": error_code, "error_message": detail}
