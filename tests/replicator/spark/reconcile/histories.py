"""Partitions with a history that is drawn at random: what a flow copied, and all that was done to the copy since.

Sizes, distances, repetition and adjacency come from the seed: from one record or difference to thousands, single ones
and ranges, next to each other and far apart, also into and out of what retention has removed. The logs of some are
cleaned after all of that, as compacted topics are. The oracle knows each record of both sides by what was done to it,
and expects no more of a reconciliation than content can tell.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tests.replicator.spark.reconcile.drawn import EPOCH_MS, Content

RECORDS_MAX = 5_000
T = TypeVar("T")


@dataclass
class History:
    """Both sides as they stand, in order, without offsets. An altered record has the number -2 - n of the source's
    n-th, a foreign one -1. `acts`: what was done to so many records. `astray`: numbers of those of which a copy was
    written elsewhere than where it belongs."""

    source: list[Content]
    target: list[Content]
    acts: Counter[str] = field(default_factory=Counter)
    astray: set[int] = field(default_factory=set)


@dataclass
class Cleaned:
    """A history of which one log was compacted, or both: what is left of both sides, at which offsets, where the logs
    end, and what stood on the target before. `compacted`: whether the source's topic is, and the target's."""

    history: History
    offsets: tuple[list[int], list[int]]
    ends: tuple[int, int]
    written: list[Content]
    compacted: tuple[bool, bool]


Act = Callable[[History, random.Random, int], None]


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


def drawn_history(seed: int, records_max: int = RECORDS_MAX) -> History:
    """The history of this seed. Most logs have several chunks, where chunks are small, so that what moves often moves
    from one gap into another."""
    return _drawn(random.Random(seed), records_max, ACTS)


def drawn_compacted(seed: int, records_max: int = RECORDS_MAX) -> Cleaned:
    """The same, with somebody else's records of the flow's keys, and with one or both logs cleaned after all of that up
    to where it was drawn: what is lost, altered, moved or foreign stands beside what a cleaner has taken."""
    drawn = random.Random(seed)
    found = _drawn(drawn, records_max, {**ACTS, "foreign of keys": _foreign_of_keys})
    written = list(found.target)
    compacted = drawn.choice(((False, True), (False, True), (True, False), (True, True)))
    ends = len(found.source), len(found.target)
    sides = [
        _cleaned(drawn, side) if is_compacted else [*range(len(side))]
        for side, is_compacted in zip((found.source, found.target), compacted, strict=True)
    ]
    for side, left in zip((found.source, found.target), sides, strict=True):
        side[:] = [side[offset] for offset in left]
    return Cleaned(found, (sides[0], sides[1]), ends, written, compacted)


def _drawn(drawn: random.Random, records_max: int, acts: Mapping[str, Act]) -> History:
    records = drawn_contents(drawn, max(drawn_size(drawn, records_max) for _ in range(2)))
    found = History(list(records), list(records))
    for _ in range(drawn_size(drawn, drawn.choice((1, 10, 30, 100))) if drawn.random() < 0.97 else 0):
        name = drawn.choice((*acts,))
        size = drawn_size(drawn, len(records))
        acts[name](found, drawn, size)
        found.acts[name] += size
    return found


def _cleaned(drawn: random.Random, side: Sequence[Content]) -> list[int]:
    """The offsets that a cleaner leaves: before where it has come to, the last one of each key, and no tombstones once
    they are old."""
    until = drawn.choice((len(side), drawn.randrange(len(side) + 1)))
    old_tombstones = drawn.random() < 0.5
    last = {one.key: offset for offset, one in enumerate(side[:until])}
    return [
        offset
        for offset, one in enumerate(side)
        if offset >= until
        or (one.key is not None and last[one.key] == offset and not (old_tombstones and one.value is None))
    ]


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
    found.astray.update(one.number for one in block)
    del found.target[at : at + size]
    to = _place(drawn, found.target)
    found.target[to:to] = block


def _double(found: History, drawn: random.Random, size: int) -> None:
    at = _place(drawn, found.target)
    to = drawn.choice((at, min(len(found.target), at + size), _place(drawn, found.target)))
    found.astray.update(one.number for one in found.target[at : at + size])
    found.target[to:to] = found.target[at : at + size]


def _foreign(found: History, drawn: random.Random, size: int) -> None:
    at = _place(drawn, found.target)
    tag = drawn.randrange(1 << 30)
    found.target[at:at] = [
        Content(-1, f"f{tag}-{n}".encode(), f"foreign{tag}-{n}".encode(), EPOCH_MS + drawn.randrange(10**6))
        for n in range(size)
    ]


def _foreign_of_keys(found: History, drawn: random.Random, size: int) -> None:
    at = _place(drawn, found.target)
    tag = drawn.randrange(1 << 30)
    for n, one in enumerate(drawn.sample(found.source, min(size, len(found.source), 50))):
        if one.key is not None:
            value = None if drawn.random() < 0.1 else f"other{tag}-{n}".encode()
            found.target.insert(at, Content(-1, one.key, value, EPOCH_MS + drawn.randrange(10**6)))


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


ACTS: dict[str, Act] = {
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
