"""How far the flow is: end offsets of the source and committed positions on the target, asked of both brokers."""

from __future__ import annotations

from confluent_kafka import KafkaException, TopicPartition

from cli.demo import topic_reader
from cli.demo.model import FLOW, RENAMED, TOPICS

ANSWER_S_MAX = 1.0


class Watch:
    """Ends of the source, and the source positions that the target holds as offsets of the flow's group."""

    def __init__(self, source: str, target: str) -> None:
        self._source = topic_reader.consumer(source)
        # read_uncommitted: the answer must not wait for an open transaction
        self._target = topic_reader.consumer(target, f"eos-replicate.{FLOW}", "read_uncommitted")

    def offsets(self) -> tuple[int, int] | None:
        """Return (source ends, positions), each summed over all partitions; None while a broker is away."""
        asked = [
            TopicPartition(RENAMED.format(topic), number) for topic, count in TOPICS.items() for number in range(count)
        ]
        try:
            ends = topic_reader.ends(self._source, TOPICS, ANSWER_S_MAX)
            positions = self._target.committed(asked, timeout=ANSWER_S_MAX)
        except KafkaException:
            return None  # this only watches; the flow itself must recover
        if any(at.error is not None for at in positions):
            return None
        return sum(ends.values()), sum(max(0, at.offset) for at in positions)

    def close(self) -> None:
        """Close both clients."""
        self._source.close()
        self._target.close()
