"""The writer of records outside the transaction, for the two weaker delivery modes. Used by `plane`.

Invariant: a producer that failed is never used again. After an abort it is replaced: what it still held must not go
out later, a purge leaves a gap in its sequence numbers, and a fatal error (the target lost what it had acknowledged)
stays for good.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from confluent_kafka import KafkaError, KafkaException, Producer

from replicator.config import Flow
from replicator.kafka import failures, properties
from replicator.kafka.client_log import line_logger
from replicator.kafka.producer import STALL_S, wait_acknowledged
from replicator.model.errors import Abortable, ReplicatorError


class PlainWriter:
    """One producer at a time; an aborted one is replaced when the next record is written.

    Raises Abortable, NotAllowed, or UnknownOutcome after a fatal error: the next producer session begins with a look
    at what the target holds.
    """

    def __init__(
        self,
        flow: Flow,
        batch_bytes_max: int,
        record_bytes_max: int,
        on_client_error: Callable[[str], None],
        *,
        compress: bool = False,
    ) -> None:
        """Limits as of `properties.plain_producer`."""
        self._cluster, self._request_s = flow.target.name, flow.limits.request_timeout_ms / 1000
        self._transaction_s = flow.limits.transaction_timeout_ms / 1000
        self._on_client_error = on_client_error
        self._props = properties.plain_producer(
            flow, batch_bytes_max=batch_bytes_max, record_bytes_max=record_bytes_max, compress=compress
        )
        self.stalled: Callable[[], None] = lambda: None  # called while acknowledgements are late; may raise
        self.unacknowledged = 0  # records, when they were last waited for and nothing had failed
        self._producer: Producer | None = self._made()  # before the first record: it connects meanwhile

    @property
    def producer(self) -> Producer:
        """What records are handed to."""
        if self._producer is None:
            self._producer = self._made()
        return self._producer

    def _made(self) -> Producer:
        with failures.making(self._cluster):
            return Producer({**self._props, "error_cb": self._error}, logger=line_logger(self._line))

    def _line(self, text: str) -> None:
        self._on_client_error(f"cluster {self._cluster!r}: {text}")

    def _error(self, error: KafkaError) -> None:
        self._on_client_error(failures.describe(error, self._cluster, "write records"))

    def serve(self) -> None:
        """Let callbacks run."""
        if self._producer is not None:
            self._guard(lambda: self.producer.poll(0))

    def flush(self, failed: Callable[[], bool]) -> None:
        """Wait until every record is acknowledged or `failed` says that one was not; Abortable after the request
        timeout."""
        deadline, send = time.monotonic() + self._request_s, True
        while (left := self._acknowledged(send=send)) and not failed():
            self.unacknowledged, send = left, False
            self.stalled()
            if time.monotonic() >= deadline:
                raise Abortable(f"cluster {self._cluster!r}: {left} records without ack after {self._request_s} s")

    def _acknowledged(self, *, send: bool) -> int:
        return self._guard(lambda: wait_acknowledged(self.producer, STALL_S, send=send))

    def flush_once(self) -> int:
        """Wait for acks up to the request timeout; how many records have none."""
        return self._guard(lambda: self.producer.flush(self._request_s))

    def settle(self) -> None:
        """Serve what is on its way after a failure. Raises a fatal error."""
        self._guard(lambda: self.producer.flush(STALL_S))

    def wait_for_space(self) -> None:
        """Wait until the full queue has moved; Abortable when it does not for the transaction timeout."""
        before, deadline = len(self.producer), time.monotonic() + self._transaction_s
        while len(self.producer) >= before:
            self._guard(lambda: self.producer.poll(0.05))
            self.unacknowledged = len(self.producer)
            self.stalled()
            if time.monotonic() >= deadline:
                raise Abortable(f"cluster {self._cluster!r}: the queue of {before} records has not moved")

    def _guard(self, call: Callable[[], int]) -> int:
        try:
            return call()
        except failures.SERVING as error:
            raise self.classified(failures.served(error)) from error

    def classified(self, error: KafkaException, doing: str = "write records") -> ReplicatorError:
        """Say what an exception of the producer means. No transactional id is fenced by what befalls this one."""
        return failures.classify_plain(error, self._cluster, doing)

    def discard(self) -> None:
        """Drop everything that is queued or in flight, and the producer with it."""
        if self._producer is not None:
            self._producer.purge(True, True)
            with suppress(*failures.SERVING):
                self._producer.flush(0)
            self._producer = None
