"""The flow's map topic: how it is made, what makes it unfit, and which partition a lane writes. Pure.

Called by `flow.offsets_topic`, `inspect.planning` and `lane.map_writer`.

Invariants
- The topic has MAP_PARTITIONS partitions for ever: lane l writes l mod MAP_PARTITIONS, and positions name the
  partition.
- It loses no block by itself: neither age nor size removes any, and compaction doesn't, which knows only keys.
"""

from __future__ import annotations

from collections.abc import Mapping

from replicator.offset_map.block import PART_BYTES_MAX

MAP_PARTITIONS = 16
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


def unfit(partitions: int, configs: Mapping[str, str]) -> str:
    """Say why a map topic with so many partitions and these configs can't be used; empty if it can."""
    if partitions != MAP_PARTITIONS:
        return f"it has {partitions} partitions, not {MAP_PARTITIONS}"
    wrong = [f"{name}={configs[name]}" for name in _KEEPS if configs.get(name, CONFIGS[name]) != CONFIGS[name]]
    if wrong:
        return f"it would lose blocks: {', '.join(wrong)}"
    bytes_max = int(configs.get("max.message.bytes", PART_BYTES_MAX + _BATCH_BYTES))
    if bytes_max < PART_BYTES_MAX + _BATCH_BYTES:
        return f"a block has up to {PART_BYTES_MAX} bytes, it takes batches of {bytes_max} (max.message.bytes)"
    return ""
