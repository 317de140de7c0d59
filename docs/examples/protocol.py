"""Requests of Kafka's protocol, one at a time: what a client library sends by itself, hides and repeats."""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from embedded_broker.wire import schema
from kafka_records.batch import TRANSACTIONAL
from kafka_records.records import encode

TIMEOUT_S = 60.0
AGAIN_S = 0.02
COME_BACK = frozenset(
    {
        ErrorCode.concurrent_transactions,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.leader_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_topic_or_partition,
    }
)


class InitialisedProducer(NamedTuple):
    """What InitProducerId gives a producer."""

    producer_id: int
    epoch: int


NOBODY = InitialisedProducer(-1, -1)


class Refused(Exception):
    """The broker's error, by its name."""


class Wire:
    """One connection to a broker. Topics have one partition."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self._stream = self._socket.makefile("rb")

    def call(self, name: str, version: int, **fields: Any) -> Any:
        """Send one request, fields by their names and nested ones as dicts; the answer."""
        request = schema.builder(schema.entity(name, version, "request"))(fields)
        header_type = type(request).__header_schema__
        key = type(request).__api_key__
        header = header_type(request_api_key=key, request_api_version=version, correlation_id=0, client_id="example")
        out = io.BytesIO()
        entity_writer(header_type)(out, header)
        entity_writer(type(request))(out, request)
        self._socket.sendall(len(out.getvalue()).to_bytes(4, "big") + out.getvalue())
        frame = self._stream.read(int.from_bytes(self._stream.read(4), "big"))
        response = schema.entity(name, version, "response")
        _, at = entity_reader(response.__header_schema__)(frame, 0)
        return entity_reader(response)(frame, at)[0]

    def create(self, topic: str) -> None:
        """A new topic; returns once its partition answers."""
        new = {"name": topic, "num_partitions": 1, "replication_factor": 1, "configs": [], "assignments": []}
        _check(self.call("create_topics", 4, topics=[new], timeout=int(TIMEOUT_S * 1000)).topics[0])
        _settled(lambda: self._end(topic, 0), check=True)

    def init(self, transactional_id: str | None = None, was: InitialisedProducer = NOBODY) -> InitialisedProducer:
        """InitProducerId: a producer id and an epoch. `was`: the ones held until now (KIP-360)."""
        answer = _settled(
            lambda: self.call(
                "init_producer_id",
                4,
                transactional_id=transactional_id,
                transaction_timeout=60_000,
                producer_id=was.producer_id,
                producer_epoch=was.epoch,
            )
        )
        _check(answer)
        return InitialisedProducer(answer.producer_id, answer.producer_epoch)

    def send(
        self, topic: str, session: InitialisedProducer, sequence: int, *values: str, transactional_id: str | None = None
    ) -> int:
        """Produce one batch; the offset of its first record. `sequence` is that of its first record."""
        batch = encode(
            [(None, value.encode()) for value in values],
            int(time.time() * 1000),
            attributes=0 if transactional_id is None else TRANSACTIONAL,
            producer_id=session.producer_id,
            producer_epoch=session.epoch,
            base_sequence=sequence,
        )
        data = {"name": topic, "partition_data": [{"index": 0, "records": bytes(batch)}]}
        answer = self.call(
            "produce", 9, transactional_id=transactional_id, acks=-1, timeout=int(TIMEOUT_S * 1000), topic_data=[data]
        )
        (result,) = answer.responses[0].partition_responses
        _check(result)
        return int(result.base_offset)

    def add(self, transactional_id: str, session: InitialisedProducer, topic: str) -> None:
        """AddPartitionsToTxn: from here on the partition belongs to the producer's transaction."""
        _settled(
            lambda: (
                self.call(
                    "add_partitions_to_txn",
                    3,
                    v3_and_below_transactional_id=transactional_id,
                    v3_and_below_producer_id=session.producer_id,
                    v3_and_below_producer_epoch=session.epoch,
                    v3_and_below_topics=[{"name": topic, "partitions": [0]}],
                )
                .results_by_topic_v3_and_below[0]
                .results_by_partition[0]
            ),
            check=True,
        )

    def end(self, transactional_id: str, session: InitialisedProducer, *, commit: bool) -> None:
        """EndTxn, twice: the first is answered when the decision is on disk, the second when all markers are."""
        for _ in range(2):
            _settled(
                lambda: self.call(
                    "end_txn",
                    3,
                    transactional_id=transactional_id,
                    producer_id=session.producer_id,
                    producer_epoch=session.epoch,
                    committed=commit,
                ),
                check=True,
            )

    def ends(self, topic: str) -> tuple[int, int]:
        """ListOffsets: (end of the log, last stable offset)."""
        return self._end(topic, 0).offset, self._end(topic, 1).offset

    def _end(self, topic: str, isolation_level: int) -> Any:
        asked = {"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}
        answer = self.call("list_offsets", 4, replica_id=-1, isolation_level=isolation_level, topics=[asked])
        return answer.topics[0].partitions[0]


def _settled(ask: Callable[[], Any], *, check: bool = False) -> Any:
    """Ask until the answer isn't "come back later"."""
    deadline = time.monotonic() + TIMEOUT_S
    while _error(answer := ask()) in COME_BACK and time.monotonic() < deadline:
        time.sleep(AGAIN_S)
    if check:
        _check(answer)
    return answer


def _error(answer: Any) -> ErrorCode:
    code: ErrorCode = answer.error_code if hasattr(answer, "error_code") else answer.partition_error_code
    return code


def _check(answer: Any) -> None:
    if (code := _error(answer)) is not ErrorCode.none:
        raise Refused(code.name.upper())
