"""Partitions that are drawn at random, with what was done to them: records of both sides, and the verdicts to expect.

An oracle: it knows what was lost, doubled, altered, or removed by retention or by a cleaner, and expects verdicts by
that alone.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from replicator.model.partition import Partition
from replicator.proof import verdicts
from replicator.proof.copied_again import CopiedRun
from replicator.proof.pairs import Pair

EPOCH_MS = 1_700_000_000_000


class Content(NamedTuple):
    """What a record says; `number` is its own, so that the oracle knows it again wherever it stands."""

    number: int
    key: bytes | None
    value: bytes | None
    ms: int


class Entry(NamedTuple):
    """A record at its offset."""

    offset: int
    content: Content


@dataclass
class Drawn:
    """One partition. `expected`: verdicts by kind, without those that are the same."""

    pair: Pair
    source: list[Entry]
    target: list[Entry]
    expected: Counter[str] = field(default_factory=Counter)


def of_cut_logs(
    number: int,
    logs: tuple[Iterable[int], Iterable[int]],
    gone: tuple[int, int],
    count: int,
    entry: Callable[[int, int], Entry],
    runs: tuple[CopiedRun, ...] = (),
) -> Drawn:
    """Partition `number` of a flow that has copied all there was.

    Args:
        number: of the partition.
        logs: numbers of the records that stand on either side.
        gone: how many offsets are gone from the beginning of either log.
        count: how many records the flow has copied.
        entry: makes an entry of its offset and its record's number.
        runs: what the claims topic says was copied again.
    """
    at = Partition("t", number)
    source, target = (
        [entry(place, item) for place, item in enumerate(items, first)] for items, first in zip(logs, gone, strict=True)
    )
    source_end, target_end = gone[0] + len(source), gone[1] + len(target)
    pair = Pair(
        source=at,
        target=at,
        source_range=(gone[0], source_end),
        target_range=(gone[1], target_end),
        source_start=gone[0],
        target_start=gone[1],
        source_copied_end=source_end,
        source_log_end=source_end,
        target_log_end=target_end,
        count=count,
        covered_end=target_end,
        copied_again=runs,
    )
    return Drawn(pair, source, target)


def contents(drawn: random.Random, count: int) -> list[Content]:
    """Records of one of several kinds: all different, with few keys, in runs of identical ones, with nulls."""
    kind = drawn.choice(("unique", "unique", "keyed", "nulls", "runs"))
    made: list[Content] = []
    while len(made) < count:
        number = len(made)
        if kind == "unique":
            made.append(Content(number, f"k{number}".encode(), f"v{number}".encode(), EPOCH_MS + number))
        elif kind == "keyed":
            made.append(Content(number, f"k{drawn.randrange(20)}".encode(), f"v{number}".encode(), EPOCH_MS + number))
        elif kind == "nulls":
            value = None if drawn.random() < 0.3 else f"v{number}".encode()
            made.append(Content(number, None if drawn.random() < 0.5 else b"k", value, EPOCH_MS + number))
        else:
            run = drawn.choice((1, 1, 1, 2, 5, 40))
            made += [Content(number + n, b"k", f"v{number}".encode(), EPOCH_MS) for n in range(run)]
    return made[:count]


def spread(drawn: random.Random, records: Sequence[Content], first: int = 0) -> tuple[list[Entry], int]:
    """The records at offsets of a log with transactions: markers between them, aborted records now and then; and where
    the log ends."""
    found, offset = list[Entry](), first
    left = drawn.randrange(1, 60)
    for record in records:
        if not left:
            left, offset = drawn.randrange(1, 60), offset + 1
            if drawn.random() < 0.1:
                offset += drawn.randrange(1, 30)
        found.append(Entry(offset, record))
        offset, left = offset + 1, left - 1
    return found, offset + 1


def damaged(drawn: random.Random, records: list[Content]) -> list[Content]:
    """A copy with differences far enough from one another not to be taken for others."""
    copy = list(records)
    places = sorted(drawn.sample(range(1, len(records) // 20), min(5, len(records) // 40)), reverse=True)
    unlike = len({record[1:] for record in records}) == len(records)
    for place in places:
        at = place * 20
        kind = drawn.choice(("missing", "extra", "altered", "doubled") if unlike else ("missing",))
        if kind == "missing":
            del copy[at]
        elif kind == "extra":
            copy.insert(at, Content(-1, b"foreign", f"foreign{at}".encode(), EPOCH_MS - at))
        elif kind == "altered":
            copy[at] = copy[at]._replace(value=b"altered")
        else:
            copy.insert(at + 1, copy[at])
    return copy


def drawn_partition(seed: int) -> Drawn:
    """The partition of this seed: its number is the seed."""
    drawn = random.Random(seed)
    at = Partition("t", seed)
    records = contents(drawn, drawn.choice((60, 400, 1_500, 4_000)))
    copied = damaged(drawn, records) if drawn.random() < 0.6 else list(records)
    source, source_end = spread(drawn, records, first=drawn.choice((0, 1_000)))
    target, target_end = spread(drawn, copied)
    origin = source[0].offset
    count = len(records)
    starts = {"source": origin, "target": 0}
    for name, log, end in (("source", source, source_end), ("target", target, target_end)):
        if drawn.random() < 0.4:
            starts[name] = drawn.randrange(log[0].offset + 1, end - 1)
    kept = [entry for entry in source if entry.offset >= starts["source"]]
    left = [entry for entry in target if entry.offset >= starts["target"]]
    pair = Pair(
        source=at,
        target=at,
        source_range=(max(origin, starts["source"]), source_end),
        target_range=(starts["target"], target_end),
        source_origin=origin,
        target_origin=0,
        source_start=starts["source"],
        target_start=starts["target"],
        source_copied_end=source_end,
        source_log_end=source_end,
        target_log_end=target_end,
        count=count,
        covered_end=target_end,
    )
    found = Drawn(pair, kept, left)
    _expect(found, records)
    return found


def _expect(found: Drawn, records: list[Content]) -> None:
    """What became of each record, by what is left of either log.

    Of what stands on the target before all that the source still has, nobody knows more than how many records the flow
    copied: where one was lost there, and another doubled, nothing tells.
    """
    here = Counter(entry.content.number for entry in found.source)
    there = Counter(entry.content.number for entry in found.target)
    first_here = min(here, default=len(records))
    first_there = min((number for number in there if number >= 0), default=len(records))
    for number in here:
        if not there[number]:
            found.expected[verdicts.EXPIRED if number < first_there else verdicts.MISSING] += 1
    prefix = next((n for n, entry in enumerate(found.target) if entry.content.number >= first_here), len(found.target))
    expired = min(prefix, max(0, len(records) - len(found.source) - first_there))
    found.expected[verdicts.NEVER_MINE] += expired
    found.expected[verdicts.EXTRA] += prefix - expired
    for number, times in Counter(entry.content.number for entry in found.target[prefix:]).items():
        found.expected[verdicts.EXTRA if number < 0 else verdicts.DOUBLED] += times if number < 0 else times - 1
    altered = {entry.content.number for entry in found.target if entry.content.value == b"altered"}
    found.expected[verdicts.ALTERED] += sum(1 for number in altered if here[number])
    found.expected = Counter({name: times for name, times in found.expected.items() if times})
