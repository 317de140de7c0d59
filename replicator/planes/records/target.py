"""The lane's writers on the target: a transactional producer, and a plain one for the weaker delivery modes.

Invariants
- A producer lives from fence to the first doubt: any transport error during a commit, a hidden resend of EndTxn
  or a fatal error discards it (invariant 6). It is never used again.
- flush comes before everything that ends a transaction: librdkafka's abort before the first produce has reached
  the broker can end in a fatal INVALID_TXN_STATE.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from replicator import names
from replicator.config import Flow
from replicator.errors import Fatal, NotAllowed, ReplicatorError, Retriable, UnknownOutcome
from replicator.planes.contract import Committed, Partition
from replicator.planes.records import failures, properties

Classify = Callable[[KafkaException, str, str], ReplicatorError]


class Transactions:
    """One transactional producer and the doubts about it. Owned by one lane's thread."""

    def __init__(self, flow: Flow, props: properties.Properties, on_error: Callable[[str], None]) -> None:
        self._cluster = flow.target.name
        self._on_error = on_error
        self._request_s = flow.limits.request_timeout_ms / 1000
        self._init_s = flow.limits.connect_timeout_ms / 1000
        self._transaction_s = flow.limits.transaction_timeout_ms / 1000
        self._begun_s = 0.0
        self._broken: str | None = None
        self._denied: str | None = None
        self._ended = 0
        self.written = False  # something is in the open transaction: without that librdkafka sends no EndTxn
        self._end_requests = 0
        self.open = False
        self.producer = Producer({**props, "error_cb": self._error, "stats_cb": self._stats})

    def _error(self, error: KafkaError) -> None:
        text = failures.describe(error, self._cluster, "transactional producer")
        if error.code() in failures.NOT_ALLOWED:
            self._denied = text
        if error.code() in failures.BROKEN_CONNECTION:
            self._broken = text
        self._on_error(text)

    def _stats(self, text: str) -> None:
        brokers = json.loads(text)["brokers"].values()
        self._end_requests = sum(broker["req"].get("EndTxn", 0) for broker in brokers)

    def fence(self) -> None:
        """InitProducerId: ends the predecessor's transaction, bumps the epoch. Raises as classified."""
        self._guard(lambda: self.producer.init_transactions(self._init_s), failures.classify_start, "InitProducerId")
        self._broken = self._denied = None

    def begin(self) -> None:
        """Open a transaction; refuses a producer that is in doubt."""
        self.check()
        self._begun_s = time.monotonic()
        self._guard(self.producer.begin_transaction, failures.classify_open, "begin")
        self._broken = self._denied = None
        self.open, self.written = True, False

    def overdue(self) -> bool:
        """Whether a transaction is open that the target may have timed out; it began there later than here."""
        return self.open and time.monotonic() - self._begun_s >= self._transaction_s

    def check(self) -> None:
        """Serve callbacks; raise UnknownOutcome if EndTxn went out more often than transactions ended."""
        self.serve()
        if self._end_requests > self._ended:
            raise UnknownOutcome(
                f"cluster {self._cluster}: EndTxn was sent again behind the API "
                f"({self._end_requests} requests for {self._ended} ends)"
            )

    def serve(self) -> None:
        """Serve callbacks. Statistics come twice a second and would pile up in an idle lane."""
        self._guard(lambda: self.producer.poll(0), failures.classify_open, "serve callbacks")

    def flush(self) -> None:
        """Wait until nothing is in flight; raises UnknownOutcome when that takes longer than a transaction may."""
        left = self._guard(lambda: self.producer.flush(self._transaction_s), failures.classify_open, "flush")
        if left:
            raise UnknownOutcome(f"cluster {self._cluster}: {left} records without ack after {self._transaction_s} s")

    def send_positions(self, group: str, offsets: Mapping[Partition, Committed], member: object) -> None:
        """AddOffsetsToTxn and TxnOffsetCommit for the memberless `group`; raises as classified."""
        if offsets:
            self.written = True
            positions = [
                TopicPartition(at.topic, at.partition, value.offset, value.metadata) for at, value in offsets.items()
            ]
            self._guard(
                lambda: self.producer.send_offsets_to_transaction(positions, member, self._request_s),
                failures.classify_open,
                f"positions of group {group}",
            )

    def end(self) -> None:
        """EndTxn(commit). Invariant 6: whatever is not certainly committed starts over, nothing is sent again."""
        self._guard(lambda: self.producer.poll(0), failures.classify_open, "commit")
        self._broken = None
        self._guard(lambda: self.producer.commit_transaction(self._request_s), failures.classify_end, "commit")
        self._over()
        self._guard(lambda: self.producer.poll(0), failures.classify_end, "after the end")
        if self._broken:
            raise UnknownOutcome(f"the connection broke during a commit: {self._broken}")

    def abort(self) -> None:
        """Flush, then EndTxn(abort); UnknownOutcome when any of it is not certain."""
        self._guard(lambda: self.producer.abort_transaction(self._request_s), failures.classify_end, "abort")
        self._over()
        self._guard(lambda: self.producer.poll(0), failures.classify_end, "after the end")
        if self._broken:
            raise UnknownOutcome(f"the connection broke during an abort: {self._broken}")

    def _over(self) -> None:
        self._ended += self.written
        self.open = self.written = False

    def write(self, topic: str, value: bytes, key: bytes, partition: int) -> None:
        """Add one record of the flow's own topics to the open transaction. Raises as classified."""
        self.written = True
        try:
            self.producer.produce(topic, value, key, partition)
        except BufferError as error:
            raise Fatal(f"cluster {self._cluster}: the queue is full of {topic}'s records") from error
        except failures.SERVING as error:
            raise self.judged(failures.served(error), failures.classify_open, f"write {topic}") from error

    def close(self) -> None:
        """Drop the producer with whatever it still holds; an open transaction is ended by the next fence.

        Its callbacks lead back here: without letting go of it, it would live until the cycle is collected.
        """
        self.producer.purge(True, True, False)
        with suppress(*failures.SERVING):  # a fatal error, which the call that met it has reported
            self.producer.flush(0)
        del self.producer

    def _guard(
        self,
        call: Callable[[], int | None],
        classify: Classify,
        doing: str,
    ) -> int | None:
        try:
            return call()
        except failures.SERVING as error:
            raise self.judged(failures.served(error), classify, doing) from error

    def judged(self, error: KafkaException, classify: Classify, doing: str) -> ReplicatorError:
        """What an error of this producer means.

        `produce` and callbacks say of a fatal error only that there is one; any transactional call says which, and
        does nothing else then.
        """
        if failures.kafka_error(error).code() == KafkaError._FATAL:
            try:
                self.producer.begin_transaction()
            except KafkaException as named:
                error = named
        if self._denied and failures.kafka_error(error).code() not in failures.FENCED:
            return NotAllowed(self._denied)
        return classify(error, self._cluster, doing)


