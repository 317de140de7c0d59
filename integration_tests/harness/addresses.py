"""Rewrites broker addresses in replies, so that clients of a proxy stay behind it."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import cache
from typing import Any

from kio.index import load_response_schema
from kio.serial import entity_reader, entity_writer

from integration_tests.harness.frames import Request

METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER = 3, 10, 60
CARRIES_ADDRESSES = frozenset({METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER})


def rewrite(request: Request, frame: bytes, host: str, port: int) -> bytes:
    """The reply `frame` with every broker's address replaced; frames of other APIs come back as they are."""
    if request.api not in CARRIES_ADDRESSES:
        return frame
    schema = _schema(request.api, request.version)
    header, size = entity_reader(schema.__header_schema__)(frame, 0)
    reply, _ = entity_reader(schema)(frame, size)
    buffer = io.BytesIO()
    entity_writer(schema.__header_schema__)(buffer, header)
    entity_writer(schema)(buffer, _moved(reply, host, port))
    return buffer.getvalue()


@cache
def _schema(api: int, version: int) -> Any:
    return load_response_schema(api, version)


def _moved(reply: Any, host: str, port: int) -> Any:
    if hasattr(reply, "host"):  # FindCoordinator before version 4
        return _at(reply, host, port)
    name = "coordinators" if hasattr(reply, "coordinators") else "brokers"
    return replace(reply, **{name: tuple(_at(broker, host, port) for broker in getattr(reply, name))})


def _at(broker: Any, host: str, port: int) -> Any:
    """A coordinator that was not found has no port and stays so."""
    return replace(broker, host=host, port=type(broker.port)(port)) if broker.port > 0 else broker
