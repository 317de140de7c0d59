"""Records of the flow's map topic. In this version: claims.

A claim is the first transaction of an owner in a partition without a position: it holds the position (the
resolved start) and a claim record here, and no other record. So a crash in the first transaction leaves either
nothing or a position, and a claim without a position means that the position expired or was deleted.

Claims stand in the map topic and never in the control topic: there, a lane's open transaction would hide what
follows it. The topic has one partition per lane; a claim keeps its key when the lane count changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from replicator.planes.contract import Partition

FORMAT_VERSION = 1
PREFIX = "claim/"


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


def claims(records: Iterable[tuple[bytes | None, bytes | None]]) -> dict[Partition, Claim]:
    """The latest claim of each target partition; a tombstone withdraws one."""
    found: dict[Partition, Claim] = {}
    for key, value in records:
        if key is None or not key.startswith(PREFIX.encode()):
            raise BadMap(f"unknown map record {key!r}")
        if value is None:
            topic, _, number = key.decode().removeprefix(PREFIX).rpartition("/")
            found.pop(Partition(topic, int(number)), None)
            continue
        claim = decode(key, value)
        found[claim.target] = claim
    return found
