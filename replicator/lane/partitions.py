"""All partitions of one lane, over all its producer sessions: the one owner of their states, which tells of them.

Made by `lane.driver`; `lane.session` and `lane.start` apply events to single partitions here. A state is logged
when it changes, not when it is found again; but what still stops a partition after a decision is logged again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

import structlog

from replicator.incidents import tell_incident
from replicator.lane.partition import (
    DELETED,
    MISSING,
    Admitted,
    Copying,
    Decided,
    Event,
    HoldUp,
    LanePartition,
    PartitionState,
    PositionCommitted,
    Reason,
    RecordsCommitted,
    SessionBegan,
    Stopped,
    Wait,
    Waiting,
)
from replicator.model.errors import Incident
from replicator.model.partition import Partition
from replicator.model.route import Route

DELETED_AFTER_S = 5.0  # a broker that has just started may not know of a topic yet that exists


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    """How many partitions of a lane are copied, wait for something that may pass, or are stopped by incidents."""

    copying: int = 0
    waiting: int = 0
    stopped: int = 0


def _known(before: PartitionState | None, found: Incident) -> bool:
    """Tell whether an incident was told before: what else was found may have grown meanwhile."""
    return isinstance(before, Stopped) and (before.incident.name, before.incident.offset) == (found.name, found.offset)


class Partitions(Mapping[Partition, LanePartition]):
    """The partitions of a lane, by source partition."""

    def __init__(
        self,
        log: structlog.stdlib.BoundLogger,
        now_s: Callable[[], float],
        changed: Callable[[PartitionCounts], None] = lambda counts: None,
        cluster_away: Callable[[], bool] = lambda: False,
    ) -> None:
        """
        Args:
            log: gets the states that change.
            now_s: a monotonic clock.
            changed: called by `publish` with the new counts if they are others.
            cluster_away: whether it is told of a whole cluster that it doesn't answer: then no partition is logged for
                that.
        """
        self._log, self._now_s, self._changed = log, now_s, changed
        self._cluster_away = cluster_away
        self._all: dict[Partition, LanePartition] = {}
        # Invariant: what their states say, or None. Asked for several times in each transaction; `apply` makes it void.
        self._copied: dict[Partition, LanePartition] | None = None
        self.read_anew = True  # whether the source has to be sought: others are copied than it was asked to read
        self._held_up: HoldUp | None = None  # the lane as a whole, over its producer sessions
        self._counts, self._uncounted = PartitionCounts(), False  # whether a state has changed since they were counted

    def __getitem__(self, at: Partition) -> LanePartition:
        return self._all[at]

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def begin(self, routes: Collection[Route]) -> None:
        """Begin a producer session, with these partitions and no others."""
        found = {route.source: self._all.get(route.source) or LanePartition(route) for route in routes}
        for route in routes:
            found[route.source].route = route
            found[route.source].apply(SessionBegan(), self._now_s())
        self._all, self._copied, self.read_anew, self._uncounted = found, None, True, True

    def add(self, route: Route) -> None:
        """Add a partition to this session, which has to be checked."""
        self._all[route.source] = LanePartition(route)

    def apply(self, at: Partition, event: Event) -> None:
        """Change the state of one partition, and log it if that is news."""
        partition = self._all[at]
        before, was_copied = partition.told, partition.copied
        told = partition.apply(event, self._now_s())
        self._uncounted = True
        partition.decided = partition.decided or isinstance(event, Decided)
        if partition.copied != was_copied:
            self._copied, self.read_anew = None, True
        if told:
            self._tell(at, partition, before)

    def _tell(self, at: Partition, partition: LanePartition, before: PartitionState | None) -> None:
        now, unlogged = partition.told, partition.unlogged
        if isinstance(now, Waiting):
            if isinstance(before, Waiting) and before.reason is now.reason and not unlogged:
                return
            if now.reason is Reason.NO_ANSWER and self._cluster_away():
                partition.unlogged = True
                return
            tell = self._log.info if now.reason is Reason.KEPT else self._log.warning
            tell("waiting", topic=at.topic, partition=at.partition, reason=now.reason.value, detail=now.detail)
        elif isinstance(now, Copying) and isinstance(before, Waiting | Stopped) and not unlogged:
            self._log.info("copying", topic=at.topic, partition=at.partition)
        elif isinstance(now, Stopped) and (partition.decided or not _known(before, now.incident)):
            tell_incident(self._log, now.incident)
        partition.unlogged = partition.decided = False

    @property
    def copied(self) -> Mapping[Partition, LanePartition]:
        """Those that are read: neither waiting nor stopped."""
        if self._copied is None:
            self._copied = {at: partition for at, partition in self._all.items() if partition.copied}
        return self._copied

    @property
    def admitted(self) -> dict[Partition, LanePartition]:
        """Those whose positions go into the lane's next transaction."""
        return {at: partition for at, partition in self._all.items() if isinstance(partition.state, Admitted)}

    def on_committed(self) -> None:
        """Note that the positions and claims of all admitted partitions are certainly committed."""
        if self._held_up is not None and self._held_up.reason is Reason.TARGET_NOT_READY:
            self.records_committed()  # what kept one transaction from being committed keeps all
        event = self._held_up or PositionCommitted()
        for at in self.admitted:
            self.apply(at, event)

    def hold_up(self, event: HoldUp) -> None:
        """Note that the lane gets no records committed: all that are copied, and those admitted from now on, are said
        to wait. One whose claim isn't committed stays admitted: it goes into the next transaction with that (invariant
        4)."""
        self._held_up = event
        for at, partition in list(self.copied.items()):
            if partition.claim is None:
                self.apply(at, event)
        self.publish()

    @property
    def lane_held_up(self) -> bool:
        """Tell whether the lane as a whole gets no records committed."""
        return self._held_up is not None

    def records_committed(self) -> None:
        """Note that the lane has committed a transaction with records."""
        if self._held_up is not None:
            self._held_up = None
            for at in list(self.copied):
                self.apply(at, RecordsCommitted())

    def wait_all(self, routes: Collection[Route], wait: Wait) -> None:
        """Note a cause that keeps back the whole lane: those of `routes` that were copied, or never checked, wait."""
        for route in routes:
            if route.source not in self._all:
                self.add(route)
            if not isinstance(self._all[route.source].told, Waiting | Stopped):
                self.apply(route.source, wait)
        self.publish()

    def told(self) -> dict[Partition, PartitionState]:
        """Say what each partition is doing. From any thread."""
        found = [(at, partition.told) for at, partition in list(self._all.items())]
        return {at: state for at, state in found if state is not None}

    def lasting(self, at: Partition) -> Incident | None:
        """Return the incident that stopped a partition and that can't be found out again."""
        told = self._all[at].told
        return told.incident if isinstance(told, Stopped) and told.lasting else None

    def due(self) -> list[Partition]:
        """List waiting partitions whose cause should be asked about now."""
        now_s = self._now_s()
        waiting = [(at, it, it.state) for at, it in self._all.items() if isinstance(it.state, Waiting)]
        return [at for at, it, state in waiting if state.retry_s <= now_s and not self._not_asked(it)]

    @staticmethod
    def _not_asked(partition: LanePartition) -> bool:
        """Tell whether its source topic was deleted before the last listing: the next one tells of another. Or whether
        it was failed over: only another generation, which fences this lane, lets it go on."""
        if partition.waits_since(Reason.FAILED_OVER) is not None:
            return True
        return not partition.route.source_topic_id and partition.waits_since(*DELETED.values()) is not None

    def missing_for_long(self, at: Partition) -> bool:
        """Tell whether the topic of a waiting partition has been missing for longer than a starting broker takes."""
        since_s = self._all[at].waits_since(*MISSING)
        return since_s is not None and self._now_s() - since_s >= DELETED_AFTER_S

    def deleted(self, at: Partition) -> bool:
        """Tell whether a partition whose topic is missing waits for no more than that it is created again."""
        return self._all[at].waits_since(*DELETED.values()) is not None or self.missing_for_long(at)

    def publish(self) -> PartitionCounts:
        """Count how many partitions are in which state; `changed` is called if these are other numbers than before. Of
        what a stray commit has stopped the position is known, and committed again at once: it counts as waiting."""
        if not self._uncounted:
            return self._counts
        self._uncounted = False
        told = self.told()
        found = Counter(Waiting if self._all[at].overwritten else type(state) for at, state in told.items())
        counts = PartitionCounts(found[Copying], found[Waiting], found[Stopped])
        if counts != self._counts:
            self._counts = counts
            self._changed(counts)
        return counts
