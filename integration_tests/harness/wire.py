"""Single requests over the wire, for answers that no client library shows: exact error codes, version by version."""

from __future__ import annotations

import dataclasses
import io
import socket
import time
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Literal, TypeVar

from kio.index import load_payload_module
from kio.records.schema import NewRecordBatch
from kio.records.writers import write_new_batch
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from kio.static.primitive import i64

from integration_tests.harness.raw import record

T = TypeVar("T")
Side = Literal[EntityType.request, EntityType.response]
TIMEOUT_S = 90.0
MILLISECOND = timedelta(milliseconds=1)
KEYS = {
    "produce": 0,
    "fetch": 1,
    "list_offsets": 2,
    "metadata": 3,
    "offset_commit": 8,
    "offset_fetch": 9,
    "find_coordinator": 10,
    "join_group": 11,
    "heartbeat": 12,
    "leave_group": 13,
    "sync_group": 14,
    "describe_groups": 15,
    "api_versions": 18,
    "init_producer_id": 22,
    "offset_for_leader_epoch": 23,
    "add_partitions_to_txn": 24,
    "add_offsets_to_txn": 25,
    "end_txn": 26,
    "write_txn_markers": 27,
    "txn_offset_commit": 28,
    "delete_groups": 42,
    "offset_delete": 47,
    "describe_producers": 61,
    "describe_transactions": 65,
    "list_transactions": 66,
    "consumer_group_heartbeat": 68,
}
COME_BACK = frozenset(
    {
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.concurrent_transactions,
    }
)


class Wire:
    """One connection; a call sends a request and reads its answer."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._stream = connection.makefile("rb")
        self._correlation_id = 0

    def __call__(self, name: str, version: int, **fields: Any) -> Any:
        """Send API `name` in a version; nested structures are dicts. The answer is kio's entity."""
        self.send(name, version, **fields)
        return self.receive(name, version)

    def send(self, name: str, version: int, **fields: Any) -> None:
        """Send only; `receive` reads the answer."""
        self._correlation_id += 1
        entity_type = _entity(name, version, EntityType.request)
        header_type: Any = entity_type.__header_schema__
        header = header_type(
            request_api_key=KEYS[name],
            request_api_version=version,
            correlation_id=self._correlation_id,
            client_id="wire",
        )
        buffer = io.BytesIO()
        entity_writer(header_type)(buffer, header)
        entity_writer(entity_type)(buffer, _build(entity_type, fields))
        self._connection.sendall(len(buffer.getvalue()).to_bytes(4, "big") + buffer.getvalue())

    def receive(self, name: str, version: int) -> Any:
        """Read the answer to a request sent before."""
        entity_type = _entity(name, version, EntityType.response)
        frame = self._stream.read(int.from_bytes(self._stream.read(4), "big"))
        _, size = entity_reader(entity_type.__header_schema__)(frame, 0)
        return entity_reader(entity_type)(frame, size)[0]


@contextmanager
def connected(bootstrap: str) -> Iterator[Wire]:
    """A connection to a broker."""
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
        yield Wire(connection)


def settled(ask: Callable[[], T], error_code: Callable[[T], ErrorCode]) -> T:
    """Ask again while the broker says "come back later": it loads a coordinator, or a transaction is ending."""
    deadline = time.monotonic() + TIMEOUT_S
    while error_code(answer := ask()) in COME_BACK and time.monotonic() < deadline:
        time.sleep(0.02)
    return answer


def batch(producer: tuple[int, int], sequence: int, count: int = 1, *, transactional: bool = True) -> bytes:
    """A batch of an idempotent producer."""
    buffer = io.BytesIO()
    fields: dict[str, Any] = {
        "producer_id": producer[0],
        "producer_epoch": producer[1],
        "base_sequence": sequence,
        "attributes": 16 if transactional else 0,
        "records": tuple(dataclasses.replace(record(b"k", b"v"), offset=i64(delta)) for delta in range(count)),
    }
    write_new_batch(buffer, NewRecordBatch(**fields))
    return buffer.getvalue()


def _entity(name: str, version: int, entity_type: Side) -> Any:
    module = load_payload_module(KEYS[name], version, entity_type)
    suffix = "Request" if entity_type is EntityType.request else "Response"
    return getattr(module, "".join(part.capitalize() for part in name.split("_")) + suffix)


def _build(entity_type: Any, fields: dict[str, Any]) -> Any:
    """Make an entity of the fields that its version has."""
    hints = typing.get_type_hints(entity_type)
    made: dict[str, Any] = {}
    for field in dataclasses.fields(entity_type):
        if field.name in fields:
            value = fields[field.name]
            if isinstance(value, list):
                value = tuple(_build(_inner(hints[field.name]), item) for item in value)
            made[field.name] = value
    return entity_type(**made)


def _inner(hint: Any) -> Any:
    """The entity inside `tuple[Entity, ...]` or `tuple[Entity, ...] | None`."""
    found = [hint] if dataclasses.is_dataclass(hint) else []
    for argument in typing.get_args(hint):
        found += [_inner(argument)] if typing.get_args(argument) or dataclasses.is_dataclass(argument) else []
    return next((each for each in found if each is not None), None)
