"""What a lane's producer sessions are given by `lane.driver`: what outlives each of them, and services."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from replicator.backoff import Jitter
from replicator.failpoints import Failpoint
from replicator.lane.flow_decisions import FlowDecisions
from replicator.lane.map_outage import MapOutage
from replicator.lane.partitions import Partitions
from replicator.lane.ports import Clock, LaneObserver
from replicator.lane.refused_records import RefusedRecords
from replicator.lane.reports import Reports
from replicator.lane.size import TransactionSize
from replicator.lane.throttle import FlowThrottle
from replicator.model.partition import Partition


@dataclass(slots=True)
class Memory:
    """What outlives a producer session. Owned by `lane.driver`, changed by the session that runs.

    `owners`: by target partition, as this process knows them; of positions that have no partition of the lane, too.
    `decisions_again_s`: by occurrence, when a decision that could not be done is tried again (monotonic).
    `throttle` and `decisions`: of the flow, for all its lanes.
    """

    partitions: Partitions
    refusals: RefusedRecords
    size: TransactionSize
    reports: Reports
    owners: dict[Partition, str] = field(default_factory=dict)
    map_outage: MapOutage = field(default_factory=MapOutage)
    decisions_again_s: dict[str, float] = field(default_factory=dict)
    throttle: FlowThrottle = field(default_factory=FlowThrottle)
    decisions: FlowDecisions = field(default_factory=FlowDecisions)


@dataclass(frozen=True, slots=True)
class SessionContext:
    """What a session is given by its driver."""

    stop: threading.Event
    clock: Clock
    failpoint: Failpoint
    log: structlog.stdlib.BoundLogger
    jitter: Jitter
    observer: LaneObserver
    initialised: Callable[[], None] = lambda: None
    """Is told when the session has initialised its transactional id."""
