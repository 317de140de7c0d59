"""Headers of Kafka's requests and replies, as far as the proxy looks into them."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from kio.schema.index import api_key_map

_FIXED = Struct(">hhih")  # api key, api version, correlation id, length of client id (-1: null)
_KEYS = {name.replace("_", ""): key for key, name in api_key_map.items()}


class Request(NamedTuple):
    """Header of one request."""

    api: int
    version: int
    correlation: int
    client: str


def request(frame: bytes) -> Request:
    """The header of a request frame (length already stripped)."""
    api, version, correlation_id, length = _FIXED.unpack_from(frame)
    client = frame[_FIXED.size : _FIXED.size + max(0, length)]
    return Request(api, version, correlation_id, client.decode(errors="replace"))


def correlation(frame: bytes) -> int:
    """The correlation id of a reply frame."""
    return int.from_bytes(frame[:4], "big", signed=True)


def api_key(name: str) -> int:
    """The key of an API by its name in Kafka's protocol: `EndTxn` → 26. Raises KeyError for an unknown one."""
    return _KEYS[name.lower()]


def api_name(key: int) -> str:
    """The name of an API."""
    return api_key_map[key]
