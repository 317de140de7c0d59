"""What a simulated plane says of the records that it has written together."""

from __future__ import annotations

import hashlib

from replicator.model.partition import Span


def runs_of(offsets: list[int]) -> list[Span]:
    """Runs of consecutive offsets."""
    found: list[Span] = []
    for offset in offsets:
        if found and found[-1][1] == offset:
            found[-1] = (found[-1][0], offset + 1)
        else:
            found.append((offset, offset + 1))
    return found


def digest_of(previous: str, values: list[str]) -> str:
    chain = hashlib.blake2b(bytes.fromhex(previous), digest_size=16)
    for value in values:
        chain.update(value.encode())
    return chain.hexdigest()
