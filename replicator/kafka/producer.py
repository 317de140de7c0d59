"""A transactional producer on the target, and what makes an outcome unknown. Used by lanes (`planes.records`) and by
`state.control`.

Invariants
- A producer is used until an outcome is unknown: any transport error during a commit, a hidden resend
  of EndTxn or a fatal error discards it (invariant 6). It is never used again.
- Only `abort_transaction` purges the queue (`abort`): a purge by itself would leave a gap in the sequence numbers.
- A transaction that has failed is found out by asking librdkafka for its state, never by waiting for a message
  timeout: see `failure`.
- No call holds up its caller for longer than the time that it is given: `send_positions` is made in a thread of its
  own, because librdkafka keeps no time-out there (`coordinator_patience`).
- A producer that has lost the group's coordinator commits nothing more (`coordinator_connection`).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from replicator.config import Flow
from replicator.kafka import failures, properties
from replicator.kafka.abort import abort_in_steps
from replicator.kafka.client_log import line_logger
from replicator.kafka.coordinator_connection import CoordinatorConnection
from replicator.kafka.coordinator_patience import CoordinatorPatience
from replicator.kafka.own_thread import OwnThread
from replicator.model import names
from replicator.model.errors import ReplicatorError, UnknownOutcome
from replicator.model.partition import Committed, Partition

Classify = Callable[[KafkaException, str, str, str], ReplicatorError]
Explain = Callable[[KafkaError], ReplicatorError | None]
"""What an error of the open transaction means to its owner; None leaves it to `failures.classify_open`."""

STALL_S = 0.25  # this long without an ack, and the transaction's state is asked for
POLL_PAUSE_S = 0.005
ABORT_S_MAX = 10.0
ABANDONED_POLL_S = 1.0
TXN_OFFSETS_BYTES_MAX = 262_144
"""One TxnOffsetCommit must fit a batch of `__consumer_offsets`: its topic's max.message.bytes is 1 MiB by default, and
each offset is a record there with group, topic and metadata."""
OFFSET_OVERHEAD_BYTES = 64


def wait_acknowledged(producer: Producer, timeout_s: float, *, send: bool) -> int:
    """Wait until every record is acknowledged; how many are not after `timeout_s`.

    `send`: don't let them linger. Only the first wait needs that: as long as `flush` runs, librdkafka (2.16) looks
    again and again whether a batch can be sent, also while the connection takes none (a third of a core, seen on a
    slow line). `poll` is woken for nothing meanwhile, a thousand times a second, hence the pause.
    """
    if send:
        return producer.flush(timeout_s)
    deadline_s = time.monotonic() + timeout_s
    while (left := len(producer)) and (wait_s := deadline_s - time.monotonic()) > 0:
        if not producer.poll(wait_s):
            time.sleep(min(POLL_PAUSE_S, wait_s))
    return left


class TransactionalProducer:
    """One transactional producer. Owned by one thread."""

    def __init__(
        self,
        flow: Flow,
        props: properties.Properties,
        on_client_error: Callable[[str], None],
        explain: Explain = lambda error: None,
        patience: CoordinatorPatience | None = None,
    ) -> None:
        """`props` as of `properties.lane_producer`; `on_client_error` takes what librdkafka reports
        by its error callback.

        `patience`: what is known of the coordinator from earlier producers.
        """
        self._cluster, self._flow = flow.target.name, flow
        self._on_client_error, self._explain = on_client_error, explain
        self._id_right = f"Write and Describe on transactional id {props['transactional.id']!r}"
        self._request_s = flow.limits.request_timeout_ms / 1000
        self._init_s = flow.limits.connect_timeout_ms / 1000
        self._transaction_s = flow.limits.transaction_timeout_ms / 1000
        self._patience = patience or CoordinatorPatience(self._transaction_s)
        self._coordinator = CoordinatorConnection()
        self._coordinator_calls = OwnThread(f"positions.{flow.name}")
        self._begun_s = 0.0
        self._broken: str | None = None
        self._closed = False
        self._ended = 0
        self._end_requests = 0
        self.denied: set[Partition] = set()  # partitions that could not be added to the open transaction
        self.written = False  # something is in the open transaction: without that librdkafka sends no EndTxn
        self.open = False
        self.stalled: Callable[[], None] = lambda: None  # called while acknowledgements are late; may raise
        self.unacknowledged = 0  # records, when they were last waited for and nothing had failed
        self.queued_bytes = 0  # of records without an acknowledgement, as librdkafka told last
        callbacks = {"error_cb": self._error, "stats_cb": self._stats}
        with failures.making(self._cluster):
            self.producer = Producer({**props, **callbacks}, logger=line_logger(self._line))

    def _error(self, error: KafkaError) -> None:
        if self._closed:
            return
        text = failures.describe(error, self._cluster, "write in transactions")
        if error.code() in failures.BROKEN_CONNECTION:
            self._broken = text
        self._on_client_error(text)

    def _line(self, text: str) -> None:
        """Take a log line: only there librdkafka names the partitions that it could not add to a transaction."""
        if self._closed:
            return
        if "ADDPARTS" in text and "authorization failed" in text:  # the others were not even attempted
            self.denied |= failures.partitions_named(text)
        self._coordinator.line(text)
        self._on_client_error(f"cluster {self._cluster!r}: {text}")

    def _stats(self, text: str) -> None:
        if self._closed:
            return
        told = json.loads(text)
        self.queued_bytes, brokers = told["msg_size"], told["brokers"]
        self._end_requests = sum(broker["req"].get("EndTxn", 0) for broker in brokers.values())
        self._coordinator.statistics(brokers)

    def fence(self) -> None:
        """Send InitProducerId, which ends the predecessor's transaction and bumps the epoch.

        Raises Fenced, NotAllowed, Unreachable, Retriable, or ConfigError for a transaction timeout that is too long.
        """
        doing = "initialise the transactional id"
        self._guard(lambda: self.producer.init_transactions(self._init_s), failures.classify, doing)
        self._broken = None

    def begin(self) -> None:
        """Open a transaction; raises UnknownOutcome for a producer whose last outcome is unknown."""
        self.check()
        self._begun_s = time.monotonic()
        self._guard(self.producer.begin_transaction, failures.classify_open, "begin a transaction")
        self._broken = None
        self.denied.clear()
        self.open, self.written, self.unacknowledged = True, False, 0

    def overdue(self) -> bool:
        """Tell whether a transaction is open that the target may have timed out; it began there later than here."""
        return self.open and time.monotonic() - self._begun_s >= self._transaction_s

    def check(self) -> None:
        """Serve callbacks; raise UnknownOutcome if EndTxn went out more often than transactions ended."""
        self.serve()
        if self._end_requests > self._ended:
            raise UnknownOutcome(
                f"cluster {self._cluster!r}: EndTxn was sent again behind the API "
                f"({self._end_requests} requests for {self._ended} ends)"
            )

    def serve(self) -> None:
        """Serve callbacks. Statistics come twice a second and would pile up in an idle lane.

        Raises UnknownOutcome for a producer that has lost the group's coordinator.
        """
        self._guard(lambda: self.producer.poll(0), failures.classify_open, "serve callbacks")
        if self._coordinator.lost:
            raise UnknownOutcome(
                f"cluster {self._cluster!r}: the connection to the coordinator of the positions was lost, "
                f"{self._coordinator.lost}"
            )

    def failure(self) -> KafkaError | None:
        """Say why the open transaction has failed, None while it goes on.

        librdkafka keeps the first error of a transaction and answers any call with it that the state doesn't allow.
        `begin_transaction` is such a call inside a transaction, and does nothing else there: no request is sent.
        """
        try:
            self.producer.begin_transaction()
        except KafkaException as error:
            found = failures.kafka_error(error)
            if found.code() == KafkaError._STATE and not (found.fatal() or found.txn_requires_abort()):
                return None
            with suppress(*failures.SERVING):  # log lines name partitions
                self.producer.poll(0)
            return found
        raise UnknownOutcome(f"cluster {self._cluster!r}: a transaction was open, and librdkafka knew of none")

    def raise_failure(self, doing: str) -> None:
        """Raise what the open transaction failed of, as classified; return when it goes on."""
        found = self.failure() if self.open else None
        if found is not None:
            raise self._classified(KafkaException(found), failures.classify_open, doing)

    def flush(self, failed: Callable[[], bool] = lambda: False) -> None:
        """Wait until every record is acknowledged or `failed` says that one was not.

        Raises the reason as soon as the transaction has failed, UnknownOutcome after the transaction timeout.
        """
        deadline, send = time.monotonic() + self._transaction_s, True
        while (left := self._acknowledged(send=send)) and not failed():
            self.raise_failure("write records")
            self.unacknowledged, send = left, False
            self.stalled()
            if time.monotonic() >= deadline:
                raise UnknownOutcome(
                    f"cluster {self._cluster!r}: {left} records without ack after {self._transaction_s} s"
                )
        if not failed():
            self.raise_failure("write records")

    def _acknowledged(self, *, send: bool) -> int:
        wait = lambda: wait_acknowledged(self.producer, STALL_S, send=send)  # noqa: E731
        return self._guard(wait, failures.classify_open, "write records") or 0

    def settle(self) -> None:
        """Serve, after a failure, what is on its way for `STALL_S` at most, so that all its errors are known."""
        with suppress(*failures.SERVING):
            self.producer.flush(STALL_S)

    def wait_for_space(self) -> None:
        """Wait until the producer's full queue has moved. Raises as `flush`."""
        before, deadline = len(self.producer), time.monotonic() + self._transaction_s
        asked_s = time.monotonic()
        while len(self.producer) >= before:
            self._guard(lambda: self.producer.poll(0.05), failures.classify_open, "write records")
            now_s = time.monotonic()
            if now_s - asked_s >= STALL_S:
                asked_s = now_s
                self.raise_failure("write records")
                self.unacknowledged = len(self.producer)
                self.stalled()
            if now_s >= deadline:
                raise UnknownOutcome(
                    f"cluster {self._cluster!r}: the queue of {before} records has not moved "
                    f"for {self._transaction_s} s"
                )

    def write(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        on_delivery: Callable[[KafkaError | None, Message], None] | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        """Add one record of the flow's own topics to the open transaction. Raises as `flush`."""
        self.written = True
        more: dict[str, Any] = {"on_delivery": on_delivery} if on_delivery is not None else {}
        more |= {"headers": list(headers)} if headers else {}
        while True:
            try:
                return self.producer.produce(topic, value, key, partition, **more)
            except BufferError:
                self.wait_for_space()
            except failures.SERVING as error:
                raise self.produce_error(failures.served(error), Partition(topic, partition)) from error

    def produce_error(self, error: KafkaException, target: Partition) -> ReplicatorError:
        """Say what an exception of `produce` means: of a failed transaction it only says that the state is wrong."""
        code = failures.kafka_error(error).code()
        found = self.failure() if code in (KafkaError._STATE, KafkaError._FATAL) else None
        right = f"Write on topic {target.topic!r}"
        if found is None:
            return failures.classify_open(error, self._cluster, f"write to {target}", right)
        return self._classified(KafkaException(found), failures.classify_open, f"write to {target}", right)

    def send_positions(self, group: str, offsets: Mapping[Partition, Committed], member: object) -> None:
        """Send AddOffsetsToTxn and TxnOffsetCommit for the memberless `group`, in requests of at most
        `TXN_OFFSETS_BYTES_MAX`.

        Raises as `flush`, and UnknownOutcome when the coordinators haven't answered in time: then this producer may
        be in that call for ever, and only `close` may follow.
        """
        for chunk in _chunks(offsets):
            self.serve()
            self.written = True
            self._guard(
                partial(self._send_chunk, group, chunk, member),
                failures.classify_open,
                f"commit positions in group {group!r}",
                f"Read on group {group!r}",
            )

    def _send_chunk(self, group: str, chunk: list[TopicPartition], member: object) -> None:
        send = partial(self.producer.send_offsets_to_transaction, chunk, member, self._request_s)
        limit_s = self._patience.limit_s
        try:
            self._coordinator_calls.call(send, limit_s)
        except TimeoutError as error:
            self._patience.timed_out(limit_s)
            raise UnknownOutcome(
                f"cluster {self._cluster!r}: cannot commit positions in group {group!r}: its coordinator, or that of "
                f"the transaction, has not answered for {limit_s:g} s"
            ) from error
        self._patience.answered()
        self._coordinator.on_committed()

    def end(self) -> None:
        """Send EndTxn(commit). Invariant 6: whatever is not certainly committed starts over, nothing is sent again."""
        self._guard(lambda: self.producer.poll(0), failures.classify_open, "commit")
        self._broken = None
        self._guard(lambda: self.producer.commit_transaction(self._request_s), failures.classify_end, "commit")
        self._over("a commit")

    def abort(self) -> None:
        """Send EndTxn(abort), after librdkafka has purged its queue; waits for what is in flight, `ABORT_S_MAX` in all.

        Raises UnknownOutcome when the abort is not certain, Fenced.
        """
        abort = partial(abort_in_steps, self.producer, min(self._request_s, ABORT_S_MAX))
        self._guard(abort, failures.classify_end, "abort the transaction")
        self._over("an abort")

    def _over(self, what: str) -> None:
        self._ended += self.written
        self.open = self.written = False
        self._guard(lambda: self.producer.poll(0), failures.classify_end, f"serve callbacks after {what}")
        if self._broken:
            raise UnknownOutcome(f"the connection broke during {what}: {self._broken}")

    def close(self) -> None:
        """Drop the producer with whatever it still holds; an open transaction is ended by the next fence.

        Its callbacks lead back here: without letting go of it, it would live until the cycle is collected.
        """
        self.producer.purge(True, True, False)
        with suppress(*failures.SERVING):  # a fatal error, which the call that met it has reported
            self.producer.flush(0)
        self._coordinator_calls.close()
        self._closed = True
        if self._coordinator_calls.in_call:
            serve = partial(_serve, self.producer, self._coordinator_calls)
            threading.Thread(target=serve, name=f"abandoned.{self._flow.name}", daemon=True).start()
        del self.producer

    def _guard(
        self,
        call: Callable[[], int | None],
        classify: Classify,
        doing: str,
        right: str = "",
    ) -> int | None:
        try:
            return call()
        except failures.SERVING as error:
            raise self._classified(failures.served(error), classify, doing, right) from error

    def _classified(self, error: KafkaException, classify: Classify, doing: str, right: str = "") -> ReplicatorError:
        """Say what an error of this producer means. Callbacks say of a fatal error only that there is one: the state
        says which."""
        if failures.kafka_error(error).code() == KafkaError._FATAL:
            try:
                self.producer.begin_transaction()
            except KafkaException as named:
                error = named
        inner = failures.kafka_error(error)
        explained = self._explain(inner) if self.open and classify is failures.classify_open else None
        return explained or classify(error, self._cluster, doing, self.right_for(inner) or right)

    def right_for(self, error: KafkaError) -> str:
        """Return the right that is missing by the error's own code, where the code says which; else empty."""
        return {
            KafkaError.GROUP_AUTHORIZATION_FAILED: f"Read on group {names.position_group(self._flow.name)!r}",
            KafkaError.CLUSTER_AUTHORIZATION_FAILED: "IdempotentWrite on the cluster",
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: self._id_right,
        }.get(error.code(), "")


def _serve(producer: Producer, calls: OwnThread) -> None:
    """Serve callbacks of a producer that can't be let go of, because a call of it hasn't returned.

    What librdkafka has to say, statistics above all, would pile up. The call returns once the state of any of the
    producer's connections changes.
    """
    while calls.in_call:
        with suppress(*failures.SERVING):
            producer.poll(ABANDONED_POLL_S)


def _chunks(offsets: Mapping[Partition, Committed]) -> Iterator[list[TopicPartition]]:
    chunk: list[TopicPartition] = []
    size = 0
    for (topic, partition), (offset, metadata) in offsets.items():
        bytes_ = len(topic) + len(metadata.encode()) + OFFSET_OVERHEAD_BYTES
        if chunk and size + bytes_ > TXN_OFFSETS_BYTES_MAX:
            yield chunk
            chunk, size = [], 0
        chunk.append(TopicPartition(topic, partition, offset, metadata))
        size += bytes_
    if chunk:
        yield chunk
