"""Aborts a transaction, although a record that is tried again comes back into the queue. Used by `producer`.

librdkafka (2.16) purges its queue once in each call of `abort_transaction`, then waits until nothing is in flight. What
is in flight at that moment, is refused and is to be tried again comes back into the queue, and would be tried for the
whole message timeout: a record for a topic that has been deleted, above all. The call is resumable, so it ends after a
step and is made again, with another purge.

Invariant: what is in flight is waited for and never purged. A broker could append it behind the abort's marker, where
nothing would end it (KIP-890).
"""

from __future__ import annotations

import time

from confluent_kafka import KafkaError, KafkaException, Producer

from replicator.kafka import failures

STEP_S = 0.25


def abort_in_steps(producer: Producer, limit_s: float) -> None:
    """Abort the open transaction within `limit_s`. Raises KafkaException, of the last step where time is over."""
    until_s = time.monotonic() + limit_s
    while True:
        try:
            return producer.abort_transaction(max(0.0, min(STEP_S, until_s - time.monotonic())))
        except KafkaException as error:
            found = failures.kafka_error(error)
            resumable = found.code() == KafkaError._TIMED_OUT and found.retriable() and not found.fatal()
            if not resumable or time.monotonic() >= until_s:
                raise
