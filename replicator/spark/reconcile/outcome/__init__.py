"""What a reconciliation found, as data for reports and machines: `partitions` makes it from what `found` sums up."""

from replicator.spark.reconcile.outcome.model import (
    BUCKETS,
    DIFFERS,
    ClusterFacts,
    Mode,
    OffsetRange,
    Outcome,
    PartitionOutcome,
    Verdict,
    key_text,
)

__all__ = [
    "BUCKETS",
    "DIFFERS",
    "ClusterFacts",
    "Mode",
    "OffsetRange",
    "Outcome",
    "PartitionOutcome",
    "Verdict",
    "key_text",
]
