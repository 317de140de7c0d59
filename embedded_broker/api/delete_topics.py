"""DeleteTopics (20).

Behaviour: durable before it is answered; the offsets that groups have on the topic go with it. An open transaction
gets no marker in the deleted topic. A transaction that was already committed or aborted, and lacks markers only in
stopped partitions of this topic, is completed.
A topic that is named more than once is refused, also one that is named by its name and by its id.
Version notes: v6 names topics by name or by id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from embedded_broker.api.disk_full import refusal
from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.storage.disk_space import NoSpace
from embedded_broker.wire.responses import Answer

NAMED_TWICE = "The provided topic name maps to an ID that was already supplied."


@api(20, "delete_topics", range(1, 7), changes=True)
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle DeleteTopics: see the behaviour and version notes above."""
    if version < 6:
        wanted = [(name, None) for name in request.topic_names]
    else:
        wanted = [(each.name, each.topic_id) for each in request.topics]
    times = Counter(wanted)
    twice = _named_by_id_too(broker, times)
    their_ids = set(twice.values())
    answers = []
    for (name, topic_id), count in times.items():
        problem = _problem(name, topic_id, count)
        if name is None and topic_id in their_ids:
            continue  # answered with its name
        if name in twice and topic_id is None:
            topic_id, problem = twice[name], NAMED_TWICE
        if problem is None:
            answers.append(await _delete(broker, name, topic_id))
        else:
            named = {"name": name, "topic_id": topic_id}
            answers.append({**named, "error_code": ErrorCode.invalid_request, "error_message": problem})
    return {"responses": answers}


def _named_by_id_too(broker: Parts, wanted: Iterable[tuple[str | None, UUID | None]]) -> dict[str | None, UUID]:
    """Return the names and ids of topics that are named by both: they are refused, as in Kafka's ControllerApis."""
    ids = {topic_id for name, topic_id in wanted if name is None and topic_id is not None}
    found: dict[str | None, UUID] = {}
    for name, topic_id in wanted if ids else ():
        topic = broker.topics.get(name) if name is not None and topic_id is None else None
        if topic is not None and topic.topic_id in ids:
            found[name] = topic.topic_id
    return found


def _problem(name: str | None, topic_id: UUID | None, count: int) -> str | None:
    """Say why a topic can't even be looked for."""
    if name is not None and topic_id is not None:
        return "You may not specify both topic name and topic id."
    if name is None and topic_id is None:
        return "Neither topic name nor id were specified."
    if count > 1:
        return "Duplicate topic id." if name is None else "Duplicate topic name."
    return None


async def _delete(broker: Parts, name: str | None, topic_id: UUID | None) -> dict[str, Any]:
    async with broker.metadata.changes.one():
        topic = broker.topics.get(name) if name is not None else broker.topics.by_id(topic_id)
        if topic is None:
            missing = ErrorCode.unknown_topic_or_partition if name is not None else ErrorCode.unknown_topic_id
            return {"name": name, "topic_id": topic_id, "error_code": missing, "error_message": "no such topic"}
        answer: dict[str, Any] = {"name": topic.name, "topic_id": topic.topic_id}
        if topic.is_internal:
            return {**answer, "error_code": ErrorCode.invalid_request, "error_message": "an internal topic"}
        try:
            await broker.topics.delete(topic)
        except NoSpace as error:
            return {**answer, **refusal(error)}
        finally:
            if broker.topics.get(topic.name) is not topic:  # also if its files could not be removed
                broker.transactions.on_topic_deleted(topic.name)
                await broker.groups.on_topic_deleted(topic.name)
        return answer
