"""How much metadata may take in memory, where it stays, also over restarts: what clients set, whoever they were. Pure.

`MetadataLog` refuses what would be too much, before anything is changed; what makes it smaller always fits, and so does
what the broker itself needs. Nothing that is kept is taken away.
"""

from __future__ import annotations

from collections.abc import Mapping
from sys import getsizeof
from typing import Any

from embedded_broker.storage.disk_space import NoSpace

ENTRY_BYTES = 2_000
"""Of an entry, beside its texts: in `MetadataLog`, and with whoever lets it hold."""
NUMBER_BYTES = 32
NAME_BYTES_MAX = 4_096
"""Of a user, of an entity that has quotas, of a group that has configs. Kafka has no bound for these."""


class MetadataFull(NoSpace):
    """All metadata together would take too much memory; nothing was changed."""


def entry_bytes(key: str, body: Mapping[str, Any] | None) -> int:
    """Compute what an entry takes, in proportion; None: it isn't there."""
    return 0 if body is None else ENTRY_BYTES + getsizeof(key) + _texts_bytes(body)


def _texts_bytes(value: Any) -> int:
    if isinstance(value, str):
        return getsizeof(value)
    if isinstance(value, Mapping):
        return sum(getsizeof(name) + _texts_bytes(each) for name, each in value.items())
    if isinstance(value, list | tuple):
        return sum(map(_texts_bytes, value))
    return NUMBER_BYTES


def is_long(name: str | None) -> bool:
    """Return whether a name is longer than those may be under which something is kept."""
    return name is not None and len(name.encode()) > NAME_BYTES_MAX
