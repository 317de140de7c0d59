"""Records with unusual content (null and empty keys, values, headers), each with its number in it. Pure."""

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
class OddRecord:
    """A record to write; `age_ms` is how long before now its timestamp lies."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    age_ms: int = 0


def make(number: int, chance: random.Random) -> OddRecord:
    """Make the record of this number. Kinds alternate; the number is at the start of the key, value or a header's
    value.
    """
    name = b"#%09d" % number
    filler = chance.randbytes(chance.randrange(20, 300))
    age_ms = chance.randrange(AGE_MS_MAX) if chance.random() < 0.1 else 0
    kinds: tuple[OddRecord, ...] = (
        OddRecord(name, filler),
        OddRecord(None, name + filler),
        OddRecord(b"", name + filler, (("trace", filler[:16]),)),
        OddRecord(name, None),
        OddRecord(name, b"", (("empty", b""), ("null", None))),
        OddRecord(None, None, (("n", name),)),
        OddRecord(b"", b"", (("", name), ("", b""))),
        OddRecord(name, filler * 3, (("again", b"1"), ("again", b"2"), ("again", b"1"))),
        OddRecord(filler, name, (("", b"no key"), ("ключ", "wert ✓".encode()))),
        OddRecord(name, b"the same again and again " * 40),
    )
    kind = kinds[number % len(kinds)]
    return OddRecord(kind.key, kind.value, kind.headers, age_ms)


def make_big(number: int, chance: random.Random) -> OddRecord:
    """Make a record that just fits into the largest batch that brokers take by default."""
    name = b"#%09d" % number
    return OddRecord(None, name + chance.randbytes(LIMIT_BYTES - BATCH_OVERHEAD_BYTES - len(name)))


def name_of(key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]) -> bytes:
    """Return the number that was put into the record, or the whole content if it has none."""
    for text in (key, value, *(content for _, content in headers)):
        if text and (match := _NAME.match(text)):
            return match.group()
    return repr((key, value, tuple(headers))).encode()
