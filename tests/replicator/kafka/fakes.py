"""librdkafka's transactional producer as far as its state matters: what it answers once a transaction has failed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError, KafkaException

ABORT = {"txn_requires_abort": True}


@dataclass
class Report:
    """A delivery report's message."""

    at: int | None

    def offset(self) -> int | None:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_CREATE_TIME, 1_000

    def key(self) -> bytes | None:
        return b"k"

    def value(self) -> bytes | None:
        return b"v"

    def headers(self) -> None:
        return None


@dataclass
class FakeProducer:
    """Acks everything at once, unless told otherwise. Made by `factory` in the place of confluent_kafka's."""

    conf: dict[str, Any]
    logger: Any = None
    calls: list[str] = field(default_factory=list)
    queued: list[tuple[Any, ...]] = field(default_factory=list)
    offsets: list[list[Any]] = field(default_factory=list)
    in_transaction: bool = False
    failure: KafkaError | None = None
    holds_acks: bool = False
    room: int = 1_000_000
    next_offset: int = 0
    on_poll: list[Callable[[], None]] = field(default_factory=list)
    held_up: threading.Event | None = None
    comes_back: int = 0  # how many aborts end in time, because a record comes back into the queue
    abort_fails: KafkaError | None = None

    def fail(self, code: int, text: str = "", **flags: bool) -> None:
        """The open transaction has failed: its queue is purged, as librdkafka does."""
        self.failure = KafkaError(code, text, **(flags or ABORT))
        purged, self.queued = self.queued, []
        for fields in purged:
            if fields[4] is not None:
                fields[4](KafkaError(KafkaError._PURGE_QUEUE), Report(None))

    def init_transactions(self, timeout: float) -> None:
        self.calls.append("init")

    def begin_transaction(self) -> None:
        self.calls.append("begin")
        if self.failure is not None:
            raise KafkaException(self.failure)
        if self.in_transaction:
            raise KafkaException(KafkaError(KafkaError._STATE, "Operation not valid in state InTransaction"))
        self.in_transaction = True

    def produce(self, *fields: Any) -> None:
        if self.failure is not None:
            raise KafkaException(KafkaError(KafkaError._STATE, "Unable to produce message: Local: Erroneous state"))
        if len(self.queued) >= self.room:
            raise BufferError
        self.queued.append((*fields, *[None] * (5 - len(fields))))

    def poll(self, timeout: float) -> int:
        waiting, self.on_poll = self.on_poll, []
        for call in waiting:
            call()
        return 0

    def flush(self, timeout: float) -> int:
        self.calls.append("flush")
        self.poll(0)
        if not self.holds_acks and self.failure is None:
            acked, self.queued = self.queued, []
            for fields in acked:
                if fields[4] is not None:
                    fields[4](None, Report(self.next_offset))
                self.next_offset += 1
        return len(self.queued)

    def send_offsets_to_transaction(self, offsets: list[Any], member: object, timeout: float) -> None:
        self.calls.append("offsets")
        if self.held_up is not None:
            self.held_up.wait(60)
        if self.failure is not None:
            raise KafkaException(self.failure)
        self.offsets.append(offsets)

    def commit_transaction(self, timeout: float) -> None:
        self.calls.append("commit")
        self.in_transaction = False

    def abort_transaction(self, timeout: float) -> None:
        self.calls.append("abort")
        if self.abort_fails is not None:
            raise KafkaException(self.abort_fails)
        if self.comes_back:
            self.comes_back -= 1
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "failed to flush", retriable=True))
        self.fail(KafkaError._PURGE_QUEUE)
        self.in_transaction, self.failure = False, None

    def purge(self, *flags: bool) -> None:
        self.calls.append("purge")

    def __len__(self) -> int:
        return len(self.queued)


@dataclass
class Factory:
    """Makes fake producers and keeps them."""

    made: list[FakeProducer] = field(default_factory=list)

    def __call__(self, conf: dict[str, Any], logger: Any = None) -> FakeProducer:
        self.made.append(FakeProducer(conf, logger))
        return self.made[-1]
