"""Writes a Metadata request. Used by `topics`, `offsets` and `broker_configs`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from replicator.model.errors import Unsupported
from replicator.wire import metadata_response, protocol
from replicator.wire.protocol import Speaks, made

KEPT_TOPICS_MAX = 100


def metadata_request(
    connection: Speaks, client_id: str, topics: Sequence[str] | None, *, rights: bool = False
) -> bytes:
    """Make a request for brokers and these topics, or all (None); `rights`: also for what the user may do with them.

    Raises Unsupported.
    """
    lowest, highest = metadata_response.VERSIONS
    version = connection.version("metadata", highest)
    if version < lowest:
        raise Unsupported(f"{connection.where}: it speaks metadata up to version {version}")
    if topics is not None and len(topics) <= KEPT_TOPICS_MAX:
        return _kept(version, client_id, tuple(topics), rights)
    return _written(version, client_id, topics, rights)


def _written(version: int, client_id: str, topics: Sequence[str] | None, rights: bool) -> bytes:
    exchange = protocol.exchange("metadata", version)
    topic: Any = exchange.types.MetadataRequestTopic
    fields = {
        "topics": None if topics is None else tuple(made(topic, name=name, topic_id=None) for name in topics),
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": rights,
    }
    return exchange.write(0, client_id, fields)


_kept = lru_cache(maxsize=64)(_written)
"""A lane asks the same of the same few topics before each commit."""
