"""The position of one source partition, as it stands in the committed offset of the flow's position group.

The committed offset is the next *source* offset to read; its metadata is the evidence beside it. Pure: no I/O.

Invariants 3 and 9
- The key is the *target's* topic and partition, the offset is the *source's* (KIP-656's "fake" group).
- `next_target_offset` is one past the last record that this flow wrote there: nothing committed may stand at or
  after it but commit markers, and the target may never end below it.
- The metadata stays below the broker's limit (`offset.metadata.max.bytes`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from typing import Any

from replicator.model.partition import Committed

FORMAT_VERSION, WITH_MAP, WITHOUT_MAP = 3, 2, 1
"""Of a position whose digest is of a kind that versions before 3 don't know; of one that names its transaction's block
of the offset map, which older versions must not move; of others."""
KIND = "position"
METADATA_BYTES_MAX = 4095  # offset.metadata.max.bytes is 4,096, and Kafka 4.3 refuses exactly that many
DIGEST_KIND, PAYLOAD_DIGEST_KIND = "blake2b-128/records-v1", "blake3-128/payloads-v1"
"""Of what a position's digest is: of canonical bytes of records (`planes.records.digest`), or of batches as they stand
(`planes.batches_io.digest`). It is that of the last block; one of either kind may follow one of the other."""
OLD_PAYLOAD_DIGEST_KIND = "blake2b-128/payloads-v1"
"""Of batches, as versions before format 3 made it: read, and not written any more."""
DIGEST_UNTOLD = "-"
_DIGESTS_BEFORE_3 = frozenset({DIGEST_KIND, OLD_PAYLOAD_DIGEST_KIND})
DIGEST_KINDS = _DIGESTS_BEFORE_3 | {PAYLOAD_DIGEST_KIND}

NOBODY = ""
"""Owner of a position that its worker has released at a clean stop, or of a partition without one."""


STRAY = "position_unreadable"
"""The incident that a commit by something else is."""


class BadMetadata(ValueError):
    """The committed offset's metadata was not written by this program. `incident` names the incident that it is."""

    incident = STRAY


class NewerMetadata(BadMetadata):
    """It was written by a newer version of this program, and must be understood."""

    incident = "newer_format"


UNREADABLE = frozenset({BadMetadata.incident, NewerMetadata.incident})
"""Incidents of a committed offset that stands in place of a position and can't be understood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is written beside the offset. Offsets are -1 and ids empty where nothing is known.

    `count` and `digest` run over all records of the partition since the flow began; `digest` chains blocks:
    the hash, 128 bits, of previous digest + bytes of the block, by its `digest_kind`, one block a transaction, and
    `block_first`/`block_count` say where on the target the last block stands, so a reader can check it: it begins with
    `digest_before` (DIGEST_UNTOLD where a version before that was known wrote it). `block_codecs`: which compression
    types the block's batches had when they were sent, 1 << type of each; 0: not known. What a repair copies again is a
    block too, but isn't counted again. `committed_ms` is when the position was committed last, also
    where it stood, `moved_ms` when its offset last moved, and `owned_ms` when its owner first committed it (0 where a
    version before these were known wrote it).

    `map_topic_id` is the id of the offset map's topic in which the transaction that moved the position wrote its block;
    empty where it wrote none, and then the partition's next section in the map is a `base`. The block stands in
    `map_partition`, at or above `map_offset`: behind the last one that its lane had written there, if it had any.
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
    moved_ms: int = 0
    owned_ms: int = 0
    map_topic_id: str = ""
    map_partition: int = -1
    map_offset: int = -1
    digest_kind: str = DIGEST_KIND
    digest_before: str = DIGEST_UNTOLD
    block_codecs: int = 0


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
    "moved_ms": "mv",
    "owned_ms": "os",
    "map_topic_id": "mt",
    "map_partition": "mp",
    "map_offset": "mo",
    "digest_before": "db",
    "block_codecs": "bc",
}
_OF_MAP: dict[str, str | int] = {"map_topic_id": "", "map_partition": -1, "map_offset": -1}
_LATER = {"moved_ms": 0, "owned_ms": 0, "digest_before": DIGEST_UNTOLD, "block_codecs": 0, **_OF_MAP}
"""Fields that positions may lack: older versions didn't write the first four."""
_JSON = json.JSONEncoder(separators=(",", ":"))
_TYPES = {field.name: field.type for field in fields(Evidence)}


