"""APIs with nothing to do on a broker that is alone: reassignments, elections, other log directories.

The table `STUBS` has them all; each answers from the request and what exists. Their notes for docs/protocol.md are the
docstrings here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import Handler, api
from embedded_broker.wire.responses import Answer, Fields

Stub = Callable[[Parts, Any], Fields]
"""Given the request, the response."""


def _elect_leaders(broker: Parts, request: Any) -> Fields:
    """Behaviour: this broker leads every partition already: ELECTION_NOT_NEEDED for each that exists.
    Version notes: v1 adds the kind of election and an error for all; without partitions it means all, and those that
    need no election aren't listed.
    """

    def result(topic: str, index: int) -> dict[str, Any]:
        error_code, message = ErrorCode.election_not_needed, "the one broker leads it already"
        if broker.topics.partition(topic, index) is None:
            error_code, message = ErrorCode.unknown_topic_or_partition, "no such partition"
        return {"partition_id": index, "error_code": error_code, "error_message": message}

    return {
        "replica_election_results": [
            {"topic": topic.topic, "partition_result": [result(topic.topic, index) for index in topic.partitions]}
            for topic in request.topic_partitions or ()
        ]
    }


def _alter_partition_reassignments(broker: Parts, request: Any) -> Fields:
    """Behaviour: a partition may be "moved" to this broker, where it is. Other replicas are refused, since those
    brokers don't exist (INVALID_REPLICA_ASSIGNMENT); there is never a reassignment to cancel
    (NO_REASSIGNMENT_IN_PROGRESS).
    Version notes: v1 may forbid a change of the replication factor, which is always 1.
    """

    def result(topic: str, wanted: Any) -> dict[str, Any]:
        error_code, message = ErrorCode.none, None
        if broker.topics.partition(topic, wanted.partition_index) is None:
            error_code, message = ErrorCode.unknown_topic_or_partition, "no such partition"
        elif wanted.replicas is None:
            error_code, message = ErrorCode.no_reassignment_in_progress, "the partition isn't being moved"
        elif tuple(wanted.replicas) != (broker.config.node_id,):
            error_code, message = ErrorCode.invalid_replica_assignment, f"the only broker is {broker.config.node_id}"
        return {"partition_index": wanted.partition_index, "error_code": error_code, "error_message": message}

    return {
        "error_message": None,
        "responses": [
            {"name": topic.name, "partitions": [result(topic.name, each) for each in topic.partitions]}
            for topic in request.topics
        ],
    }


def _list_partition_reassignments(broker: Parts, request: Any) -> Fields:
    """Behaviour: there is one broker, so there are no reassignments: an empty list.
    Version notes: only v0 exists.
    """
    return {"error_message": None, "topics": []}


def _alter_replica_log_dirs(broker: Parts, request: Any) -> Fields:
    """Behaviour: there is one data directory, and every replica is in it; any other is answered LOG_DIR_NOT_FOUND.
    Version notes: v2 is flexible.
    """
    here = str(broker.config.data_dir.absolute())

    def result(path: str, topic: str, index: int) -> dict[str, Any]:
        error_code = ErrorCode.none
        if path != here:
            error_code = ErrorCode.log_dir_not_found
        elif broker.topics.partition(topic, index) is None:
            error_code = ErrorCode.unknown_topic_or_partition
        return {"partition_index": index, "error_code": error_code}

    found: dict[str, list[dict[str, Any]]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            results = [result(directory.path, topic.name, index) for index in topic.partitions]
            found.setdefault(topic.name, []).extend(results)
    return {"results": [{"topic_name": name, "partitions": results} for name, results in found.items()]}


STUBS: tuple[tuple[int, str, range, Stub], ...] = (
    (34, "alter_replica_log_dirs", range(1, 3), _alter_replica_log_dirs),
    (43, "elect_leaders", range(3), _elect_leaders),
    (45, "alter_partition_reassignments", range(2), _alter_partition_reassignments),
    (46, "list_partition_reassignments", range(1), _list_partition_reassignments),
)
"""Key, name, versions, and what answers."""


def _handler(stub: Stub) -> Handler:
    async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
        return stub(broker, request)

    return handle


for _key, _name, _versions, _stub in STUBS:
    api(_key, _name, _versions, inspect.getdoc(_stub) or "")(_handler(_stub))
