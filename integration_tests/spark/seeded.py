"""Partitions of a flow, drawn by seed: what it copied, what was done to the copy, and how both logs were written. Pure.

`seeded_logs` writes them, `seeded_oracle` says what a reconciliation has to find.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from integration_tests.spark.planted import EPOCH_MS, Content
from integration_tests.spark.seeded_damage import Target, damaged
from replicator.config import Delivery

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SIZES = (5, 60, 60, 300, 300, 1_200)
LATE_MS = 600_000
"""So much later than all others is the record with which the broker begins a segment: what is before is compacted."""


class Shape(NamedTuple):
    """Which sides are compacted once they are written. Seeds of one shape are partitions of one topic."""

    name: str
    source_compacted: bool
    target_compacted: bool

    @property
    def compacted(self) -> bool:
        """Whether either side is."""
        return self.source_compacted or self.target_compacted


SHAPES = (
    Shape("plain", False, False),
    Shape("target-compacted", False, True),
    Shape("source-compacted", True, False),
    Shape("both-compacted", True, True),
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A record of either log. `number`: which of the flow's source records it is or was copied from; None: none.

    `what`: "copy" (also of the source's own), "altered", "doubled" (right behind the first copy), "replayed" (doubled,
    elsewhere), "moved", "foreign"; on the source "before" where the flow began, or "behind" its position. `field`: the
    one that was altered.
    """

    content: Content
    number: int | None
    what: str
    field: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """What is written to a partition in one go. `aborted`: records of another transaction, written between them."""

    entries: tuple[Entry, ...]
    aborted: tuple[Content, ...]
    transaction: bool
    codec: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeded:
    """One partition. `source_cut`, `target_cut`: so many of the flow's source records, and of the target's entries, are
    deleted from the beginning of their log."""

    seed: int
    shape: Shape
    records: tuple[Content, ...]
    source: tuple[Step, ...]
    target: tuple[Step, ...]
    source_cut: int
    target_cut: int
    has_position: bool
    past_markers: bool
    delivery: str


def drawn(seed: int, now_ms: int) -> Seeded:
    """The partition of this seed. All its times are its own but for those of the records that begin a segment: a broker
    begins one when a record is later than the one before, and markers have the broker's time."""
    draw = random.Random(seed)
    shape = SHAPES[0] if draw.random() < 0.55 else draw.choice(SHAPES[1:])
    kind = draw.choice(("unique", "keyed", "keyed", "nulls", "runs", "few"))
    count = draw.choice(SIZES)
    source_cut, target_cut = _cuts(draw, count)
    coarse = 1 if shape.compacted or source_cut or target_cut else draw.choice((1, 10))
    records = _contents(draw, kind, count, coarse)
    if shape.compacted:
        records.append(Content(b"late", b"end", now_ms + LATE_MS))
    target = Target(tuple(records), source_cut, target_cut, shape.compacted)
    if draw.random() < 0.75:
        damaged(draw, target, kind)
    before = _others(draw, "before") if draw.random() < 0.2 else []
    behind = _others(draw, "behind") if draw.random() < 0.3 else []
    source = [*before, *(Entry(record, number, "copy") for number, record in enumerate(records)), *behind]
    if shape.source_compacted:
        source.append(Entry(Content(b"later", b"end", now_ms + 2 * LATE_MS), None, "behind"))
    entries = [Entry(*copied) for slot in target.slots for copied in slot]
    return Seeded(
        seed=seed,
        shape=shape,
        records=tuple(records),
        source=steps(draw, source, now_ms, alone=shape.compacted),
        target=steps(draw, entries, now_ms, alone=shape.compacted),
        source_cut=source_cut,
        target_cut=sum(len(slot) for slot in target.slots[:target_cut]),
        has_position=draw.random() > 0.04,
        past_markers=draw.random() < 0.5,
        delivery=(Delivery.AT_LEAST_ONCE if draw.random() < 0.08 else Delivery.EXACTLY_ONCE).value,
    )


def _cuts(draw: random.Random, count: int) -> tuple[int, int]:
    """How many records are deleted from either side's beginning: of none, of both, of only one."""
    which = draw.choice(("none", "none", "source", "target", "both"))

    def some() -> int:
        return count if draw.random() < 0.05 else draw.randint(1, count)

    return some() if which in ("source", "both") else 0, some() if which in ("target", "both") else 0


def _contents(draw: random.Random, kind: str, count: int, coarse: int) -> list[Content]:
    """Records that are all different, or have few keys, or nulls, or come in runs of identical ones, or of which there
    are only three. `coarse`: so many of them have the same time."""
    keys = draw.choice((3, 20, 100))
    found: list[Content] = []
    while len(found) < count:
        number = len(found)
        value, ms = b"v%d" % number * draw.choice((1, 1, 5)), EPOCH_MS + number // coarse
        headers = (("h", b"%d" % (number % 3)), ("n", None)) if draw.random() < 0.1 else ()
        if kind == "unique":
            found.append(Content(b"k%d" % number, value, ms, headers))
        elif kind == "keyed":
            tombstone = draw.random() < 0.1
            found.append(Content(b"k%d" % draw.randrange(keys), None if tombstone else value, ms, headers))
        elif kind == "nulls":
            key = None if draw.random() < 0.5 else b"k"
            found.append(Content(key, None if draw.random() < 0.3 else b"" if number % 17 == 0 else value, ms, headers))
        elif kind == "few":
            found.append(Content(b"k", b"%d" % draw.randrange(3), EPOCH_MS))
        else:
            times = draw.choice((1, 1, 1, 2, 5, 40))
            found += [Content(b"k%d" % draw.randrange(keys), value, EPOCH_MS + number)] * times
    return found[:count]


def _others(draw: random.Random, what: str) -> list[Entry]:
    """Records of the source that the flow has not copied."""
    return [
        Entry(Content(b"k%d" % draw.randrange(20), b"%s%d" % (what.encode(), number), EPOCH_MS + number), None, what)
        for number in range(draw.randint(1, 40))
    ]


def steps(draw: random.Random, entries: Sequence[Entry], now_ms: int, *, alone: bool) -> tuple[Step, ...]:
    """How a log is written: plain or in transactions, by all codecs, with aborted records between. `alone`: those with
    which the broker begins a segment are in batches of their own."""
    cuts = {draw.randrange(len(entries) + 1) for _ in range(draw.choice((0, 1, 3, 6)))}
    late = [at for at, entry in enumerate(entries) if alone and entry.content.timestamp_ms >= now_ms + LATE_MS]
    edges = sorted({0, len(entries), *cuts, *late, *(at + 1 for at in late)})
    found = []
    for first, end in itertools.pairwise(edges):
        aborted: tuple[Content, ...] = ()
        if first not in late:
            if draw.random() < 0.15:
                found.append(Step((), _aborted(draw), True, draw.choice(CODECS)))
            if draw.random() < 0.15:
                aborted = _aborted(draw)
        transaction = first not in late and draw.random() < 0.6
        found.append(Step(tuple(entries[first:end]), aborted, transaction, draw.choice(CODECS)))
    return tuple(found)


def _aborted(draw: random.Random) -> tuple[Content, ...]:
    count = draw.choice((1, 3, 30))
    return tuple(Content(b"k%d" % draw.randrange(20), b"aborted%d" % number, EPOCH_MS) for number in range(count))
