"""Finds the source partition whose next batch is larger than the source reader takes. Used by `source`.

librdkafka (2.16) drops a response above `receive.message.max.bytes` with its connection, tells no partition, and asks
for the same again, for ever. A broker sends the first batch of a fetch whole, whatever the fetch's limits are: so each
partition is asked for one batch by a consumer of its own, from the offset that is read next.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import closing

from confluent_kafka import Consumer, KafkaError, TopicPartition

from replicator.config import Flow
from replicator.kafka import failures, metadata, properties
from replicator.model.errors import Incident
from replicator.model.partition import Partition

ROUND_S_MAX = 1.0  # of one round, which holds up the lane
ANSWER_S_MAX = 0.5  # of one partition in it


def is_oversized(error: KafkaError) -> bool:
    """Tell whether an error of a client as a whole says that a response was too large. CRC errors have the same
    code."""
    return error.code() == KafkaError._BAD_MSG and "Invalid response size" in error.str()


class OversizedSearch:
    """The search in one assignment of the source reader: begun when a response was too large, in bounded rounds."""

    def __init__(self, flow: Flow, record_bytes_max: int) -> None:
        """`record_bytes_max`: the largest record or batch that the target takes."""
        self._flow, self._record_bytes_max = flow, record_bytes_max
        self._asked: set[Partition] = set()  # of this search; a round begins where the last one stopped
        self._wanted = False
        self._hit = False
        self._text = ""

    def begin(self, text: str) -> None:
        """Note that the source reader was sent a response that it does not take; `text` is the client's."""
        self._wanted, self._text = True, text

    def forget(self) -> None:
        """Forget the search for another assignment: what is wrong with it will be told again."""
        self._wanted = False
        self._asked.clear()

    @property
    def wanted(self) -> bool:
        """Whether there is something to look for."""
        return self._wanted

    def round(self, candidates: Iterable[Partition], positions: Mapping[Partition, int]) -> dict[Partition, Incident]:
        """Ask `candidates` in their order until one is found or the time is over; `record_too_large` where it is.

        When all were asked without result the search ends: a partition with earlier records still in the source
        reader's queue can't be found yet. librdkafka tells of the next response, a second later at most.
        """
        left = [at for at in candidates if at not in self._asked]
        deadline = time.monotonic() + ROUND_S_MAX
        props = properties.probing_consumer(self._flow, self._record_bytes_max, len(positions))
        with failures.making(self._flow.source.name):
            made = Consumer({**props, "error_cb": self._error, **properties.SILENT})
        with closing(made) as consumer:
            metadata.learn(consumer, {at.topic for at in left})
            for at in left:
                if time.monotonic() >= deadline:
                    return {}
                self._asked.add(at)
                if self._is_here(consumer, at, positions[at]):
                    self.forget()
                    return {at: self._incident(at, positions[at])}
        self.forget()
        return {}

    def _error(self, error: KafkaError) -> None:
        self._hit = self._hit or is_oversized(error)

    def _is_here(self, consumer: Consumer, at: Partition, offset: int) -> bool:
        self._hit = False
        consumer.assign([TopicPartition(at.topic, at.partition, offset)])
        deadline = time.monotonic() + ANSWER_S_MAX
        while not self._hit and (left_s := deadline - time.monotonic()) > 0:
            message = consumer.poll(min(0.02, left_s))
            if message is not None and message.topic() is not None:  # a record, an end or its own error: it is read
                return False
        return self._hit

    def _incident(self, at: Partition, offset: int) -> Incident:
        limit = properties.fetch_bytes_max(self._flow, self._record_bytes_max)
        return Incident(
            "record_too_large",
            f"the next batch from this offset on is larger than the {limit} bytes that are read at once "
            f"(limits.record_bytes_max, or the target's max.message.bytes): {self._text}",
            topic=at.topic,
            partition=at.partition,
            offset=offset,
        )
