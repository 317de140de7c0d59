"""Names of internal topics, and Kafka's rules for the others. Source: org.apache.kafka.common.internals.Topic."""

from __future__ import annotations

import re

TRANSACTION_TOPIC, OFFSETS_TOPIC = "__transaction_state", "__consumer_offsets"
INTERNAL = frozenset({TRANSACTION_TOPIC, OFFSETS_TOPIC})
"""Written by the coordinators only; one partition each, so that one log orders all decisions of its coordinator."""
OFFSETS_PARTITION = (OFFSETS_TOPIC, 0)
LENGTH_MAX = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def name_problem(name: str) -> str | None:
    """Why a topic can't be called that; None when it can."""
    if not name:
        return "the topic name is empty"
    if name in (".", ".."):
        return "a topic can't be called '.' or '..'"
    if len(name) > LENGTH_MAX:
        return f"the topic name has {len(name)} characters, at most {LENGTH_MAX} are allowed"
    if not _LEGAL.fullmatch(name):
        return f"the topic name {name!r} has characters other than ASCII letters and digits, '.', '_' and '-'"
    return None


def metric_name(name: str) -> str:
    """What metrics call a topic: they don't know '.'. Source: Topic.unifyCollisionChars."""
    return name.replace(".", "_")
