"""`LogConfig`: a topic's configs as numbers, as its partitions need them.

`topic_configs.log_config` computes one per change, because Produce needs them thousands of times a second; `Topics`
gives it to the partitions, and append validation, retention and compaction read it there.
"""

from __future__ import annotations

from dataclasses import dataclass

UNBOUNDED_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Sizes in bytes, times in ms. The defaults are those of topics without configs of their own."""

    segment_bytes: int = 1_073_741_824
    segment_ms: int = 604_800_000
    message_bytes_max: int = 1_048_588
    compression: int | None = None
    """Codec that batches are stored with, 0 for none; None: as they come."""
    insync_min: int = 1
    """How many replicas a write with acks=-1 must be on. Here there is one."""
    log_append_time: bool = False
    """Whether the records' time is that of the append."""
    before_ms_max: int = UNBOUNDED_MS
    """How much older than the broker's clock a record may be."""
    after_ms_max: int = 3_600_000
    """How much newer."""
    deletes: bool = True
    """Whether retention removes what is old."""
    retention_ms: int = 604_800_000
    """-1: for ever."""
    retention_bytes: int = -1
    """-1: without a limit."""
    compacts: bool = False
    """Whether the last record of each key is kept; records need a key then."""
    delete_retention_ms: int = 86_400_000
    compaction_lag_ms_min: int = 0
    compaction_lag_ms_max: int = UNBOUNDED_MS
    dirty_ratio_min: float = 0.5
