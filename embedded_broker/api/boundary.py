"""What every decoded request is held to before any handler sees it: the sizes of what the broker will keep or repeat.

Called by `net.server` for all APIs. That no string is longer than a protocol string can be (32,767 bytes) is seen
before decoding, by `wire.request_limits`, as Kafka's generated readers do it. Here are the strings from which longer
ones are made: those must fit into a string of the protocol, and of the internal topics, too. Kafka fails when it
writes such an answer, and closes the connection, but has made the member by then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from embedded_broker.wire.request_limits import STRING_BYTES_MAX

MEMBER_SUFFIX_BYTES = len("-") + 36
"""A member id of the classic protocol is a client id, or a group instance id, and a UUID behind it."""


class OutOfBounds(ValueError):
    """A request that no handler may see; its connection is closed."""


@dataclass(frozen=True, slots=True)
class Bound:
    """How long one string of a request may be."""

    what: str
    """Names it in the log."""
    value: Callable[[str, Any], str | None]
    """(client id, request) → the string; None: it isn't there, or not in this version."""
    bytes_max: int
    """In UTF-8."""


_IN_MEMBER_ID = STRING_BYTES_MAX - MEMBER_SUFFIX_BYTES
BOUNDS: Mapping[str, tuple[Bound, ...]] = {
    "join_group": (
        Bound("client id", lambda client_id, request: client_id, _IN_MEMBER_ID),
        Bound("group_instance_id", lambda _, request: getattr(request, "group_instance_id", None), _IN_MEMBER_ID),
    ),
}
"""By kio's name of the API."""


def check(name: str, client_id: str, request: Any) -> None:
    """Hold a decoded request of API `name` to its bounds. Raises OutOfBounds."""
    for bound in BOUNDS.get(name, ()):
        value = bound.value(client_id, request)
        if value is not None and len(value.encode()) > bound.bytes_max:
            raise OutOfBounds(f"{bound.what} of {len(value.encode())} bytes, at most {bound.bytes_max} are allowed")
