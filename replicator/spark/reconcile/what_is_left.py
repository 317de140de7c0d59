"""Compares what is still there: topics that go while a comparison runs are left out of it, and named.

Spark reads many partitions in one job, which fails with any of them: the comparison of the others begins anew then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TypeVar

from replicator.config import Flow
from replicator.model.counting import counted
from replicator.model.errors import Incident, ReplicatorError
from replicator.model.partition import Partition
from replicator.proof.snapshot import Snapshot, gone_meanwhile
from replicator.spark.failures import explained

T = TypeVar("T")


def compared(
    flow: Flow,
    snapshot: Snapshot,
    compare: Callable[[Snapshot], T],
    say: Callable[[str], object],
    *,
    connect_timeout_ms: int,
    stopped: Callable[[], bool] = lambda: False,
) -> tuple[T, Snapshot]:
    """Return what `compare` says of a snapshot, and of which: where topics have gone meanwhile, of what is left of it.

    Args:
        say: told in a few words that it begins anew.
        connect_timeout_ms: how long to wait for each cluster, to find out what has gone.
        stopped: whether Spark was stopped by a signal: then no cluster is asked why it has failed.

    Raises what `explained` does, and what `compare` raised where nothing has gone; Incident where nothing is left;
    KeyboardInterrupt where it was stopped.
    """
    while True:
        try:
            with explained(flow, snapshot, connect_timeout_ms=connect_timeout_ms), _interrupted(stopped):
                return compare(snapshot), snapshot
        except ReplicatorError:
            gone: Mapping[Partition, Incident] = {}
            with suppress(ReplicatorError):  # whatever keeps it from being known, the comparison has failed
                gone = gone_meanwhile(flow, snapshot.pairs, connect_timeout_ms=connect_timeout_ms)
            left = tuple(pair for pair in snapshot.pairs if pair.source not in gone)
            if not gone or not left or stopped():
                raise
        snapshot = replace(snapshot, pairs=left, not_compared=(*snapshot.not_compared, *gone.values()))
        say(f"{counted(len(gone), 'partition')} of topics that have gone left out: comparing the others anew")


@contextmanager
def _interrupted(stopped: Callable[[], bool]) -> Iterator[None]:
    try:
        yield
    except Exception:
        if stopped():
            raise KeyboardInterrupt from None
        raise
