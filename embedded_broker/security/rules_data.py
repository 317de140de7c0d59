"""Rights that reading, writing and transactions need. Source: kafka.server.KafkaApis."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.metadata.topic_names import name_problem
from embedded_broker.security.acls import CLUSTER_NAME, Operation, Resource
from embedded_broker.security.rules import (
    REFUSAL,
    After,
    Denied,
    Each,
    Fields,
    Merge,
    Rights,
    Rule,
    Special,
    Whole,
    cluster,
    code_only,
    partition_errors,
    topic_key,
    topics,
)

ATTRIBUTES_AT, TRANSACTIONAL = 22, 0x10
"""Of a record batch: its attributes' lower byte, and the bit in it."""
NO_PRODUCER: Fields = {"producer_id": -1, "producer_epoch": -1}


def _of_every_topic(request: Any, items: str, refused: Any, answers: str, code: ErrorCode) -> Fields:
    """Say a whole request's refusal of each partition."""
    return {answers: [refused(item, code) for item in getattr(request, items)]}


def _produced(item: Any, code: ErrorCode) -> Fields:
    errors = [{"index": each.index, "error_code": code, "base_offset": -1} for each in item.partition_data]
    return {**topic_key(item), "partition_responses": errors}


def _nothing_fetched(number: int, code: ErrorCode) -> Fields:
    return {"partition_index": number, "error_code": code, "high_watermark": -1, "records": b""}


class TopicAnswer:
    """A topic of an answer, as `Rights.topic_name` takes it."""

    def __init__(self, fields: Fields) -> None:
        self.__dict__.update({key: fields[key] for key in ("name", "topic", "topic_id") if key in fields})


def _fetched_without_right(rights: Rights, request: Any, answer: Fields) -> Fields:
    """Refuse what was fetched without a right: while a fetch waits, an ACL may go. (The handler has looked at those
    before: see there.)
    """
    shown = []
    for topic in answer.get("responses", ()):
        name = rights.topic_name(TopicAnswer(topic))
        code = next((each.get("error_code") for each in topic["partitions"]), None)
        if name is None or code is REFUSAL[Resource.TOPIC] or rights.may(Operation.READ, Resource.TOPIC, name):
            shown.append(topic)
        else:
            refused = [
                _nothing_fetched(each["partition_index"], REFUSAL[Resource.TOPIC]) for each in topic["partitions"]
            ]
            shown.append({**topic, "partitions": refused})
    return {**answer, "responses": shown}


def _epochs(item: Any, code: ErrorCode) -> Fields:
    return {"topic": item.topic, "partitions": [{"partition": each.partition, "error_code": code, "end_offset": -1}
                                                for each in item.partitions]}  # fmt: skip


def _init_producer_id(rights: Rights, request: Any) -> tuple[Any, Merge | None]:
    """Check the right to a producer id. Without a transactional id: who may write anywhere may write idempotently
    (KIP-679).
    """
    name = request.transactional_id
    if name is None:
        resource = Resource.CLUSTER
        allowed = rights.may(Operation.IDEMPOTENT_WRITE, resource, CLUSTER_NAME) or rights.may_with_some(
            Operation.WRITE, Resource.TOPIC
        )
    else:
        resource = Resource.TRANSACTIONAL_ID
        allowed = rights.may(Operation.WRITE, resource, name)
    if not allowed:
        raise Denied({"error_code": REFUSAL[resource], **NO_PRODUCER})
    return request, None


def _added(name: str, partitions: Any, code: ErrorCode) -> Fields:
    errors = [{"partition_index": index, "partition_error_code": code} for index in partitions]
    return {"name": name, "results_by_partition": errors}


