"""Settings of a simulated broker, drawn so that the little data of a run reaches what large data needs."""

from __future__ import annotations

from random import Random
from typing import Any

from embedded_broker.config.settings import Fsync
from embedded_broker.config.thresholds import DEFAULTS, Thresholds

USUAL_CHANCE = 0.3
"""That a setting has its usual value."""
ALL_ARE_DEAD = -1_000
"""Let the metadata log be rewritten at every start: nothing in a run changes metadata often."""
SMALL: dict[str, tuple[Any, ...]] = {
    "dead_records_max": (5, 10, 40),
    "compaction_interval_ms": (20, 200),
    "compaction_part_records": (1, 3),
    "compaction_pause_ms": (20, 100),
    "snapshot_batch_records": (1, 3),
    "internal_segment_bytes": (1_000, 10_000),
    "metadata_dead_records_max": (ALL_ARE_DEAD, 0),
    "groups_sweep_interval_ms": (100, 1_000),
    "transactions_sweep_interval_ms": (100, 1_000),
    "index_bytes": (1, 200),
    "scan_bytes": (64, 1_000),
    "segments_max": (3,),
    "crowded_segment_bytes": (2_000,),
    "checkpoint_worth": (0,),
    "close_checkpoint_bytes": (0,),
    "cleaner_keys_max": (2,),
    "reserve_bytes": (65_536,),
    "linger_bytes_min": (1, 500),
    "at_once_bytes_max": (0,),
    "slice_steps": (1, 40),
    "fetch_sessions_max": (2, 4),
    "fetch_session_idle_s_min": (0.0, 0.5),
}
CODING: dict[str, tuple[Any, ...]] = {"items_at_once_max": (0, 2)}
LEFT_BEHIND: dict[str, tuple[Any, ...]] = {"groups_new_max": (1, 3), "dead_bytes_max": (1_000, 10_000)}
PRODUCER_IDS = ((2, 2), (4, 2), (10, 5))
"""Block, and how few may be left."""
SETTINGS: dict[str, tuple[Any, ...]] = {
    "scan_bytes_max": (10_000, 30_000),
    "requests_pending_max": (1, 3),
    "connections_idle_ms": (3_000,),
    "frame_deadline_ms": (2_000,),
}
FSYNC_INTERVALS_MS = (20, 200, 1_000)


def draw(random: Random, fsync: Fsync) -> dict[str, Any]:
    """Draw fields of BrokerConfig."""
    found: dict[str, Any] = {"fsync": fsync, "fsync_interval_ms": random.choice(FSYNC_INTERVALS_MS)}
    found |= _drawn(random, SETTINGS)
    small = _drawn(random, SMALL)
    block, left_min = random.choice((*PRODUCER_IDS, (DEFAULTS.producer_ids_block, DEFAULTS.producer_ids_left_min)))
    small |= _drawn(random, CODING) | _drawn(random, LEFT_BEHIND)
    found["thresholds"] = Thresholds(**small, producer_ids_block=block, producer_ids_left_min=left_min)
    return found


def _drawn(random: Random, choices: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    return {name: random.choice(values) for name, values in choices.items() if random.random() >= USUAL_CHANCE}
