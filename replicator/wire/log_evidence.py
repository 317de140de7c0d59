"""What a partition's log shows of records that it once held: where log compaction has emptied offsets.

Tells "the target lost this record" from "log compaction removed it". A plain function of plain arguments, so that a
task on Spark can run it. Used by `spark/reconcile`.
"""

from __future__ import annotations

from collections.abc import Sequence

from replicator.config import Cluster, Flow
from replicator.model.partition import Partition, Span
from replicator.wire.holes import IntervalHoles, Progress, find_holes
from replicator.wire.partition_log import PartitionLog


def holes(
    flow: Flow,
    cluster: Cluster,
    at: Partition,
    intervals: Sequence[Span],
    *,
    topic_id: str = "",
    told: Progress | None = None,
) -> list[IntervalHoles]:
    """Find the offsets in each interval that no record and no marker occupies, read from the partition's leader.

    One fetch of 4 MiB at most, or of one larger batch, is kept in memory at a time.

    Args:
        flow: for its limits: requests, connections and the largest batch.
        cluster: whose log it is, one of the flow's two.
        at: a partition of that cluster.
        intervals: offsets [first, end), sorted and disjoint.
        topic_id: of the topic in question, as `TopicInfo` has it; empty: whatever stands under its name now.
        told: called before each fetch with its offset; may raise to end the search.

    Returns:
        One item for each interval. Offsets of which the log can't tell, such as those below its start now, are named
        with the reason, and are no holes.

    Raises:
        Unsupported: the cluster's login or its version isn't spoken here: nothing can be proven of this log.
        ConfigError: the properties of the cluster are wrong.
        Unreachable, NotAllowed: as for other clients.
        Retriable: the partition had no leader for the whole request timeout; TopicMissing: there is none of its name.
        Incident: batch_corrupt, with topic, partition and offset; topic_gone: the topic has another id than `topic_id`,
            or than when the search began.
        ValueError: `intervals` are not sorted, or not disjoint.
    """
    if not intervals:
        return []
    with PartitionLog(flow, cluster, at, topic_id) as log:
        return find_holes(at, log, intervals, told)
