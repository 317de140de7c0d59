"""Rights that metadata, groups and administration need. Source: kafka.server.KafkaApis, ControllerApis, AclApis."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.metadata.topic_names import METADATA_BY_ID_SINCE, NO_ID, id_in, is_by_id
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
from embedded_broker.security.rules_data import TopicAnswer, offset_error, offsets_of_group

TRANSACTION = 1
TOPIC_RESOURCE, BROKER_RESOURCE, GROUP_RESOURCE = 2, 4, 32
_RESOURCES = {TOPIC_RESOURCE: Resource.TOPIC, GROUP_RESOURCE: Resource.GROUP}


def _metadata(rights: Rights, request: Any) -> tuple[Any, Merge | None]:
    """Refuse by name what was asked for by name; of all topics leave out those that may not be seen."""
    asks_all = request.topics is None or (type(request).__version__ == 0 and not request.topics)
    if asks_all:
        return request, lambda answer: {**answer, "topics": [
            each for each in answer["topics"] if rights.may(Operation.DESCRIBE, Resource.TOPIC, each["name"])
        ]}  # fmt: skip
    if type(request).__version__ < METADATA_BY_ID_SINCE and any(is_by_id(item) for item in request.topics):
        return request, None  # the handler refuses all of it
    creates = getattr(request, "allow_auto_topic_creation", True)  # before version 4 there is no way not to
    may_create_all = creates and rights.may(Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME)
    allowed, refused = [], []
    for item in request.topics:
        name = rights.topic_name(item)
        is_shown = name is None or rights.may(Operation.DESCRIBE, Resource.TOPIC, name)
        if is_shown and (not creates or may_create_all or name is None or _may_create_if_missing(rights, name)):
            allowed.append(item)
        else:
            refused.append(_not_shown(item))
    if not refused:
        return request, None
    cut = dataclasses.replace(request, topics=tuple(allowed))
    if not allowed and type(request).__version__ == 0:
        return cut, lambda answer: {**answer, "topics": refused}
    return cut, lambda answer: {**answer, "topics": [*answer["topics"], *refused]}


def _may_create_if_missing(rights: Rights, name: str) -> bool:
    """Return whether there is nothing to create, or the client has the right to."""
    return not rights.creates_topic(name) or rights.may(Operation.CREATE, Resource.TOPIC, name)


def _not_shown(item: Any) -> Fields:
    """Tell neither name nor id of a topic to who named it by the other."""
    by_id = id_in(item) != NO_ID
    identity = {"name": None, "topic_id": item.topic_id} if by_id else {"name": item.name, "topic_id": NO_ID}
    return {**identity, "error_code": REFUSAL[Resource.TOPIC], "partitions": []}


def _create_topics(rights: Rights, request: Any) -> tuple[Any, Merge | None]:
    if rights.may(Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME):
        return request, None
    each = topics(Operation.CREATE, _named("Authorization failed.", num_partitions=-1, replication_factor=-1))
    return dataclasses.replace(each, name=lambda rights, item: item.name).before(rights, request)


def _delete_topics(rights: Rights, request: Any) -> tuple[Any, Merge | None]:
    """Refuse topics; of one named by id that may not be seen no more than that is told."""
    if hasattr(request, "topic_names"):
        return Each(Operation.DELETE, Resource.TOPIC, "topic_names", "responses",
                    lambda item, code: {"name": item, "error_code": code, "error_message": "Authorization failed."},
                    lambda rights, item: str(item)).before(rights, request)  # fmt: skip

    def refused(item: Any, code: ErrorCode) -> Fields:
        key = topic_key(item)
        return {"name": None, **key, "error_code": code, "error_message": "Authorization failed."}

    return topics(Operation.DELETE, refused, "topics", "responses").before(rights, request)


def _named(message: str | None = None, **more: Any) -> Callable[[Any, ErrorCode], Fields]:
    """Return a function that refuses a topic by its name alone."""
    return lambda item, code: {"name": item.name, "error_code": code, "error_message": message, **more}


def _configs(operation: Operation, answers: str) -> Special:
    """Make the rule of configs: those of topics and groups need a right for these, all others one for the cluster."""

    def decide(rights: Rights, request: Any) -> tuple[Any, Merge | None]:
        allowed, refused = [], []
        for item in request.resources:
            resource = _RESOURCES.get(item.resource_type, Resource.CLUSTER)
            name = CLUSTER_NAME if resource is Resource.CLUSTER else item.resource_name
            if rights.may(operation, resource, name):
                allowed.append(item)
            else:
                key = {"resource_type": item.resource_type, "resource_name": item.resource_name}
                more: Fields = {"configs": []} if answers == "results" else {}
                refused.append({**key, **more, "error_code": REFUSAL[resource], "error_message": None})
        cut = dataclasses.replace(request, resources=tuple(allowed))
        return cut, lambda answer: {**answer, answers: [*answer[answers], *refused]}

    return Special(decide)


def _find_coordinator(rights: Rights, request: Any) -> tuple[Any, Merge | None]:
    resource = Resource.TRANSACTIONAL_ID if getattr(request, "key_type", 0) == TRANSACTION else Resource.GROUP
    nowhere = {"error_code": REFUSAL[resource], "error_message": None, "node_id": -1, "host": "", "port": -1}
    if hasattr(request, "key"):
        if not rights.may(Operation.DESCRIBE, resource, request.key):
            raise Denied(nowhere)
        return request, None
    return Each(Operation.DESCRIBE, resource, "coordinator_keys", "coordinators",
                lambda item, code: {**nowhere, "key": item}, lambda rights, item: str(item)
                ).before(rights, request)  # fmt: skip


def _offset_fetch(rights: Rights, request: Any) -> tuple[Any, Merge | None]:
    if not hasattr(request, "groups"):
        cut, refused, may = offsets_of_group(rights, request)
        if not may:
            code = REFUSAL[Resource.GROUP]
            # v1 has no error for the whole.
            listed = [offset_error(each, code) for each in request.topics or ()]
            raise Denied({"error_code": code, "topics": listed if type(request).__version__ == 1 else []})
        return cut, lambda answer: _seen(rights, answer, refused)
    groups, added, extra = [], [], {}
    for group in request.groups:
        cut, refused, may = offsets_of_group(rights, group)
        if may:
            groups.append(cut)
            extra[group.group_id] = refused
        else:
            added.append({"group_id": group.group_id, "error_code": REFUSAL[Resource.GROUP], "topics": []})

    def merge(answer: Fields) -> Fields:
        seen = [_seen(rights, group, extra.get(group["group_id"], [])) for group in answer["groups"]]
        return {**answer, "groups": [*seen, *added]}

    return dataclasses.replace(request, groups=tuple(groups)), merge


def _seen(rights: Rights, group: Fields, refused: list[Fields]) -> Fields:
    """Leave of all offsets of a group only those of topics that may be seen; what there is no topic of, too."""
    named = [(each, rights.topic_name(TopicAnswer(each))) for each in group.get("topics", ())]
    shown = [each for each, name in named if name is None or rights.may(Operation.DESCRIBE, Resource.TOPIC, name)]
    return {**group, "topics": [*shown, *refused]}


def _not_elected(request: Any, code: ErrorCode) -> Fields:
    """Refuse the whole request, each partition by itself in v0, which has no error for the whole."""
    if type(request).__version__ > 0:
        return {"error_code": code, "replica_election_results": []}
    results = [
        {"topic": topic.topic, "partition_result": [{"partition_id": each, "error_code": code, "error_message": None}
                                                    for each in topic.partitions]}
        for topic in request.topic_partitions or ()
    ]  # fmt: skip
    return {"replica_election_results": results}


def _list_groups(rights: Rights, request: Any, answer: Fields) -> Fields:
    if rights.may(Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        return answer
    shown = [each for each in answer["groups"] if rights.may(Operation.DESCRIBE, Resource.GROUP, each["group_id"])]
    return {**answer, "groups": shown}


def _describe_topic_partitions(rights: Rights, request: Any) -> tuple[Any, Merge | None]:
    """Refuse by name what was asked for by name; if it is all, the handler leaves out what may not be seen."""
    if not request.topics:
        return request, None
    cut, merge = topics(Operation.DESCRIBE, lambda item, code: _not_shown(item)).before(rights, request)
    if merge is not None and not cut.topics:  # else the handler would take it for a request for all
        raise Denied(merge({"topics": [], "next_cursor": None}))
    return cut, merge


def _unseen_assignments(rights: Rights, request: Any, answer: Fields) -> Fields:
    """Refuse to describe a group that reads a topic that may not be seen."""
    return {**answer, "groups": [_described_group(rights, group) for group in answer.get("groups", ())]}


def _described_group(rights: Rights, group: Fields) -> Fields:
    names = {
        part["topic_name"]
        for member in group.get("members", ())
        for which in ("assignment", "target_assignment")
        for part in (member.get(which) or {}).get("topic_partitions", ())
    }
    if all(rights.may(Operation.DESCRIBE, Resource.TOPIC, name) for name in names):
        return group
    message = "The group has described topic(s) that the client is not authorized to describe."
    return {"group_id": group["group_id"], "error_code": REFUSAL[Resource.TOPIC], **_NO_CONSUMER_GROUP,
            "error_message": message}  # fmt: skip


def _group(operation: Operation, **more: Any) -> Whole:
    return Whole(operation, Resource.GROUP, lambda request: request.group_id,
                 lambda request, code: {"error_code": code, **more})  # fmt: skip


def _groups(operation: Operation, items: str, answers: str, **more: Any) -> Each:
    return Each(operation, Resource.GROUP, items, answers,
                lambda item, code: {"group_id": item, "error_code": code, **more},
                lambda rights, item: str(item))  # fmt: skip


def _subscription(rights: Rights, request: Any) -> tuple[Any, Merge | None]:
    """Check that a subscriber is allowed to describe each topic that it names, as KIP-848 has it."""
    for name in request.subscribed_topic_names or ():
        if not rights.may(Operation.DESCRIBE, Resource.TOPIC, name):
            raise Denied({"error_code": REFUSAL[Resource.TOPIC]})
    return request, None


def _of_list(
    items: str, answer: Callable[[Any, ErrorCode], Fields], answers: str
) -> Callable[[Any, ErrorCode], Fields]:
    """Return a function that says a whole request's refusal of each item."""
    return lambda request, code: {answers: [answer(item, code) for item in getattr(request, items)]}


