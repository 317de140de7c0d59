"""Tells a consumer about topics before it is assigned to them.

librdkafka asks for a topic that an assignment names, and that it doesn't know yet, only when a timer of one second
comes round. A restart reads the control topic, the map, the ends of the target and then the source, one after the
other: without this each of them waits for that timer.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException

HINT_S_MAX = 1.0  # as long as librdkafka would take without the hint


def learn(consumer: Consumer, topics: Collection[str]) -> None:
    """Ask for the metadata of `topics` now: all of the cluster's in one request when there are several.

    A hint and no more: when nobody answers, what is read afterwards says so, with its own limits and errors.
    """
    with suppress(KafkaException):
        if len(topics) == 1:
            consumer.list_topics(next(iter(topics)), timeout=HINT_S_MAX)
        elif topics:
            consumer.list_topics(timeout=HINT_S_MAX)
