"""The part of the classic consumers' embedded protocol that the broker decodes: the subscription.

Source: org.apache.kafka.clients.consumer.internals.ConsumerProtocol, `ConsumerProtocolSubscription`.
"""

from __future__ import annotations

from embedded_broker.state.codec import FieldReader, Truncated

PROTOCOL_TYPE = "consumer"


def subscribed_topics(metadata: bytes) -> frozenset[str]:
    """Decode the topics of a subscription; the fields after them, which differ between versions, are not decoded.

    Raises:
        Truncated: that is no subscription.
    """
    reader = FieldReader(metadata)
    if (version := reader.number("h")) < 0:
        raise Truncated(f"a subscription of version {version}")
    count = reader.number("i")
    if not 0 <= count <= len(metadata):
        raise Truncated(f"{count} topics in {len(metadata)} bytes")
    try:
        return frozenset(reader.string() for _ in range(count))
    except UnicodeDecodeError as error:
        raise Truncated(f"a topic's name is no UTF-8: {error}") from error