_FREE: tuple[Rule, ...] = ()
_NO_GROUP: Fields = {"protocol_type": "", "protocol_data": "", "group_state": "", "members": []}
_NO_CONSUMER_GROUP: Fields = {"error_message": None, "group_state": "", "group_epoch": 0, "assignment_epoch": 0,
                      "assignor_name": "", "members": []}  # fmt: skip

RULES: Mapping[str, tuple[Rule, ...]] = {
    "api_versions": _FREE,
    "sasl_handshake": _FREE,
    "sasl_authenticate": _FREE,
    "describe_cluster": _FREE,
    "describe_delegation_token": _FREE,
    "metadata": (Special(_metadata),),
    "describe_topic_partitions": (Special(_describe_topic_partitions),),
    "find_coordinator": (Special(_find_coordinator),),
    "create_topics": (Special(_create_topics),),
    "delete_topics": (Special(_delete_topics),),
    "create_partitions": (topics(Operation.ALTER, _named(), "topics", "results"),),
    "describe_configs": (_configs(Operation.DESCRIBE_CONFIGS, "results"),),
    "alter_configs": (_configs(Operation.ALTER_CONFIGS, "responses"),),
    "incremental_alter_configs": (_configs(Operation.ALTER_CONFIGS, "responses"),),
    "describe_log_dirs": (cluster(Operation.DESCRIBE, lambda request, code: {"error_code": code, "results": []}),),
    "alter_replica_log_dirs": (
        cluster(
            Operation.ALTER,
            lambda request, code: {
                "results": [
                    {
                        "topic_name": topic.name,
                        "partitions": [{"partition_index": each, "error_code": code} for each in topic.partitions],
                    }
                    for directory in request.dirs
                    for topic in directory.topics
                ]
            },
        ),
    ),
    "describe_quorum": (
        cluster(
            Operation.DESCRIBE,
            lambda request, code: {"error_code": code, "error_message": None, "topics": [], "nodes": []},
        ),
    ),
    "offset_fetch": (Special(_offset_fetch),),
    "join_group": (_group(Operation.READ, generation_id=-1, protocol_name="", leader="", member_id="", members=[]),),
    "sync_group": (_group(Operation.READ, assignment=b""),),
    "heartbeat": (_group(Operation.READ),),
    "leave_group": (_group(Operation.READ, members=[]),),
    "consumer_group_heartbeat": (_group(Operation.READ), Special(_subscription)),
    "describe_groups": (_groups(Operation.DESCRIBE, "groups", "groups", **_NO_GROUP),),
    "consumer_group_describe": (
        After(_unseen_assignments),
        _groups(Operation.DESCRIBE, "group_ids", "groups", **_NO_CONSUMER_GROUP),
    ),
    "list_groups": (After(_list_groups),),
    "delete_groups": (_groups(Operation.DELETE, "groups_names", "results"),),
    "offset_delete": (_group(Operation.DELETE), topics(Operation.READ, partition_errors())),
    "describe_acls": (cluster(Operation.DESCRIBE, lambda request, code: {"error_code": code, "resources": []}),),
    "create_acls": (cluster(Operation.ALTER, _of_list("creations", code_only, "results")),),
    "delete_acls": (cluster(Operation.ALTER, _of_list("filters", code_only, "filter_results")),),
    "describe_user_scram_credentials": (
        cluster(Operation.DESCRIBE, lambda request, code: {"error_code": code, "results": []}),
    ),
    "alter_user_scram_credentials": (
        cluster(
            Operation.ALTER,
            lambda request, code: {
                "results": [
                    {"user": name, "error_code": code}
                    for name in sorted({item.name for item in (*request.deletions, *request.upsertions)})
                ]
            },
        ),
    ),
    "list_config_resources": (
        cluster(Operation.DESCRIBE_CONFIGS, lambda request, code: {"error_code": code, "config_resources": []}),
    ),
    "elect_leaders": (cluster(Operation.ALTER, _not_elected),),
    "alter_partition_reassignments": (
        cluster(Operation.ALTER, lambda request, code: {"error_code": code, "responses": []}),
    ),
    "list_partition_reassignments": (
        cluster(Operation.DESCRIBE, lambda request, code: {"error_code": code, "topics": []}),
    ),
    "describe_client_quotas": (
        cluster(Operation.DESCRIBE_CONFIGS, lambda request, code: {"error_code": code, "entries": None}),
    ),
    "alter_client_quotas": (
        cluster(
            Operation.ALTER_CONFIGS,
            _of_list(
                "entries",
                lambda item, code: {
                    "error_code": code,
                    "entity": [
                        {"entity_type": each.entity_type, "entity_name": each.entity_name} for each in item.entity
                    ],
                },
                "entries",
            ),
        ),
    ),
}
