"""What was done to a partition, record by record; and the records that are written."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from integration_tests.spark.planted import EPOCH_MS, Content


@dataclass(slots=True)
class Truth:
    """What was done to one partition.

    `source`, `target`: committed records by offset; `places`: where the copy of a source record truly stands;
    `skipped`, `lost`, `altered`: source offsets; `lost_places`: where the map has the copies of lost ones; `foreign`:
    target offsets of what no copy is; `again`: source offsets
    that were copied behind others; `unmapped`: source offsets of which the map has no block; `wrong`: whether the map
    says what isn't so, `wrong_at`: of which source offsets. `source_start`, `target_start`: the log starts.
    """

    source: dict[int, Content] = field(default_factory=dict)
    target: dict[int, Content] = field(default_factory=dict)
    places: dict[int, int] = field(default_factory=dict)
    skipped: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)
    lost_places: set[int] = field(default_factory=set)
    altered: dict[int, str] = field(default_factory=dict)
    foreign: set[int] = field(default_factory=set)
    again: set[int] = field(default_factory=set)
    unmapped: set[int] = field(default_factory=set)
    wrong: str = ""
    wrong_at: set[int] = field(default_factory=set)
    acts: list[str] = field(default_factory=list)
    source_start: int = 0
    target_start: int = 0
    position: int = 0
    next_target: int = 0
    count: int = 0
    begin: int = 0

    @property
    def here(self) -> dict[int, Content]:
        """The source's records below the position that can still be read."""
        return {at: one for at, one in self.source.items() if self.source_start <= at < self.position}

    @property
    def uncovered(self) -> bool:
        """Whether either side still has records of which the map has no block: retention may have taken them all."""
        places = (self.places.get(at, -1) for at in self.unmapped)
        return any(at >= self.source_start for at in self.unmapped) or any(at >= self.target_start for at in places)

    @property
    def contradicted(self) -> bool:
        """Whether both sides still have a record of which the map says what isn't so: otherwise nothing shows it. Of
        one that was copied again it says what is so."""
        there = self.there
        return any(at >= self.source_start and self.places.get(at) in there for at in self.wrong_at - self.again)

    @property
    def there(self) -> dict[int, Content]:
        """The target's records that can still be read."""
        return {at: one for at, one in self.target.items() if at >= self.target_start}


def content(draw: random.Random, kind: str, number: int) -> Content:
    """A record of one of the kinds."""
    headers: tuple[tuple[str, bytes | None], ...] = (("h", b"%d" % number), ("n", None)) if draw.random() < 0.1 else ()
    if kind == "repeated":
        return Content(b"k", b"%d" % draw.randrange(4), EPOCH_MS)
    if kind == "nulls":
        key, value = draw.choice((None, b"", b"k")), draw.choice((None, b"", b"%d" % number))
        return Content(key, value, EPOCH_MS + number)
    key = b"%d" % (draw.randrange(5) if kind == "keyed" else number)
    return Content(key, b"value %d" % number * draw.choice((1, 30)), EPOCH_MS + number, headers)


def altered(draw: random.Random, one: Content) -> tuple[Content, str]:
    """Another record in its place, and which field differs."""
    name = draw.choice(("key", "value", "headers", "timestamp"))
    new = b"altered %d" % draw.randrange(1 << 40)
    changed = {
        "key": one._replace(key=new),
        "value": one._replace(value=new),
        "headers": one._replace(headers=(*one.headers, ("altered", new))),
        "timestamp": one._replace(timestamp_ms=one.timestamp_ms + 1 + draw.randrange(1 << 30)),
    }
    return changed[name], name


def multiset(records: dict[int, Content]) -> Counter[Content]:
    """How often each content occurs."""
    return Counter(records.values())
