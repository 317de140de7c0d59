"""Records as odd as Kafka allows, each with its number in it. Pure."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass

LIMIT_BYTES = 1_048_588  # max.message.bytes by default: of a whole batch
BATCH_OVERHEAD_BYTES = 200  # header of the batch, lengths, generously
AGE_MS_MAX = 3_600_000  # how far back in time a record may lie
_NAME = re.compile(rb"#\d{9}")


@dataclass(frozen=True, slots=True)
class Odd:
    """A record to write; `age_ms` is how long before now its timestamp lies."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    age_ms: int = 0


def make(number: int, chance: random.Random) -> Odd:
    """The record of this number: kinds go round, the number stands first in key, value or a header's value."""
    name = b"#%09d" % number
    noise = chance.randbytes(chance.randrange(20, 300))
    age_ms = chance.randrange(AGE_MS_MAX) if chance.random() < 0.1 else 0
    kinds: tuple[Odd, ...] = (
        Odd(name, noise),
        Odd(None, name + noise),
        Odd(b"", name + noise, (("trace", noise[:16]),)),
        Odd(name, None),
        Odd(name, b"", (("empty", b""), ("null", None))),
        Odd(None, None, (("n", name),)),
        Odd(b"", b"", (("", name), ("", b""))),
        Odd(name, noise * 3, (("again", b"1"), ("again", b"2"), ("again", b"1"))),
        Odd(noise, name, (("", b"no key"), ("ключ", "wert ✓".encode()))),
        Odd(name, b"the same again and again " * 40),
    )
    kind = kinds[number % len(kinds)]
    return Odd(kind.key, kind.value, kind.headers, age_ms)


def make_big(number: int, chance: random.Random) -> Odd:
    """A record that just fits into the largest batch that brokers take by default."""
    name = b"#%09d" % number
    return Odd(None, name + chance.randbytes(LIMIT_BYTES - BATCH_OVERHEAD_BYTES - len(name)))


def name_of(key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]) -> bytes:
    """The number that was put into the record; for one in which it is destroyed, the whole content."""
    for text in (key, value, *(content for _, content in headers)):
        if text and (match := _NAME.match(text)):
            return match.group()
    return repr((key, value, tuple(headers))).encode()
