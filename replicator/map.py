"""Records of the flow's map topic: claims and repairs.

A claim is the first transaction of an owner in a partition without a position: it holds the position (the
resolved start) and a claim record here, and no other record. So a crash in the first transaction leaves either
nothing or a position, and a claim without a position means that the position expired or was deleted.

Claims stand in the map topic and never in the control topic: there, a lane's open transaction would hide what
follows it. The topic has one partition per lane; a claim keeps its key when the lane count changes.

A repair says which source records were copied again, and where they stand on the target. It is written in the
transaction that copied them: where there is a repair, there are its records, and one that is begun again leaves them
out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from replicator.planes.contract import Partition, Span

FORMAT_VERSION = 1
PREFIX = "claim/"
REPAIR_PREFIX = "repair/"


class BadMap(ValueError):
    """The map topic holds something that this program did not write."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Who claimed a target partition first, from which source offset on."""

    target: Partition
    source: Partition
    source_topic_id: str
    offset: int
    generation: int
    owner: str
    at_ms: int

    def encode(self) -> tuple[bytes, bytes]:
        """Key and value of the claim record."""
        key = f"{PREFIX}{self.target.topic}/{self.target.partition}".encode()
        body = {
            "v": FORMAT_VERSION,
            "source": [*self.source],
            "source_topic_id": self.source_topic_id,
            "offset": self.offset,
            "generation": self.generation,
            "owner": self.owner,
            "at_ms": self.at_ms,
        }
        return key, json.dumps(body, separators=(",", ":")).encode()


def decode(key: bytes, value: bytes) -> Claim:
    """A claim out of its record; raises BadMap."""
    try:
        topic, _, number = key.decode().removeprefix(PREFIX).rpartition("/")
        body = json.loads(value)
        if body["v"] != FORMAT_VERSION:
            raise BadMap(f"map record of format version {body['v']!r}")
        source = Partition(str(body["source"][0]), int(body["source"][1]))
        return Claim(
            Partition(topic, int(number)),
            source,
            str(body["source_topic_id"]),
            int(body["offset"]),
            int(body["generation"]),
            str(body["owner"]),
            int(body["at_ms"]),
        )
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise BadMap(f"unreadable map record {key!r}: {error}") from error


@dataclass(frozen=True, slots=True)
class Repair:
    """One transaction of a repair: `runs` of consecutive source offsets, which stand one after the other on the target
    from `first_target` on, without a gap."""

    target: Partition
    source: Partition
    runs: tuple[Span, ...]
    first_target: int
    generation: int
    at_ms: int

    @property
    def records(self) -> int:
        """How many records were copied."""
        return sum(end - first for first, end in self.runs)

    def encode(self) -> tuple[bytes, bytes]:
        """Key and value of the repair's record."""
        key = f"{REPAIR_PREFIX}{self.target.topic}/{self.target.partition}/{self.runs[0][0]}".encode()
        body = {
            "v": FORMAT_VERSION,
            "source": [*self.source],
            "runs": [[first, end] for first, end in self.runs],
            "first_target": self.first_target,
            "generation": self.generation,
            "at_ms": self.at_ms,
        }
        return key, json.dumps(body, separators=(",", ":")).encode()


def decode_repair(key: bytes, value: bytes) -> Repair:
    """A repair out of its record; raises BadMap."""
    try:
        topic, number, first = key.decode().removeprefix(REPAIR_PREFIX).rsplit("/", 2)
        body = json.loads(value)
        if body["v"] != FORMAT_VERSION:
            raise BadMap(f"map record of format version {body['v']!r}")
        runs = tuple((int(low), int(high)) for low, high in body["runs"])
        if not runs or runs[0][0] != int(first) or any(low >= high for low, high in runs):
            raise BadMap(f"map record {key!r} has runs {body['runs']!r}")
        return Repair(
            Partition(topic, int(number)),
            Partition(str(body["source"][0]), int(body["source"][1])),
            runs,
            int(body["first_target"]),
            int(body["generation"]),
            int(body["at_ms"]),
        )
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise BadMap(f"unreadable map record {key!r}: {error}") from error


def claims(records: Iterable[tuple[bytes | None, bytes | None]]) -> dict[Partition, Claim]:
    """The latest claim of each target partition; a tombstone withdraws one. Raises BadMap."""
    found: dict[Partition, Claim] = {}
    for key, value in records:
        known = _known(key)
        if not known.startswith(PREFIX.encode()):
            continue
        if value is None:
            topic, _, number = known.decode().removeprefix(PREFIX).rpartition("/")
            found.pop(Partition(topic, int(number)), None)
            continue
        claim = decode(known, value)
        found[claim.target] = claim
    return found


def repairs(records: Iterable[tuple[bytes | None, bytes | None]]) -> list[Repair]:
    """All repairs, of all partitions. Records that were lost again have been copied more than once. Raises BadMap."""
    return [
        decode_repair(known, value or b"")
        for key, value in records
        if (known := _known(key)).startswith(REPAIR_PREFIX.encode())
    ]


def _known(key: bytes | None) -> bytes:
    if key is None or not key.startswith((PREFIX.encode(), REPAIR_PREFIX.encode())):
        raise BadMap(f"unknown map record {key!r}")
    return key
