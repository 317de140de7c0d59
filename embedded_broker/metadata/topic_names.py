"""Names of internal topics, and Kafka's rules for the others. Source: org.apache.kafka.common.internals.Topic."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

NO_ID = UUID(int=0)
"""Kafka's id of no topic; decoded it is None."""
METADATA_BY_ID_SINCE = 12
"""Two versions of Metadata before have the field, and Kafka refuses to use it: an answer could have no name yet."""
TRANSACTION_TOPIC, OFFSETS_TOPIC = "__transaction_state", "__consumer_offsets"
INTERNAL = frozenset({TRANSACTION_TOPIC, OFFSETS_TOPIC})
"""Written by the coordinators only; one partition each, so that one log orders all decisions of its coordinator."""
OFFSETS_PARTITION = (OFFSETS_TOPIC, 0)
LENGTH_MAX = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def name_problem(name: str) -> str | None:
    """Say why a topic can't be called that; None when it can."""
    if not name:
        return "the topic name is empty"
    if name in (".", ".."):
        return "a topic can't be called '.' or '..'"
    if len(name) > LENGTH_MAX:
        return f"the topic name has {len(name)} characters, at most {LENGTH_MAX} are allowed"
    if not _LEGAL.fullmatch(name):
        return f"the topic name {name!r} has characters other than ASCII letters and digits, '.', '_' and '-'"
    return None


def id_in(topic: Any) -> UUID:
    """Return the id by which an item of a request names a topic; NO_ID where it names it by name."""
    return getattr(topic, "topic_id", None) or NO_ID


def is_by_id(topic: Any) -> bool:
    """Return whether an item of a request names a topic by its id, which only later versions of its API understand."""
    return topic.name is None or id_in(topic) != NO_ID


def metric_name(name: str) -> str:
    """Return what metrics call a topic: they don't know '.'. Source: Topic.unifyCollisionChars."""
    return name.replace(".", "_")
