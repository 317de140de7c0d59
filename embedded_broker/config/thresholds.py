"""`Thresholds`: from how much on the broker does what small data never needs. Not for users: tests and simulations set
other values, so that short runs reach that code, too.
"""

from __future__ import annotations

from dataclasses import dataclass

KIB, MIB = 1024, 1024 * 1024


@dataclass(frozen=True, slots=True)
class Thresholds:
    """All of one broker. The log's ones must stay the same over restarts: its index files depend on them."""

    groups_new_max: int = 500
    """After so many new groups those are deleted that have neither members nor offsets, before the next sweep."""
    dead_records_max: int = 50_000
    """An internal log is compacted when it holds that many records more than three times what counts of it."""
    dead_bytes_max: int = 64 * MIB
    """Or when it is that much larger than three times what counts of it."""
    compaction_interval_ms: int = 1_000
    """Between two looks at an internal log."""
    compaction_part_records: int = 100
    """Of a part, or the records of one group more. Between two parts requests are handled."""
    compaction_pause_ms: int = 0
    """Between two parts, besides the turn that others have: with little data nothing else would come in between."""
    snapshot_batch_records: int = 500
    internal_segment_bytes: int = 16 * MIB
    metadata_dead_records_max: int = 10_000
    """The metadata log is rewritten at a start when it is longer."""
    producer_ids_block: int = 1_000
    producer_ids_left_min: int = 500
    """With fewer left, the next block is reserved; 2 or more."""
    groups_sweep_interval_ms: int = 600_000
    transactions_sweep_interval_ms: int = 3_600_000
    index_bytes: int = 4 * KIB
    """Between two entries of a segment's index; a search reads as much."""
    scan_bytes: int = 4 * MIB
    """Read at a time when a segment is scanned."""
    segments_max: int = 1_000
    """A partition with so many closes them by size only, when they have `crowded_segment_bytes`: timestamps, which
    clients choose, could let every batch begin one."""
    crowded_segment_bytes: int = 64 * MIB
    checkpoint_worth: int = 16
    """A checkpoint must save this many times its own size."""
    close_checkpoint_bytes: int = MIB
    """With less to scan at the next start a partition is closed without a checkpoint."""
    cleaner_keys_max: int = 1_000_000
    """In memory at a time, some 100 bytes each; a log with more takes several passes."""
    reserve_bytes: int = 4 * MIB
    """Of the disk, for the broker's own writes."""
    linger_bytes_min: int = 256 * KIB
    """See `storage.flush_scheduler`."""
    at_once_bytes_max: int = MIB
    """Larger bodies of compressed batches are decompressed in a thread; others on the event loop, in a millisecond or
    two."""
    items_at_once_max: int = 500
    """Requests and answers with more items in their arrays are decoded and encoded in a thread."""
    slice_steps: int = 500
    """After so many steps a request lets others go on; a step is worth about a microsecond: what a simple operation on
    one record or partition costs."""
    fetch_sessions_max: int = 1_000
    fetch_session_idle_s_min: float = 120.0
    """A session that was idle for that long gives way to another (`min.incremental.fetch.session.eviction.ms`)."""


DEFAULTS = Thresholds()