class Positions:
    """Reads the position group with *require stable*, and lends its metadata to the transactional producer.

    librdkafka asks for stable offsets only under `isolation.level=read_committed`.
    """

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._timeout_s = flow.limits.request_timeout_ms / 1000
        self._consumer = Consumer(properties.reader(flow.target, flow, committed=True))

    @property
    def group_metadata(self) -> object:
        """Metadata of the group without members: what TxnOffsetCommit carries."""
        return self._consumer.consumer_group_metadata()

    def committed(self, partitions: Sequence[Partition]) -> dict[Partition, Committed | None]:
        """Stable offsets; None only for an explicit -1, errors of single partitions raise."""
        if not partitions:
            return {}
        asked = [TopicPartition(at.topic, at.partition) for at in partitions]
        group = names.position_group(self._flow.name)
        doing = f"positions of group {group}"
        try:
            answers = self._consumer.committed(asked, timeout=self._timeout_s)
        except KafkaException as error:
            if failures.kafka_error(error).code() == KafkaError._TIMED_OUT and self._answers(asked):
                raise Retriable(
                    f"cluster {self._flow.target.name}: {doing}: a transaction with new positions hasn't ended for "
                    f"{self._timeout_s:.0f} s: its producer is alive, or the broker lost its marker (see "
                    "kafka-transactions.sh find-hanging)"
                ) from error
            raise failures.classify_start(error, self._flow.target.name, doing) from error
        found: dict[Partition, Committed | None] = {}
        for answer in answers:
            at = Partition(answer.topic, answer.partition)
            if answer.error is not None:
                raise failures.classify_start(answer.error, self._flow.target.name, f"{doing}, {at}")
            found[at] = Committed(answer.offset, answer.metadata or "") if answer.offset >= 0 else None
        if found.keys() != set(partitions):
            raise Fatal(f"{doing}: asked for {len(partitions)} partitions, {len(found)} answered")
        return found

    def _answers(self, asked: list[TopicPartition]) -> bool:
        """Whether the target tells positions that may not be stable: then it is a transaction that is waited for."""
        consumer = Consumer(properties.reader(self._flow.target, self._flow, committed=False))
        try:
            return bool(consumer.committed([TopicPartition(at.topic, at.partition) for at in asked], self._timeout_s))
        except KafkaException:
            return False
        finally:
            consumer.close()

    def close(self) -> None:
        """Leave; this consumer never joined the group."""
        self._consumer.close()


def backlog_wait(producer: Producer, timeout_s: float, cluster: str) -> Callable[[], None]:
    """A wait for room in the producer's queue that gives up with UnknownOutcome when nothing moves for `timeout_s`."""

    def wait() -> None:
        before = len(producer)
        waited = 0.0
        while len(producer) >= before:
            producer.poll(0.05)
            waited += 0.05
            if waited > timeout_s:
                raise UnknownOutcome(
                    f"cluster {cluster}: the queue of {before} records has not moved for {timeout_s} s"
                )

    return wait
