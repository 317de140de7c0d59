"""Generations of a flow: what the control topic says, folded into one state, and what may be written next. Pure.

A generation fixes how the flow's partitions are cut into lanes and what runs them. The control topic is the
only truth about it: compacted, one partition, nothing else in it, written only under the flow's control id.

Invariants
- A change is two records: `preparing n`: nobody may start; then `open n`. Between them every transactional id
  of every generation that is not recorded as closed is fenced, and only once a read_committed read shows
  `preparing n`. Whoever finds a change half done finishes it.
- A worker starts only under `open` of its own generation, read *after* its InitProducerId.
- `start` covers the partitions listed when the flow was first opened; those that appear later start at
  earliest. That list is in the first `open` record and is carried along by every later one.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

FORMAT_VERSION = 1


class Phase(StrEnum):
    """Where a generation stands."""

    PREPARING = "preparing"
    OPEN = "open"
    CLOSED = "closed"


# Which phase a generation may be in before it enters the one on the left; None: it doesn't exist yet.
TRANSITIONS: Mapping[Phase, frozenset[Phase | None]] = {
    Phase.PREPARING: frozenset({None}),
    Phase.OPEN: frozenset({Phase.PREPARING}),
    Phase.CLOSED: frozenset({Phase.PREPARING, Phase.OPEN}),
}


class BadControl(ValueError):
    """The control topic holds something that this program did not write, or in an order that it rules out."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation as its latest record says it. `partitions` counts the first listing's, by source topic."""

    number: int
    phase: Phase
    lanes: int
    kind: str = "live"
    partitions: Mapping[str, int] = field(default_factory=dict)
    at_ms: int = 0

    @property
    def key(self) -> bytes:
        """Key in the compacted control topic."""
        return f"generation/{self.number}".encode()

    def encode(self) -> bytes:
        """Value in the control topic."""
        body = {
            "v": FORMAT_VERSION,
            "phase": self.phase.value,
            "lanes": self.lanes,
            "kind": self.kind,
            "assignment": "crc32(topic/partition) mod lanes",
            "partitions": dict(self.partitions),
            "at_ms": self.at_ms,
        }
        return json.dumps(body, separators=(",", ":"), sort_keys=True).encode()


def decode(key: bytes | None, value: bytes | None) -> Generation:
    """One control record; raises BadControl when it is not ours or of a newer format."""
    try:
        number = int((key or b"").decode().removeprefix("generation/"))
        body = json.loads(value or b"")
        if body["v"] != FORMAT_VERSION:
            raise BadControl(f"control record of format version {body['v']!r}")
        return Generation(
            number,
            Phase(body["phase"]),
            int(body["lanes"]),
            str(body["kind"]),
            dict(body["partitions"]),
            int(body["at_ms"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise BadControl(f"unreadable control record {key!r}: {error}") from error


@dataclass(frozen=True, slots=True)
class Control:
    """All generations by number, as the control topic gives them."""

    generations: Mapping[int, Generation] = field(default_factory=dict)

    def apply(self, record: Generation) -> Control:
        """The state after one more record. Compaction may have removed a generation's earlier phases."""
        before = self.generations.get(record.number)
        phase = before.phase if before else None
        compacted = before is None
        if not compacted and phase not in TRANSITIONS[record.phase]:
            raise BadControl(f"generation {record.number} goes from {phase} to {record.phase}")
        return Control({**self.generations, record.number: record})

    @property
    def newest(self) -> int:
        """Highest generation that was ever begun; 0 when there is none."""
        return max(self.generations, default=0)

    @property
    def open(self) -> Generation | None:
        """The one generation that may run; None while a change is under way or before the first."""
        newest = self.generations.get(self.newest)
        return newest if newest and newest.phase is Phase.OPEN else None

    @property
    def preparing(self) -> Generation | None:
        """A change that is half done."""
        newest = self.generations.get(self.newest)
        return newest if newest and newest.phase is Phase.PREPARING else None

    def to_fence(self) -> list[tuple[int, int]]:
        """(generation, lane) of every id of all generations that are not recorded as closed."""
        return [
            (number, lane)
            for number, generation in sorted(self.generations.items())
            if generation.phase is not Phase.CLOSED
            for lane in range(generation.lanes)
        ]

    def first_listing(self) -> Mapping[str, int]:
        """Partition counts by source topic when the flow was first opened."""
        for _, generation in sorted(self.generations.items()):
            if generation.partitions:
                return generation.partitions
        return {}

    def prepare(self, lanes: int, listing: Mapping[str, int], now_ms: int, kind: str = "live") -> Generation:
        """The `preparing` record of the next generation; an earlier listing is carried along."""
        known = self.first_listing() if self.generations else listing
        return Generation(self.newest + 1, Phase.PREPARING, lanes, kind, known, now_ms)

    def finish(self, now_ms: int) -> list[Generation]:
        """The records that end the change under way: `closed` for all before, `open` for the prepared one."""
        change = self.preparing
        if change is None:
            raise BadControl("no change is under way")
        before = [
            Generation(g.number, Phase.CLOSED, g.lanes, g.kind, g.partitions, now_ms)
            for number, g in sorted(self.generations.items())
            if g.phase is not Phase.CLOSED and number != change.number
        ]
        return [
            *before,
            Generation(change.number, Phase.OPEN, change.lanes, change.kind, change.partitions, now_ms),
        ]


def fold(records: Iterable[tuple[bytes | None, bytes | None]]) -> Control:
    """The state that a whole control topic gives."""
    control = Control()
    for key, value in records:
        control = control.apply(decode(key, value))
    return control


def lane_of(topic: str, partition: int, lanes: int) -> int:
    """The lane of a source partition: stable over processes and versions, it is part of the format."""
    return zlib.crc32(f"{topic}/{partition}".encode()) % lanes
