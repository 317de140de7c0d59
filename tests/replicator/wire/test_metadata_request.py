"""The bytes of Metadata requests, which are kept: they are those of the question that is asked."""

from __future__ import annotations

from itertools import product
from typing import Any, cast

from replicator.wire import metadata_response
from replicator.wire.connection import Connection
from replicator.wire.metadata_request import KEPT_TOPICS_MAX, metadata_request
from replicator.wire.protocol import exchange

MANY = tuple(f"t{number}" for number in range(KEPT_TOPICS_MAX + 1))


class Spoken:
    """What a request needs of a connection."""

    where = "here"

    def __init__(self, version: int) -> None:
        self._version = version

    def version(self, api: str, highest: int) -> int:
        return min(self._version, highest)


def test_each_question_has_its_own_bytes_however_often_it_is_asked() -> None:
    versions = metadata_response.VERSIONS
    questions = list(product(versions, ("a", "b"), (None, (), ("t",), ("t", "u"), ("u", "t"), MANY), (False, True)))
    for _ in range(2):
        for version, client_id, topics, rights in questions:
            types = exchange("metadata", version).types
            topic: Any = types.MetadataRequestTopic
            named = None if topics is None else tuple(topic(**_fields(topic, name)) for name in topics)
            fields = {"topics": named, "allow_auto_topic_creation": False}
            fields |= {"include_cluster_authorized_operations": False, "include_topic_authorized_operations": rights}
            expected = exchange("metadata", version).write(0, client_id, fields)
            asked = metadata_request(cast("Connection", Spoken(version)), client_id, topics, rights=rights)
            assert asked == expected


def _fields(topic: Any, name: str) -> dict[str, Any]:
    return {"name": name} | ({"topic_id": None} if "topic_id" in topic.__dataclass_fields__ else {})
