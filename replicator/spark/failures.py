"""Why a Spark job failed, in the words of the clusters and not of a Java stack trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from replicator.config import Flow
from replicator.flow.topics import ControlPlane
from replicator.model.errors import Incident, ReplicatorError, Unreachable
from replicator.model.partition import Partition
from replicator.spark.cause import root
from replicator.spark.reconcile.snapshot import Snapshot


@contextmanager
def explained(flow: Flow, snapshot: Snapshot, *, connect_timeout_ms: int) -> Iterator[None]:
    """Turns a failed Spark job into the error that explains it.

    Raises:
        Incident: a topic is gone, or offsets of the snapshot were removed while they were read; the range is named.
        Unreachable, NotAllowed: a cluster does not answer any more, or Spark failed for a reason of its own.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise _reason(flow, snapshot, connect_timeout_ms) or Unreachable(f"Spark failed: {root(error)}") from error


def _reason(flow: Flow, snapshot: Snapshot, connect_timeout_ms: int) -> ReplicatorError | None:
    try:
        with ControlPlane(flow, connect_timeout_ms=connect_timeout_ms) as clusters:
            clusters.connect()
            for admin, ranges in (
                (clusters.source, {pair.source: pair.source_range for pair in snapshot.pairs}),
                (clusters.target, {pair.target: pair.target_range for pair in snapshot.pairs}),
            ):
                there = admin.topics({at.topic for at in ranges})
                gone = sorted({at.topic for at in ranges} - there.keys())
                if gone:
                    return Incident(
                        "topic_gone",
                        f"cluster {admin.cluster.name!r} has no topic {', '.join(gone)} any more",
                        topic=gone[0],
                    )
                starts = admin.offsets(ranges, end=False)
                for at, (first, end) in sorted(ranges.items()):
                    if first < end and starts[at] > first:
                        return _removed(admin.cluster.name, at, first, starts[at])
    except ReplicatorError as error:
        return error
    return None


def _removed(cluster: str, at: Partition, first: int, start: int) -> Incident:
    return Incident(
        "range_gone",
        f"cluster {cluster!r} removed offsets {first} to {start - 1} while they were read",
        topic=at.topic,
        partition=at.partition,
        advice="Run it again: it begins at what is there then, and tells what retention removed apart from loss",
    )
