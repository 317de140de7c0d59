"""A partition's checkpoint: what its log had made of its producers up to an offset. Layout: docs/log-format.md.

Invariant: it is written only when the log is durable below its offset, and replaced atomically. So a start takes the
state from it, reads the log from its offset on, and needs no batch that retention has removed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crc32c import crc32c

from embedded_broker.state.producer_entry import plain

VERSION = 2
State = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`state` is what the batches below `offset` have led to, as JSON."""

    offset: int
    state: State


def encode(checkpoint: Checkpoint) -> bytes:
    """Encode a checkpoint as one line: the CRC-32C of the JSON that follows it."""
    body = {"version": VERSION, "offset": checkpoint.offset, "state": checkpoint.state}
    text = json.dumps(body, separators=(",", ":"), default=plain).encode()
    return b"%08x %b\n" % (crc32c(text), text)


def decode(data: bytes) -> Checkpoint | None:
    """Decode the checkpoint in such a file; None when it isn't sound, or of a version that this code doesn't know."""
    text = data[9:-1]
    if data != b"%08x %b\n" % (crc32c(text), text):
        return None
    body = json.loads(text)
    return Checkpoint(body["offset"], body["state"]) if body["version"] == VERSION else None
