"""Partitions with a history that is drawn at random: what a flow copied, and all that was done to the copy since.

Sizes, distances, repetition and adjacency come from the seed: from one record or difference to thousands, single ones
and ranges, next to each other and far apart, also into and out of what retention has removed. The oracle knows
each record of both sides by what was done to it, and expects no more of a reconciliation than content can tell.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tests.replicator.spark.reconcile.drawn import EPOCH_MS, Content

T = TypeVar("T")


@dataclass
class History:
    """Both sides as they stand, in order, without offsets. An altered record has the number -2 - n of the source's
    n-th, a foreign one -1. `acts`: what was done to so many records."""

    source: list[Content]
    target: list[Content]
    acts: Counter[str] = field(default_factory=Counter)


def drawn_size(drawn: random.Random, most: int) -> int:
    """From 1 to `most`, small ones as likely as large ones."""
    return max(1, min(most, int(most ** drawn.random() + 0.5)))


def drawn_contents(drawn: random.Random, count: int) -> list[Content]:
    """All different; with few keys; heartbeats between others; runs of equal ones; with nulls; of few kinds at all."""
    kind = drawn.choice(("unique", "keyed", "heartbeats", "runs", "nulls", "few", "one time"))
    keys = drawn_size(drawn, 200)
    made: list[Content] = []
    for n in range(count):
        key, value, ms = f"k{drawn.randrange(keys)}".encode(), f"v{n}".encode(), EPOCH_MS + n
        if kind == "unique":
            made.append(Content(n, f"k{n}".encode(), value, ms))
        elif kind == "keyed":
            made.append(Content(n, key, value, EPOCH_MS + n // keys))
        elif kind == "heartbeats":
            made.append(Content(n, b"hb", b"up", EPOCH_MS) if drawn.random() < 0.3 else Content(n, key, value, ms))
        elif kind == "runs":
            again = made and drawn.random() < 0.8
            made.append(made[-1]._replace(number=n) if again else Content(n, key, value, ms))
        elif kind == "nulls":
            made.append(Content(n, None if drawn.random() < 0.5 else key, None if drawn.random() < 0.3 else value, ms))
        elif kind == "few":
            made.append(Content(n, b"k", f"v{drawn.randrange(keys)}".encode(), EPOCH_MS))
        else:
            made.append(Content(n, key, value, EPOCH_MS))
    return made


def drawn_history(seed: int, records_max: int = 3_000) -> History:
    """The history of this seed. Most logs have several chunks, where chunks are small, so that what moves often moves
    from one gap into another."""
    drawn = random.Random(seed)
    records = drawn_contents(drawn, max(drawn_size(drawn, records_max) for _ in range(2)))
    found = History(records, list(records))
    for _ in range(drawn_size(drawn, drawn.choice((1, 10, 30, 100))) if drawn.random() < 0.97 else 0):
        name = drawn.choice((*ACTS,))
        size = drawn_size(drawn, len(records))
        ACTS[name](found, drawn, size)
        found.acts[name] += size
    return found


def _place(drawn: random.Random, records: Sequence[Content]) -> int:
    """Often at one of both ends, where logs are cut and flows stop."""
    return drawn.choice((0, len(records), *(drawn.randrange(len(records) + 1) for _ in range(4))))


def _lose(found: History, drawn: random.Random, size: int) -> None:
    at = _place(drawn, found.target)
    del found.target[at : at + size]


def _lose_some(found: History, drawn: random.Random, size: int) -> None:
    gone = set(drawn.sample(range(len(found.target)), min(size, len(found.target))))
    found.target[:] = [one for n, one in enumerate(found.target) if n not in gone]


def _move(found: History, drawn: random.Random, size: int) -> None:
    at = _place(drawn, found.target)
    block = found.target[at : at + size]
    del found.target[at : at + size]
    to = _place(drawn, found.target)
    found.target[to:to] = block


def _double(found: History, drawn: random.Random, size: int) -> None:
    at = _place(drawn, found.target)
    to = drawn.choice((at, min(len(found.target), at + size), _place(drawn, found.target)))
    found.target[to:to] = found.target[at : at + size]


def _foreign(found: History, drawn: random.Random, size: int) -> None:
    at = _place(drawn, found.target)
    tag = drawn.randrange(1 << 30)
    found.target[at:at] = [
        Content(-1, f"f{tag}-{n}".encode(), f"foreign{tag}-{n}".encode(), EPOCH_MS + drawn.randrange(10**6))
        for n in range(size)
    ]


def _alter(found: History, drawn: random.Random, size: int) -> None:
    at = _place(drawn, found.target)
    name = drawn.choice(("key", "value", "ms", "both"))
    tag = drawn.randrange(1 << 30)
    for n in range(at, min(at + size, len(found.target))):
        was = found.target[n]
        now = was
        if name in ("key", "both"):
            now = now._replace(key=f"a{tag}-{n}".encode())
        if name in ("value", "both"):
            now = now._replace(value=f"altered{tag}-{n}".encode())
        if name == "ms":
            now = now._replace(ms=was.ms + 1 + tag)
        found.target[n] = now._replace(number=-2 - was.number if was.number >= 0 else was.number)


ACTS: dict[str, Callable[[History, random.Random, int], None]] = {
    "lose": _lose,
    "lose some": _lose_some,
    "move": _move,
    "double": _double,
    "foreign": _foreign,
    "alter": _alter,
}


def wrongly_counted(counts: Mapping[str, int], here: Counter[T], there: Counter[T]) -> dict[str, tuple[int, int]]:
    """Numbers of records that don't fit what content tells: expected and found.

    Args:
        here, there: what the records of the source and of the target say, as multisets.
    """
    expected = {
        "same, reordered": sum((here & there).values()),
        "doubled": sum(
            count - here[content] for content, count in there.items() if content in here and count > here[content]
        ),
        "missing, altered": sum((here - there).values()),
        "extra, altered": sum(count for content, count in there.items() if content not in here),
    }
    found = {names: sum(counts.get(name, 0) for name in names.split(", ")) for names in expected}
    return {names: (expected[names], found[names]) for names in expected if expected[names] != found[names]}
