"""Why a Spark job failed, in the words of the clusters and not of a Java stack trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from replicator.config import Flow
from replicator.model.errors import ReplicatorError, Unreachable
from replicator.proof.snapshot import Snapshot, gone_meanwhile
from replicator.spark.cause import BROKEN, out_of_memory, root, unfit


@contextmanager
def explained(flow: Flow, snapshot: Snapshot, *, connect_timeout_ms: int) -> Iterator[None]:
    """Turn a failed Spark job into the error that explains it.

    Raises:
        ConfigError: an executor can't run this program, such as one that came after the others were looked at.
        Incident: a topic is gone, or another one now.
        Unreachable, NotAllowed: a cluster does not answer any more, or Spark failed for a reason of its own.
    """
    try:
        yield
    except (PySparkException, Py4JError, *BROKEN) as error:
        raise (
            unfit(error)
            or out_of_memory(error)
            or _reason(flow, snapshot, connect_timeout_ms)
            or Unreachable(f"Spark failed: {root(error)}")
        ) from error


def _reason(flow: Flow, snapshot: Snapshot, connect_timeout_ms: int) -> ReplicatorError | None:
    try:
        gone = gone_meanwhile(flow, snapshot.pairs, connect_timeout_ms=connect_timeout_ms)
    except ReplicatorError as error:
        return error
    return next(iter(gone.values()), None)
