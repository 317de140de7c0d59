"""The position of one source partition, as it stands in the committed offset of the flow's position group.

The committed offset is the next *source* offset to read; its metadata is the evidence beside it. Pure: no I/O.

Invariants
- The key is the *target's* topic and partition, the offset is the *source's* (KIP-656's "fake" group).
- `next_target_offset` is one past the last record that this flow wrote there: nothing committed may stand at or
  after it but commit markers, and the target may never end below it.
- The metadata stays below the broker's limit (`offset.metadata.max.bytes`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

FORMAT_VERSION = 1
METADATA_BYTES_MAX = 4095  # offset.metadata.max.bytes is 4,096, and Kafka 4.3 refuses exactly that many
DIGEST_KIND = "blake2b-128/records-v1"

NOBODY = ""
"""Owner of a position that its worker has released at a clean stop, or of a partition without one."""


class BadMetadata(ValueError):
    """The committed offset's metadata was not written by this program, or by a newer version of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is written beside the offset. Offsets are -1 and ids empty where nothing is known.

    `count` and `digest` run over all records of the partition since the flow began; `digest` chains blocks:
    blake2b-128(previous digest + canonical bytes of the block's records), one block a transaction, and
    `block_first`/`block_count` say where on the target the last block stands, so a reader can check it. What a repair
    copies again is a block too, but isn't counted again.
    """

    generation: int
    owner: str
    source_topic: str
    source_cluster: str
    source_topic_id: str
    target_topic_id: str
    leader_epoch: int = -1
    log_start: int = -1
    next_target_offset: int = -1
    count: int = 0
    digest: str = ""
    block_first: int = -1
    block_count: int = 0
    delivery: str = "exactly_once"
    committed_ms: int = 0


@dataclass(frozen=True, slots=True)
class Position:
    """Next source offset to read, with its evidence."""

    offset: int
    evidence: Evidence


_SHORT = {
    "generation": "g",
    "owner": "o",
    "source_topic": "st",
    "source_cluster": "sc",
    "source_topic_id": "si",
    "target_topic_id": "ti",
    "leader_epoch": "le",
    "log_start": "ls",
    "next_target_offset": "nt",
    "count": "n",
    "digest": "d",
    "block_first": "bf",
    "block_count": "bn",
    "delivery": "dm",
    "committed_ms": "ms",
}
_TYPES = {field.name: field.type for field in fields(Evidence)}


def encode(evidence: Evidence) -> str:
    """Metadata text for `evidence`; raises ValueError above the broker's limit (names are bounded: a bug)."""
    packed = {_SHORT[name]: value for name, value in asdict(evidence).items()}
    text = json.dumps({"v": FORMAT_VERSION, "dk": DIGEST_KIND, **packed}, separators=(",", ":"))
    if len(text.encode()) > METADATA_BYTES_MAX:
        raise ValueError(f"position metadata of {len(text)} characters is over the broker's {METADATA_BYTES_MAX}")
    return text


def decode(metadata: str) -> Evidence:
    """Evidence out of a committed offset's metadata; raises BadMetadata when it is not ours or too new."""
    try:
        packed = json.loads(metadata)
    except ValueError as error:
        raise BadMetadata(f"not JSON: {metadata[:80]!r}") from error
    if not isinstance(packed, dict) or "v" not in packed:
        raise BadMetadata(f"no format version: {metadata[:80]!r}")
    if packed["v"] != FORMAT_VERSION:
        raise BadMetadata(f"format version {packed['v']!r}, this program knows {FORMAT_VERSION}")
    if packed.get("dk") != DIGEST_KIND:
        raise BadMetadata(f"digest kind {packed.get('dk')!r}, this program knows {DIGEST_KIND}")
    values: dict[str, Any] = {}
    for name, short in _SHORT.items():
        kind = int if _TYPES[name] == "int" else str
        value = packed.get(short)
        if type(value) is not kind:
            raise BadMetadata(f"field {name} is {value!r}")
        values[name] = value
    return Evidence(**values)


@dataclass(frozen=True, slots=True)
class Observed:
    """What both clusters say about one partition now, at the start of a lane."""

    source_cluster: str
    source_topic: str
    source_topic_id: str
    source_log_start: int
    source_end: int
    target_topic_id: str
    target_end: int
    generation: int


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A reason not to go on: a stable incident name and a sentence for the operator."""

    name: str
    detail: str


def compare(position: Position, seen: Observed) -> Mismatch | None:
    """The first contradiction between a committed position and what both clusters say, or None.

    Order matters: a re-created topic explains offsets that don't fit, so ids are compared first.
    """
    was = position.evidence
    checks = (
        (
            was.source_cluster == seen.source_cluster,
            "source_cluster_changed",
            f"the position was written for source cluster {was.source_cluster}, this one is {seen.source_cluster}",
        ),
        (
            was.source_topic == seen.source_topic,
            "source_topic_changed",
            f"the position was written for source topic {was.source_topic}, this flow maps {seen.source_topic}",
        ),
        (
            was.source_topic_id == seen.source_topic_id,
            "source_topic_recreated",
            f"source topic id was {was.source_topic_id}, is {seen.source_topic_id}",
        ),
        (
            was.target_topic_id == seen.target_topic_id,
            "target_topic_recreated",
            f"target topic id was {was.target_topic_id}, is {seen.target_topic_id}",
        ),
        (
            was.generation <= seen.generation,
            "position_newer_than_control",
            f"the position is of generation {was.generation}, the control topic knows {seen.generation}",
        ),
        (
            position.offset >= seen.source_log_start,
            "source_records_gone",
            f"source offsets {position.offset} to {seen.source_log_start - 1} were deleted before they were copied",
        ),
        (
            position.offset <= seen.source_end,
            "source_truncated",
            f"the position is {position.offset}, but the source ends at {seen.source_end}",
        ),
        (
            was.next_target_offset <= seen.target_end,
            "target_lost_data",
            f"the target must reach offset {was.next_target_offset}, but ends at {seen.target_end}",
        ),
    )
    for holds, name, detail in checks:
        if not holds:
            return Mismatch(name, detail)
    return None
