"""The writer of records outside the transaction, for the two weaker delivery modes. Used by `plane`."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from confluent_kafka import KafkaError, Producer

from replicator.config import Flow
from replicator.kafka import failures, properties
from replicator.kafka.producer import STALL_S
from replicator.model.errors import Abortable


class PlainWriter:
    """One producer at a time. After an abort it is replaced: what it still held must not go out later, and a purge
    leaves a gap in its sequence numbers."""

    def __init__(
        self, flow: Flow, batch_bytes_max: int, record_bytes_max: int, on_client_error: Callable[[str], None]
    ) -> None:
        """Limits as of `properties.plain_producer`."""
        self._cluster, self._request_s = flow.target.name, flow.limits.request_timeout_ms / 1000
        self._transaction_s = flow.limits.transaction_timeout_ms / 1000
        self._on_client_error = on_client_error
        self._props = properties.plain_producer(
            flow, batch_bytes_max=batch_bytes_max, record_bytes_max=record_bytes_max
        )
        self.producer = self._made()

    def _made(self) -> Producer:
        return Producer({**self._props, "error_cb": self._error})

    def _error(self, error: KafkaError) -> None:
        self._on_client_error(failures.describe(error, self._cluster, "write records"))

    def serve(self) -> None:
        """Let callbacks run."""
        self.producer.poll(0)

    def flush(self, failed: Callable[[], bool]) -> None:
        """Wait until every record is acknowledged or `failed` says that one was not; Abortable after the request
        timeout."""
        deadline = time.monotonic() + self._request_s
        while (left := self.producer.flush(STALL_S)) and not failed():
            if time.monotonic() >= deadline:
                raise Abortable(f"cluster {self._cluster!r}: {left} records without ack after {self._request_s} s")

    def flush_once(self) -> int:
        """Wait for acks up to the request timeout; how many records have none."""
        return self.producer.flush(self._request_s)

    def settle(self) -> None:
        """After a failure: serve what is on its way."""
        self.producer.flush(STALL_S)

    def wait_for_space(self) -> None:
        """Wait until the full queue has moved; Abortable when it does not for the transaction timeout."""
        before, deadline = len(self.producer), time.monotonic() + self._transaction_s
        while len(self.producer) >= before:
            self.producer.poll(0.05)
            if time.monotonic() >= deadline:
                raise Abortable(f"cluster {self._cluster!r}: the queue of {before} records has not moved")

    def start_over(self) -> None:
        """Drop everything that is queued or in flight."""
        if len(self.producer):
            self.close()
            self.producer = self._made()

    def close(self) -> None:
        """Let go of the connections with whatever is still queued."""
        self.producer.purge(True, True)
        with suppress(*failures.SERVING):
            self.producer.flush(0)
