"""One broker that source partitions are read from: what it is being asked. Used by `fetcher`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from replicator.model.fetches import EpochQuestion, FetchAsk, FetchFrom, FetchKey
from replicator.model.partition import Partition
from replicator.planes.batches.fetch_session import FetchSessionHandler
from replicator.planes.batches.part_read import PartRead
from replicator.planes.batches.reading_summary import ReadingSummary


class NumberedFetch(NamedTuple):
    """A request to one broker. There is one at a time. `patient`: the broker may wait for something to come."""

    number: int
    ask: FetchAsk
    patient: bool = True


class Flight(NamedTuple):
    """A request that isn't answered: the partitions in it, and from where each was asked for."""

    number: int
    parts: dict[FetchKey, PartRead]
    asked: dict[FetchKey, FetchFrom]


class AskedCheck(NamedTuple):
    """A position that is being checked, and what the leader was asked about it."""

    read: PartRead
    question: EpochQuestion


@dataclass(slots=True)
class AskedBroker:
    """`summary`: by which `last` was asked; only those partitions that have `moved` are to be named now."""

    session: FetchSessionHandler = field(default_factory=FetchSessionHandler)
    flight: Flight | None = None
    checks: dict[Partition, AskedCheck] = field(default_factory=dict)
    quiet_until_s: float = 0.0
    session_faults: int = 0
    summary: ReadingSummary | None = None
    last: Flight | None = None
    moved: list[FetchKey] = field(default_factory=list)
