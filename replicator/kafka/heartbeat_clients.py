"""Writes heartbeat records at the source of a flow, and reads them at its target. Implements
`flow.heartbeats.HeartbeatClients`."""

from __future__ import annotations

from collections.abc import Iterator

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from replicator.config import Flow
from replicator.kafka import failures, properties
from replicator.model import names
from replicator.model.errors import ReplicatorError

QUIET = (KafkaError._PARTITION_EOF, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION)
"""Not told: the end, and a copy that isn't there before the flow has made it."""
CLOSE_S = 1.0


class KafkaHeartbeats:
    """Both clients. Used by one thread."""

    def __init__(self, flow: Flow) -> None:
        """Connects to nothing yet."""
        self._source, self._target = flow.source.name, flow.target.name
        self._topic, copy = names.heartbeats_topic(flow.name), names.heartbeats_copy(flow.name)
        self._copy = copy
        self._failure: ReplicatorError | None = None
        with failures.making(self._source):
            self._producer = Producer(properties.heartbeat_producer(flow))
        with failures.making(self._target):
            self._consumer = Consumer({**properties.reader(flow.target, flow, committed=True), **_ONLY_NEW})
        self._consumer.assign([TopicPartition(copy, 0, OFFSET_END)])

    def write(self, value: bytes) -> None:
        """See `HeartbeatClients`."""
        try:
            self._producer.produce(self._topic, value, partition=0, on_delivery=self._delivered)
        except BufferError:
            return  # those before it wait, which is told when they time out
        except KafkaException as error:
            self._failed(error.args[0])

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failed(error)

    def _failed(self, error: KafkaError) -> None:
        doing, right = f"write to {self._topic!r}", f"Write on topic {self._topic!r}"
        self._failure = failures.classify(error, self._source, doing, right)

    def failure(self) -> ReplicatorError | None:
        """See `HeartbeatClients`."""
        failure, self._failure = self._failure, None
        return failure

    def read(self, timeout_s: float) -> Iterator[bytes]:
        """See `HeartbeatClients`."""
        self._producer.poll(0)
        message = self._consumer.poll(timeout_s)
        while message is not None:
            error, value = message.error(), message.value()
            if error is None and value is not None:
                yield value
            elif error is not None and error.code() not in QUIET and error.code() not in failures.UNREACHABLE:
                right = f"Read on topic {self._copy!r}"
                self._failure = failures.classify(error, self._target, f"read {self._copy!r}", right)
            message = self._consumer.poll(0)

    def close(self) -> None:
        """See `HeartbeatClients`."""
        self._producer.purge()
        self._producer.flush(CLOSE_S)
        self._consumer.close()


_ONLY_NEW = {"auto.offset.reset": "latest", "enable.partition.eof": False, "fetch.wait.max.ms": 500}
_ONLY_NEW |= {"topic.metadata.refresh.interval.ms": 2_000, "log_level": 0}
"""What arrives is fetched at once, and while there is nothing a broker is asked twice a second; a copy that isn't there
yet is looked for every two."""
