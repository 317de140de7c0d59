"""CreateTopics (19).

Behaviour: durable before it is answered. The replication factor may be -1 or 1; manual assignments may name this broker
only, with partitions numbered from 0.
Version notes: v5+ answer with the configs that hold; v7+ with the topic id.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.disk_full import refused_with
from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.api.topic_configs_shown import TopicConfigs
from embedded_broker.metadata import topic_configs
from embedded_broker.metadata.topic_names import name_problem
from embedded_broker.storage.disk_space import NoSpace
from embedded_broker.wire.responses import Answer

CHANGES_MAX = 10_000
"""Of one request, each topic and each partition counted: MAX_RECORDS_PER_USER_OP and MAX_PARTITIONS_PER_BATCH."""
TOPIC_STEPS, TOPIC_BYTES = 100, 5_000


class TopicRejected(Exception):
    """A topic that isn't created."""

    def __init__(self, error_code: ErrorCode, detail: str) -> None:
        super().__init__(detail)
        self.error_code = error_code


@api(19, "create_topics", range(2, 8), changes=True)
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle CreateTopics: see the behaviour and version notes above."""
    if (problem := _too_many(broker, request.topics)) is not None:
        policy = {"error_code": ErrorCode.policy_violation, "error_message": problem}
        return {"topics": [{"name": name, **policy} for name in dict.fromkeys(topic.name for topic in request.topics)]}
    names = Counter(topic.name for topic in request.topics)
    answers, share, shown = [], conn.share(), TopicConfigs(broker.dynamic_configs, describes=False)
    await share.spent(0, TOPIC_BYTES * len(request.topics))
    for topic in request.topics:
        if names[topic.name] > 1:
            continue
        await share.spent(TOPIC_STEPS)
        try:
            answers.append(await _create(broker, topic, request.validate_only, shown))
        except TopicRejected as refused:
            answers.append({"name": topic.name, "error_code": refused.error_code, "error_message": str(refused),
                            "num_partitions": -1, "replication_factor": -1})  # fmt: skip
    twice = [name for name, count in names.items() if count > 1]
    message = "the request names this topic more than once"
    answers += [{"name": name, "error_code": ErrorCode.invalid_request, "error_message": message} for name in twice]
    return {"topics": answers}


def _too_many(broker: Parts, topics: Any) -> str | None:
    """Say why none of them can be made: what one operation may do is bounded, as in Kafka's
    ReplicationControlManager.
    """
    default = broker.config.partitions_default
    partitions = 0
    for each in topics:
        count = default if each.num_partitions == -1 else each.num_partitions
        partitions += len(each.assignments) or max(count, 0)
    if partitions > CHANGES_MAX:
        return "Excessively large number of partitions per request."
    if partitions + len(topics) > CHANGES_MAX:
        return "Unable to perform excessively large batch operation."
    return None


async def _create(broker: Parts, wanted: Any, validate_only: bool, shown: TopicConfigs) -> dict[str, Any]:
    """Create one topic. Raises TopicRejected."""
    if empty := [config.name for config in wanted.configs if config.value is None]:
        raise TopicRejected(ErrorCode.invalid_config, f"Null value not supported for topic configs: {','.join(empty)}")
    configs = {config.name: config.value for config in wanted.configs}
    async with broker.metadata.changes.one():
        _check_name(broker, wanted.name)
        count = _count_partitions(broker, wanted)
        try:
            topic_configs.check_together(configs)
        except topic_configs.InvalidConfig as error:
            raise TopicRejected(ErrorCode.invalid_config, str(error)) from error
        answer: dict[str, Any] = {"name": wanted.name, "num_partitions": count, "replication_factor": 1}
        answer["configs"] = shown.of(configs)
        # As in Kafka, a topic that is only tried out has an id, too; it isn't kept.
        answer["topic_id"] = broker.new_uuid()
        if not validate_only:
            try:
                topic = await broker.topics.create(wanted.name, count, configs)
            except NoSpace as error:
                raise TopicRejected(*refused_with(error)) from error
            answer["topic_id"] = topic.topic_id
    return answer


def _check_name(broker: Parts, name: str) -> None:
    problem = name_problem(name)
    if problem is not None:
        raise TopicRejected(ErrorCode.invalid_topic_exception, problem)
    if broker.topics.get(name) is not None:
        raise TopicRejected(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
    if (other := broker.topics.colliding(name)) is not None:
        raise TopicRejected(ErrorCode.invalid_topic_exception, f"Topic '{name}' collides with '{other}'")


def _count_partitions(broker: Parts, wanted: Any) -> int:
    """Count the partitions that are asked for. Raises TopicRejected."""
    count = int(wanted.num_partitions)
    if wanted.assignments:
        if count != -1 or wanted.replication_factor != -1:
            raise TopicRejected(ErrorCode.invalid_request, "either assignments or counts can be given")
        if sorted(each.partition_index for each in wanted.assignments) != list(range(len(wanted.assignments))):
            raise TopicRejected(ErrorCode.invalid_replica_assignment, "partitions must be numbered from 0")
        if any(tuple(each.broker_ids) != (broker.config.node_id,) for each in wanted.assignments):
            raise TopicRejected(ErrorCode.invalid_replica_assignment, f"the only broker is {broker.config.node_id}")
        count = len(wanted.assignments)
    elif wanted.replication_factor not in (-1, 1):
        raise TopicRejected(
            ErrorCode.invalid_replication_factor, f"replication factor {wanted.replication_factor}: 1 broker"
        )
    count = broker.config.partitions_default if count == -1 else count
    if count < 1:
        raise TopicRejected(ErrorCode.invalid_partitions, "a topic needs at least 1 partition")
    left = broker.topics.free_partitions()
    if count > left:
        raise TopicRejected(ErrorCode.policy_violation, f"{left} partitions more can be had on this broker")
    return count
