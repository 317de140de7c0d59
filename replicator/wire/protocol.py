"""Requests and responses of Kafka's protocol that the replicator speaks itself, over kio's codecs. Sans-I/O.

kio has one class for each version of a request; `made` fills in the fields that a version has. Versions are loaded on
first use. Used by `connection`.
"""

from __future__ import annotations

import dataclasses
import importlib
import io
import struct
from collections.abc import Callable, Mapping
from functools import cache
from types import ModuleType
from typing import Any, Protocol

from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError

from replicator.model.errors import Unsupported
from replicator.wire import response_limits
from replicator.wire.response_limits import BadResponse

SPOKEN: Mapping[str, tuple[int, int, int]] = {
    "produce": (0, 9, 12),  # 9: Kafka 2.8; 13: topic ids instead of names
    "fetch": (1, 4, 17),  # 4: record batches of format v2; 13: topic ids instead of names
    "list_offsets": (2, 1, 10),
    "metadata": (3, 4, 13),  # 4: a request can leave topics uncreated; 10: topic ids
    "offset_commit": (8, 8, 8),  # 8: Kafka 2.4; 10: topic ids
    "offset_fetch": (9, 7, 8),  # 7: stable offsets; 8: several groups at a time
    "find_coordinator": (10, 3, 4),  # 4: several keys at a time (Kafka 3.0)
    "list_groups": (16, 4, 5),  # 4: their states (Kafka 2.6); 5: their types (KIP-848)
    "sasl_handshake": (17, 1, 1),  # 1: tokens travel in SaslAuthenticate
    "api_versions": (18, 0, 0),
    "init_producer_id": (22, 2, 5),
    "offset_for_leader_epoch": (23, 3, 4),  # 3: a replica id, which tells a consumer from a follower
    "add_partitions_to_txn": (24, 0, 3),  # 4: between brokers
    "add_offsets_to_txn": (25, 0, 4),
    "end_txn": (26, 0, 5),  # 5: the second transaction protocol (KIP-890)
    "write_txn_markers": (27, 1, 1),  # 2: a marker has a later epoch than its transaction (KIP-890)
    "txn_offset_commit": (28, 0, 5),  # 5: as of end_txn
    "describe_configs": (32, 4, 4),  # 4: Kafka 2.6
    "sasl_authenticate": (36, 0, 2),
    "offset_delete": (47, 0, 0),  # Kafka 2.4
    "describe_cluster": (60, 0, 0),  # Kafka 2.8
    "describe_producers": (61, 0, 0),  # Kafka 2.8
    "describe_transactions": (65, 0, 0),  # Kafka 3.0
    "list_transactions": (66, 0, 0),  # Kafka 3.0
    "consumer_group_describe": (69, 0, 1),  # 1: which members speak the classic protocol (KIP-1099)
    "describe_share_group_offsets": (90, 0, 1),  # 0: Kafka 4.1; 1: with their lag (KIP-1226, Kafka 4.2)
    "alter_share_group_offsets": (91, 0, 0),  # Kafka 4.1
    "delete_share_group_offsets": (92, 0, 0),  # Kafka 4.1
}
"""API key, lowest and highest version, by the API's name in kio."""


class Speaks(Protocol):
    """A connection, as far as those need it who write a request for it."""

    where: str
    """The broker, for messages."""

    def version(self, api: str, highest: int | None = None) -> int:
        """Return the version of `api` that both sides speak, `highest` at most. Raises Unsupported."""


_UNREADABLE = (SerialError, struct.error, ArithmeticError, LookupError, TypeError, ValueError)
"""What kio's readers raise: LookupError for an error code that they don't know, TypeError for a value out of bounds."""


@dataclasses.dataclass(frozen=True, slots=True)
class Exchange:
    """One API in one version: writes its requests and reads its responses."""

    version: int
    types: ModuleType
    """The classes of what stands inside a request."""
    write: Callable[[int, str, Mapping[str, Any]], bytes]
    """(correlation id, client id, fields) as bytes; fields that the version doesn't have are left out."""
    read: Callable[[bytes], tuple[int, Any]]
    """(correlation id, response) of bytes. Raises BadResponse."""


@cache
def exchange(api: str, version: int) -> Exchange:
    """Make the codecs of `api` (a name of `SPOKEN`) in `version`."""
    title = "".join(part.capitalize() for part in api.split("_"))
    types = importlib.import_module(f"kio.schema.{api}.v{version}.request")
    response = getattr(importlib.import_module(f"kio.schema.{api}.v{version}.response"), f"{title}Response")
    kind: Any = getattr(types, f"{title}Request")
    header, header_answered = kind.__header_schema__, response.__header_schema__
    write_header, write_body = entity_writer(header), entity_writer(kind)
    read_header, read_body = entity_reader(header_answered), entity_reader(response)

    def write(correlation_id: int, client_id: str, fields: Mapping[str, Any]) -> bytes:
        out = io.BytesIO()
        about: dict[str, Any] = {"request_api_key": SPOKEN[api][0], "request_api_version": version}
        write_header(out, header(**about, correlation_id=correlation_id, client_id=client_id))
        write_body(out, made(kind, **fields))
        return out.getvalue()

    def read(data: bytes) -> tuple[int, Any]:
        try:
            known = response_limits.checked(header_answered, response, data)
            answered, at = read_header(known, 0)
            body, _ = read_body(known, at)
        except _UNREADABLE as error:
            raise BadResponse(f"no {title}Response of version {version}: {type(error).__name__}: {error}") from error
        return answered.correlation_id, body

    return Exchange(version, types, write, read)


def made(kind: type, **fields: Any) -> Any:
    """Make an entity of kio with those of `fields` that it has."""
    return kind(**{name: fields[name] for name in _fields(kind) if name in fields})


@cache
def _fields(kind: Any) -> tuple[str, ...]:
    return tuple(each.name for each in dataclasses.fields(kind))


def common_version(api: str, offered: Mapping[int, tuple[int, int]], where: str, highest: int | None = None) -> int:
    """Return the highest version of `api` that both sides speak, and no higher than `highest`.

    Args:
        offered: lowest and highest version by API key, as ApiVersions tells them.
        where: the broker, for the message.

    Raises Unsupported: there is none.
    """
    key, lowest, ours = SPOKEN[api]
    theirs = offered.get(key)
    if theirs is not None:
        version = min(theirs[1], ours if highest is None else min(ours, highest))
        if version >= max(lowest, theirs[0]):
            return version
    said = f"versions {theirs[0]} to {theirs[1]}" if theirs else "no version"
    raise Unsupported(f"{where}: it speaks {said} of the API {api}; known here are {lowest} to {ours}")
