"""Tells a consumer about topics before it is assigned to them. Used by all that read by assignment.

librdkafka asks for a topic that an assignment names, and that it doesn't know yet, only when a timer of one second
comes round. A restart reads the control topic, the claims, the ends of the target and then the source, one after the
other: without this each of them waits for that timer.
"""

from __future__ import annotations

from collections.abc import Collection

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from replicator.kafka import failures

HINT_S_MAX = 1.0  # as long as librdkafka would take without the hint


def connect(client: Consumer | Producer | AdminClient, topic: str) -> bool:
    """Make a client's connection by asking for `topic`, which need not be there; whether it is, as far as is known.

    Done for several clients at once before they are used one after the other: far away each would cost some round
    trips. A hint as `learn` is: a cluster that doesn't answer is told by what is asked afterwards.
    """
    try:
        return client.list_topics(topic, timeout=HINT_S_MAX).topics[topic].error is None
    except (KafkaException, KeyError):
        return False


def connect_to_broker(client: Producer, topic: str) -> None:
    """Connect as `connect` does, but not to an address of the flow file alone: librdkafka connects anew to the broker
    that has answered there, when something is asked again."""
    for _ in range(2):
        connect(client, topic)


def learn(consumer: Consumer, topics: Collection[str]) -> dict[str, Collection[int] | KafkaError]:
    """Ask for the metadata of `topics` now: all of the cluster's in one request when there are several.

    Returns each topic's partitions, or that the cluster does not have it or may not show it to the user. A hint
    besides: without an answer it is empty, and what is read afterwards says so, with its own limits and errors.
    """
    if not topics:
        return {}
    try:
        if len(topics) == 1:
            found = consumer.list_topics(next(iter(topics)), timeout=HINT_S_MAX).topics
        else:
            found = consumer.list_topics(timeout=HINT_S_MAX).topics
    except KafkaException:
        return {}
    learned: dict[str, Collection[int] | KafkaError] = {}
    for name in topics:
        error = found[name].error if name in found else KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        if error is None:
            learned[name] = frozenset(found[name].partitions)
        elif error.code() in failures.MISSING | failures.NOT_ALLOWED:
            learned[name] = error
    return learned