def encode(evidence: Evidence) -> str:
    """Encode `evidence` as metadata text; raises ValueError above the broker's limit (names are bounded: a bug)."""
    mapped = bool(evidence.map_topic_id)
    packed = {short: getattr(evidence, name) for name, short in _SHORT.items() if mapped or name not in _OF_MAP}
    version = WITH_MAP if mapped else WITHOUT_MAP
    version = version if evidence.digest_kind in _DIGESTS_BEFORE_3 else FORMAT_VERSION
    head = {"v": version, "kind": KIND, "must_understand": True, "dk": evidence.digest_kind}
    text = _JSON.encode({**head, **packed})
    if len(text.encode()) > METADATA_BYTES_MAX:
        raise ValueError(f"position metadata of {len(text)} characters is over the broker's {METADATA_BYTES_MAX}")
    return text


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A committed offset that this program didn't write, or can't understand. `incident` names the incident it is."""

    committed: Committed
    incident: str
    why: str

    @property
    def offset(self) -> int:
        """The offset, whatever it means."""
        return self.committed.offset


Stored = Position | Unreadable
"""What stands in a committed offset of the position group."""


def stored(committed: Committed) -> Stored | None:
    """Return what stands in a partition's committed offset, as a broker has answered it; None: it has none.

    The one place where metadata is decoded. Called by all that read committed offsets, and by nobody else: `kafka` and
    `planes.batches_io` for lanes, `wire` for owners, `group_sync` for the positions beside a group's offsets.
    """
    return read(committed) if committed.offset >= 0 else None


def read(committed: Committed) -> Stored:
    """Decode a committed offset that is there."""
    try:
        return Position(committed.offset, decode(committed.metadata))
    except BadMetadata as error:
        return Unreadable(committed, error.incident, str(error))


def written(found: Stored) -> Committed:
    """Return the committed offset that a position is written as; one that can't be read stays as it stands."""
    if isinstance(found, Unreadable):
        return found.committed
    return Committed(found.offset, encode(found.evidence))


def without_map(position: Position) -> Position:
    """Return the position as one that was moved by a transaction without a block of the offset map."""
    return replace(position, evidence=replace(position.evidence, map_topic_id="", map_partition=-1, map_offset=-1))


def decode(metadata: str) -> Evidence:
    """Decode evidence out of a committed offset's metadata.

    Raises BadMetadata when it is not ours, NewerMetadata when it must be understood and is of a newer format. A newer
    one that need not be understood is read for the fields that are known here.
    """
    try:
        packed = json.loads(metadata)
    except ValueError as error:
        raise BadMetadata(f"not JSON: {metadata[:80]!r}") from error
    if not isinstance(packed, dict):
        raise BadMetadata(f"not a JSON object: {metadata[:80]!r}")
    version, kind, must = packed.get("v"), packed.get("kind"), packed.get("must_understand")
    if type(version) is not int or not isinstance(kind, str) or not isinstance(must, bool):
        raise BadMetadata(f"no version, kind and must_understand: {metadata[:80]!r}")
    if must and (version > FORMAT_VERSION or kind != KIND):
        raise NewerMetadata(f"metadata of kind {kind!r} and format version {version}, not {FORMAT_VERSION}")
    if packed.get("dk") not in DIGEST_KINDS:
        known = ", ".join(sorted(DIGEST_KINDS))
        raise BadMetadata(f"digest kind {packed.get('dk')!r}, this program knows {known}")
    values: dict[str, Any] = {"digest_kind": packed["dk"]}
    for name, short in _SHORT.items():
        kind = int if _TYPES[name] == "int" else str
        value = packed.get(short, _LATER.get(name))
        if type(value) is not kind:
            raise BadMetadata(f"field {name} is {value!r}")
        values[name] = value
    return Evidence(**values)
