"""Records that no client library would write, as a batch of bytes over a plain socket."""

from __future__ import annotations

import io
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from kio.index import load_payload_module, load_response_schema
from kio.records.schema import NewRecordBatch, Record, RecordHeader
from kio.records.writers import write_new_batch
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from embedded_broker.wire import schema

PRODUCE, VERSION, UNREGISTER_BROKER = 0, 7, 64
TRANSACTIONS, SAFE_DOWNGRADE = "transaction.version", 2
TIMEOUT_S = 60.0
EPOCH = datetime.fromtimestamp(0, UTC)


def record(
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[bytes, bytes | None]] = (),
    timestamp_ms: int = 1_700_000_000_000,
) -> Record:
    """A record whose header keys are any bytes and whose timestamp is any number."""
    made: dict[str, Any] = {
        "attributes": 0,
        "timestamp": EPOCH + timedelta(milliseconds=timestamp_ms),
        "offset": 0,
        "key": key,
        "value": value,
        "headers": tuple(RecordHeader(key=name, value=content) for name, content in headers),
    }
    return Record(**made)


def put(bootstrap: str, topic: str, partition: int, written: Record) -> None:
    """Produce one record and wait for its ack; raises AssertionError when the broker refuses it."""
    module: Any = load_payload_module(PRODUCE, VERSION, EntityType.request)
    body = module.ProduceRequest(
        acks=-1,
        timeout=timedelta(seconds=TIMEOUT_S),
        topic_data=(
            module.TopicProduceData(
                name=topic,
                partition_data=(module.PartitionProduceData(index=partition, records=_batch(written)),),
            ),
        ),
    )
    reply: Any = _roundtrip(bootstrap, body)
    code = reply.responses[0].partition_responses[0].error_code
    assert code == 0, f"{topic}[{partition}]: {code}"


def _batch(written: Record) -> bytes:
    parts: dict[str, Any] = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "attributes": 0}
    buffer = io.BytesIO()
    write_new_batch(buffer, NewRecordBatch(records=(written,), **parts))
    return buffer.getvalue()


def unregister_broker(controller: str, broker_id: int) -> None:
    """Tell a KRaft controller that a broker has died: it leads nothing any more at once, and may register again."""
    module: Any = load_payload_module(UNREGISTER_BROKER, 0, EntityType.request)
    reply: Any = _roundtrip(controller, module.UnregisterBrokerRequest(broker_id=broker_id))
    assert reply.error_code == 0, f"broker {broker_id}: {reply.error_code}: {reply.error_message}"


def offer_transactions(bootstrap: str, protocol: int) -> None:
    """Have a cluster offer this transaction protocol, and not the newer one that it may have been made with."""
    told: Any = call(bootstrap, "api_versions", 3, client_software_name="eos-tests", client_software_version="1")
    offered = {each.name: each.max_version_level for each in told.finalized_features}.get(TRANSACTIONS, 0)
    if max(offered, 1) == protocol:  # levels 0 and 1 are the first protocol
        return
    assert offered > protocol, f"it offers protocol {max(offered, 1)}, not {protocol}"
    lower = {"feature": TRANSACTIONS, "max_version_level": protocol, "upgrade_type": SAFE_DOWNGRADE}
    reply: Any = call(bootstrap, "update_features", 1, feature_updates=[lower], validate_only=False)
    refused = [each for each in (reply, *reply.results) if each.error_code != 0]
    assert not refused, refused


def call(bootstrap: str, name: str, version: int, **fields: Any) -> Any:
    """Any request, by the API's name in snake case and its fields' names, nested ones as dicts; the response."""
    return _roundtrip(bootstrap, schema.builder(schema.entity(name, version, "request"))(fields))


@contextmanager
def conversation(bootstrap: str) -> Iterator[Callable[..., Any]]:
    """What `call` does, on one connection for all requests."""
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
        yield lambda name, version, **fields: _exchange(
            connection, schema.builder(schema.entity(name, version, "request"))(fields)
        )


def _roundtrip(address: str, body: Any) -> object:
    """Send one request on a connection of its own and return the response's body."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
        return _exchange(connection, body)


def _exchange(connection: socket.socket, body: Any) -> object:
    header_type, key, version = type(body).__header_schema__, type(body).__api_key__, type(body).__version__
    header = header_type(request_api_key=key, request_api_version=version, correlation_id=1, client_id="raw")
    buffer = io.BytesIO()
    entity_writer(header_type)(buffer, header)
    entity_writer(type(body))(buffer, body)
    connection.sendall(len(buffer.getvalue()).to_bytes(4, "big") + buffer.getvalue())
    with connection.makefile("rb") as stream:
        size_bytes = stream.read(4)
        if len(size_bytes) < 4:
            raise ConnectionResetError("closed instead of an answer")
        frame = stream.read(int.from_bytes(size_bytes, "big"))
    response: Any = load_response_schema(key, version)
    _, size = entity_reader(response.__header_schema__)(frame, 0)
    return entity_reader(response)(frame, size)[0]
