"""How far the flow is, asked of both brokers from outside."""

from __future__ import annotations

from confluent_kafka import KafkaException, TopicPartition

from cli.demo import reading
from cli.demo.model import FLOW, RENAMED, TOPICS

GLANCE_S_MAX = 1.0


class Watch:
    """Ends of the source, and the source positions that the target holds as offsets of the flow's group."""

    def __init__(self, source: str, target: str) -> None:
        self._source = reading.consumer(source)
        self._target = reading.consumer(target, f"eos-replicate.{FLOW}", "read_uncommitted")  # a glance, never a wait

    def look(self) -> tuple[int, int] | None:
        """(source ends, positions), each summed over all partitions; None while a broker is away."""
        asked = [
            TopicPartition(RENAMED.format(topic), number) for topic, count in TOPICS.items() for number in range(count)
        ]
        try:
            ends = reading.ends(self._source, TOPICS, GLANCE_S_MAX)
            positions = self._target.committed(asked, timeout=GLANCE_S_MAX)
        except KafkaException:
            return None  # we only look on: it is the flow that has to cope
        if any(at.error is not None for at in positions):
            return None
        return sum(ends.values()), sum(max(0, at.offset) for at in positions)

    def close(self) -> None:
        """Close both clients."""
        self._source.close()
        self._target.close()