def _add_partitions(rights: Rights, request: Any) -> tuple[Any, Merge | None]:
    """Allow all or nothing. Several transactions at once (v4+) are asked for by brokers only."""
    if not hasattr(request, "v3_and_below_topics"):
        if not rights.may(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
            raise Denied({"error_code": REFUSAL[Resource.CLUSTER]})
        return request, None
    named = {topic.name: topic.partitions for topic in request.v3_and_below_topics}
    if not rights.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        codes = dict.fromkeys(named, REFUSAL[Resource.TRANSACTIONAL_ID])
    else:
        codes = {
            name: ErrorCode.operation_not_attempted
            if rights.may(Operation.WRITE, Resource.TOPIC, name)
            else REFUSAL[Resource.TOPIC]
            for name in named
        }
        if REFUSAL[Resource.TOPIC] not in codes.values():
            return request, None
    raise Denied({"results_by_topic_v3_and_below": [_added(name, named[name], codes[name]) for name in named]})


def _transactional(*, items: str = "", refused: Any = None, answers: str = "") -> Whole:
    """Make the rule of the transactional id of the request, if it has one; refused as a whole, or said of each
    partition.
    """
    return Whole(
        Operation.WRITE,
        Resource.TRANSACTIONAL_ID,
        lambda request: request.transactional_id,
        (lambda request, code: _of_every_topic(request, items, refused, answers, code)) if items else code_only,
    )


def _described(rights: Rights, request: Any, answer: Fields) -> Fields:
    """Leave out topics of a transaction that its reader may not see."""
    states = [
        {**state, "topics": [each for each in state.get("topics", ())
                             if rights.may(Operation.DESCRIBE, Resource.TOPIC, each["topic"])]}
        for state in answer.get("transaction_states", ())
    ]  # fmt: skip
    return {**answer, "transaction_states": states}


def _listed(rights: Rights, request: Any, answer: Fields) -> Fields:
    states = [
        state
        for state in answer.get("transaction_states", ())
        if rights.may(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, state["transactional_id"])
    ]
    return {**answer, "transaction_states": states}


def _without_markers(rights: Rights, request: Any) -> tuple[Any, Merge | None]:
    """Check the right to write markers, as brokers do, and operators who end hanging transactions (KIP-664)."""
    if rights.may(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        return request, None
    whole = cluster(Operation.CLUSTER_ACTION, _marker_errors)
    return whole.before(rights, request)


def _marker_errors(request: Any, code: ErrorCode) -> Fields:
    error = partition_errors("partition_indexes")
    return {
        "markers": [
            {"producer_id": marker.producer_id, "topics": [error(topic, code) for topic in marker.topics]}
            for marker in request.markers
        ]
    }


_GROUP_OF_OFFSETS = Whole(
    Operation.READ,
    Resource.GROUP,
    lambda request: request.group_id,
    lambda request, code: _of_every_topic(request, "topics", partition_errors(), "topics", code),
)
_OFFSETS = partition_errors(timestamp=-1, offset=-1)
_PRODUCERS = partition_errors("partition_indexes", active_producers=[])


def _has_transactional_records(request: Any) -> bool:
    """Return whether there are transactional records: only then its transactional id matters
    (`RequestUtils.hasTransactionalRecords`).
    """
    batches = (each.records or b"" for topic in request.topic_data for each in topic.partition_data)
    return any(len(batch) > ATTRIBUTES_AT and batch[ATTRIBUTES_AT] & TRANSACTIONAL for batch in batches)


RULES: Mapping[str, tuple[Rule, ...]] = {
    "produce": (
        Whole(
            Operation.WRITE,
            Resource.TRANSACTIONAL_ID,
            lambda request: (request.transactional_id or "") if _has_transactional_records(request) else None,
            lambda request, code: _of_every_topic(request, "topic_data", _produced, "responses", code),
        ),
        topics(Operation.WRITE, _produced, "topic_data", "responses"),
    ),
    "fetch": (After(_fetched_without_right),),
    "list_offsets": (topics(Operation.DESCRIBE, _OFFSETS),),
    "offset_for_leader_epoch": (topics(Operation.DESCRIBE, _epochs),),
    "delete_records": (topics(Operation.DELETE, partition_errors(low_watermark=-1)),),
    "init_producer_id": (Special(_init_producer_id),),
    "add_partitions_to_txn": (Special(_add_partitions),),
    "add_offsets_to_txn": (
        _transactional(),
        Whole(Operation.READ, Resource.GROUP, lambda request: request.group_id, code_only),
    ),
    "end_txn": (_transactional(),),
    "txn_offset_commit": (
        _transactional(items="topics", refused=partition_errors(), answers="topics"),
        _GROUP_OF_OFFSETS,
        topics(Operation.READ, partition_errors()),
    ),
    "write_txn_markers": (Special(_without_markers),),
    "describe_producers": (
        dataclasses.replace(
            topics(Operation.READ, _PRODUCERS),
            name=lambda rights, item: item.name if name_problem(item.name) is None else None,  # the handler says so
        ),
    ),
    "describe_transactions": (
        Each(
            Operation.DESCRIBE,
            Resource.TRANSACTIONAL_ID,
            "transactional_ids",
            "transaction_states",
            lambda item, code: {"transactional_id": item, "error_code": code, "transaction_state": "", "topics": []},
            lambda rights, item: str(item),
        ),
        After(_described),
    ),
    "list_transactions": (After(_listed),),
    "offset_commit": (_GROUP_OF_OFFSETS, topics(Operation.READ, partition_errors())),
}


offset_error = partition_errors("partition_indexes", committed_offset=-1, committed_leader_epoch=-1, metadata="")
"""How OffsetFetch refuses a topic."""


def offsets_of_group(rights: Rights, group: Any) -> tuple[Any, list[Fields], bool]:
    """Return (a group of OffsetFetch without topics that may not be seen, those refused, whether the group itself may
    be).
    """
    if not rights.may(Operation.DESCRIBE, Resource.GROUP, group.group_id):
        return group, [], False
    allowed, refused = [], []
    for each in group.topics or ():
        name = rights.topic_name(each)
        if name is None or rights.may(Operation.DESCRIBE, Resource.TOPIC, name):
            allowed.append(each)
        else:
            refused.append(offset_error(each, REFUSAL[Resource.TOPIC]))
    if group.topics is not None:
        group = dataclasses.replace(group, topics=tuple(allowed))
    return group, refused, True
