"""The flow's map topic and that of the map's index: how they are made, what makes them unfit, which partition a lane
writes, and which one has the pages of a source partition. Pure.

Called by `flow.offsets_topic`, `inspect.planning` and `lane.map_writer`.

Invariants
- The topic has MAP_PARTITIONS partitions for ever: lane l writes l mod MAP_PARTITIONS, and positions name the
  partition.
- It loses no block by itself: neither age nor size removes any, and compaction doesn't, which knows only keys.
- The same holds for the index: a source partition's pages stand in the partition that `index_partition` says, for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from zlib import crc32

from replicator.offset_map.block import PART_BYTES_MAX
from replicator.offset_map.newest import SectionKey
from replicator.offset_map.page import PAGE_BYTES_MAX

MAP_PARTITIONS = 16
PAGE_PARTITIONS = 16
"""Partitions of the index that have pages."""
ROOTS = PAGE_PARTITIONS
"""The one behind them, which has what all of them hold in common."""
INDEX_PARTITIONS = PAGE_PARTITIONS + 1
CONFIGS: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "compression.type": "zstd",
}
_KEEPS = ("cleanup.policy", "retention.ms", "retention.bytes")
_BATCH_BYTES = 1024  # of a batch with one block, besides the block, at most


def map_partition(lane: int) -> int:
    """Return the partition of the map topic that a lane writes."""
    return lane % MAP_PARTITIONS


def index_partition(key: SectionKey) -> int:
    """Return the partition of the index that has the pages of a source partition."""
    topic_id, partition = key
    return crc32(partition.to_bytes(4), crc32(topic_id)) % PAGE_PARTITIONS


def unfit(partitions: int, configs: Mapping[str, str]) -> str:
    """Say why a map topic with so many partitions and these configs can't be used; empty if it can."""
    return _unfit(partitions, configs, MAP_PARTITIONS, "blocks", PART_BYTES_MAX)


def index_unfit(partitions: int, configs: Mapping[str, str]) -> str:
    """Say the same of the index's topic."""
    return _unfit(partitions, configs, INDEX_PARTITIONS, "pages", PAGE_BYTES_MAX)


def _unfit(partitions: int, configs: Mapping[str, str], expected: int, what: str, value_bytes: int) -> str:
    if partitions != expected:
        return f"it has {partitions} partitions, not {expected}"
    wrong = [f"{name}={configs[name]}" for name in _KEEPS if configs.get(name, CONFIGS[name]) != CONFIGS[name]]
    if wrong:
        return f"it would lose {what}: {', '.join(wrong)}"
    bytes_max = int(configs.get("max.message.bytes", value_bytes + _BATCH_BYTES))
    if bytes_max < value_bytes + _BATCH_BYTES:
        one = what.removesuffix("s")
        return f"a {one} has up to {value_bytes} bytes, it takes batches of {bytes_max} (max.message.bytes)"
    return ""
