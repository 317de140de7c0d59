"""What a read_committed reader of the target could see, observed from outside of both systems."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message, TopicPartition

from benchmarks import load

POLL_S = 0.02
SETTLED_S = 0.1
TAIL_OFFSETS = 100  # records, markers and aborted records that are looked at for the last committed record
NOT_YET = (  # a topic that doesn't exist, or is being created
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
)


class Copy:
    """One topic on the target, as committed."""

    def __init__(self, bootstrap: str, topic: str, partitions: int = load.PARTITIONS) -> None:
        self._partitions = partitions
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "log_level": 0,
        }
        self._consumer = Consumer(self._settings)
        self._topic = topic

    def ends(self) -> list[int]:
        """Last stable offset of each partition, markers and aborted records included; zeros until the topic is there.

        Raises KafkaException when the target doesn't answer: silence is not an empty topic.
        """
        return self._ends(self._consumer)

    def _ends(self, reader: Consumer) -> list[int]:
        found = []
        for number in range(self._partitions):
            try:
                at = TopicPartition(self._topic, number)
                found.append(int(reader.get_watermark_offsets(at, timeout=10, cached=False)[1]))
            except KafkaException as error:
                if error.args[0].code() not in NOT_YET:
                    raise
                return [0] * self._partitions
        return found

    def total(self) -> int:
        """Sum of `ends`."""
        return sum(self.ends())

    def wait(self, above: int, timeout_s: float) -> tuple[float, int]:
        """Time and total once it is above `above`."""
        deadline = time.monotonic() + timeout_s
        while (total := self.total()) <= above:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self._topic}: {total} committed after {timeout_s:.0f} s, waiting for {above}")
            time.sleep(POLL_S)
        return time.monotonic(), total

    def wait_begun(self, timeout_s: float) -> float:
        """Time at which the first record was written, committed or not."""
        reader = Consumer({**self._settings, "isolation.level": "read_uncommitted"})
        deadline = time.monotonic() + timeout_s
        try:
            while not sum(self._ends(reader)):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{self._topic}: nothing was written within {timeout_s:.0f} s")
                time.sleep(POLL_S)
        finally:
            reader.close()
        return time.monotonic()

    def complete(self, last_keys: Mapping[int, bytes]) -> bool:
        """Whether the last committed record of every partition is the one that should be last."""
        return all(self._last_key(number) == key for number, key in last_keys.items())

    def _last_key(self, number: int) -> bytes | None:
        at = TopicPartition(self._topic, number)
        end = int(self._consumer.get_watermark_offsets(at, timeout=10, cached=False)[1])
        self._consumer.assign([TopicPartition(self._topic, number, max(0, end - TAIL_OFFSETS))])
        key = None
        while (message := self._next(self._consumer, 10.0)) is not None and message.error() is None:
            key = message.key()
        self._consumer.unassign()
        return key

    def first_new_record(self, timeout_s: float) -> float:
        """Time at which the first record arrives that is committed from now on.

        Offsets don't show it: an abort moves the last stable offset past all aborted records, which nobody reads.
        Records whose commit was on its way before the call are read first, until nothing came for a moment.
        """
        reader = Consumer(self._settings)
        reader.assign([TopicPartition(self._topic, number, OFFSET_END) for number in range(self._partitions)])
        deadline, quiet_since = time.monotonic() + timeout_s, time.monotonic()
        try:
            while time.monotonic() < deadline:
                message = self._next(reader, POLL_S)
                if message is None or message.error() is not None:
                    continue
                now = time.monotonic()
                if now - quiet_since >= SETTLED_S:
                    return now
                quiet_since = now
        finally:
            reader.close()
        raise RuntimeError(f"{self._topic}: no new committed record within {timeout_s:.0f} s")

    @staticmethod
    def _next(reader: Consumer, timeout_s: float) -> Message | None:
        message = reader.poll(timeout_s)
        error = message.error() if message is not None else None
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        return message

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()
