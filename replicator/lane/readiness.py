"""Keeps partitions out of transactions that the target can't write now, and says what holds up the lane. Used by
`lane.session` and `lane.start`.

Invariants
- A partition without a leader, or with too few replicas in sync, gets no record: it would hold up the commit and the
  abort of every transaction that it is part of. So does one whose leader refuses it (KAFKA_STORAGE_ERROR), which shows
  only when it is written.
- Where that is too late, because it went away in the middle or behind the last EndTxn, the lane can begin no other
  transaction before the marker there is written (CONCURRENT_TRANSACTIONS): then all partitions are told to wait, and
  for which one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from replicator.lane.partition import HoldUp, Reason, Wait
from replicator.lane.partitions import Partitions
from replicator.lane.ports import Clock, ClusterQuestions
from replicator.lane.size import TOLD_AFTER, TransactionSize, slowness
from replicator.model.counting import named
from replicator.model.errors import Abortable, Retriable, Unreachable
from replicator.model.partition import Partition
from replicator.model.route import Route
from replicator.planes.contract import Written

LOOK_S = 0.5  # between two looks at what is known
STALL_LOOK_S = 1.0  # between two questions while acknowledgements are late
LATE_S = 5.0  # without any acknowledgement


class TargetNotReady(Abortable):
    """The targets of these source partitions, which are in the open transaction, can't be written."""

    def __init__(self, found: Mapping[Partition, str]) -> None:
        self.found = dict(found)
        super().__init__(named([*found.values()], "; "))


class TargetReadiness:
    """Of one producer session."""

    def __init__(self, partitions: Partitions, target: ClusterQuestions, clock: Clock) -> None:
        self._partitions, self._target, self._clock = partitions, target, clock
        self._transaction = 0  # the number of the last one: its markers may not be written yet
        self._looked_s = self._stalled_s = -STALL_LOOK_S
        self.held_up = False  # by the last transaction
        self._acknowledged: object = None  # how much of the open transaction, when that was looked at last
        self._moved_s = 0.0  # since when it is so much
        self._longest_s = 0.0  # that a transaction which was committed went without: a slow line is no news
        self.map_at: Partition | None = None  # where that has a block of the offset map

    def look(self, copied: Collection[Partition]) -> None:
        """Look, before a transaction, now and then: those of `copied` wait whose targets can't be written."""
        now_s = self._clock.now_s()
        if now_s >= self._looked_s + LOOK_S:
            self._looked_s = now_s
            self.keep_out(copied)

    def keep_out(self, partitions: Collection[Partition], *, now: bool = False) -> dict[Partition, str]:
        """Make those wait whose targets can't be written; return which and why."""
        found = self._found(partitions, now=now)
        for at, why in found.items():
            self._partitions.apply(at, Wait(Reason.TARGET_NOT_READY, why))
        return found

    def ready(self, waiting: Collection[Partition]) -> list[Partition]:
        """Return those of the waiting partitions whose cause isn't their target, or no longer."""
        kept_out = [at for at in waiting if self._partitions[at].waits_since(Reason.TARGET_NOT_READY) is not None]
        still = self.keep_out(kept_out)
        return [at for at in waiting if at not in still]

    def stalled(self, written: Written) -> None:
        """Find out why acknowledgements are late. Raises TargetNotReady if partitions of the open transaction are the
        cause: they wait from now on."""
        now_s = self._clock.now_s()
        if now_s < self._stalled_s + STALL_LOOK_S:
            return
        self._stalled_s = now_s
        mine = self.keep_out(written.unacknowledged, now=True) or self._keep_out_unserved(written.unacknowledged)
        if mine:
            raise TargetNotReady(mine)
        last = [at for at, it in self._partitions.items() if it.session.transaction == self._transaction]
        held = self._found(last) or self._unserved(last)
        if self.map_at is not None:
            held |= self._target.not_ready([self.map_at])
        if not held:
            self._late(written)
        else:
            self.held_up = True
            told = named(sorted(held.values()), "; ")
            why = f"{told}: so Kafka can't end the lane's last transaction there, and begins no other"
            self._partitions.hold_up(HoldUp(Reason.TARGET_NOT_READY, why))

    def _late(self, written: Written) -> None:
        """Say, once nothing was acknowledged for a while, that it isn't, though nothing is known to be wrong: a leader
        that has died may not be known to be dead, and one whose disk is full refuses records; the client tries again
        and says nothing of either."""
        state, now_s = (written.records, written.acknowledged_bytes, written.unacknowledged), self._clock.now_s()
        if state != self._acknowledged:
            self._acknowledged, self._moved_s = state, now_s
        elif now_s >= self._moved_s + max(LATE_S, 2 * self._longest_s):
            targets = sorted(str(self._partitions[at].route.target) for at in written.unacknowledged)
            late = f"no record of {named(targets, '; ')} was acknowledged for {now_s - self._moved_s:.0f} s"
            why = f"{late}: the leader may be down, or slow, or refuse them (KAFKA_STORAGE_ERROR: its disk)"
            self._partitions.hold_up(HoldUp(Reason.NO_ANSWER, why))

    def ended(self, written: Collection[Partition]) -> None:
        """Note that a transaction with records of these partitions was aborted, or left to the next fence."""
        if written:
            self._next_transaction(written)

    def failed(self, size: TransactionSize, written: Written) -> None:
        """Make the next transaction smaller if this one has failed for its time. Called before it is aborted."""
        self.ended(written.partitions)
        if written.timed_out and not self.held_up:
            size.timed_out(written)
            if size.timeouts >= TOLD_AFTER:
                self._partitions.hold_up(HoldUp(Reason.TARGET_SLOW, slowness(size.timeouts, written)))

    def on_committed(self, written: Collection[Partition] = ()) -> None:
        """Note that a transaction with records of these partitions was committed: so the one before it has ended."""
        if self._acknowledged is not None:
            self._longest_s = max(self._longest_s, self._clock.now_s() - self._moved_s)
        self._next_transaction(written)
        self.held_up = False

    def _next_transaction(self, written: Collection[Partition]) -> None:
        self._transaction += 1
        self._acknowledged = None
        for at in written:
            self._partitions[at].session.transaction = self._transaction

    @contextmanager
    def fencing(self, routes: Collection[Route]) -> Iterator[None]:
        """Watch a fence, which first ends the predecessor's transaction: if it fails, and that may be why, all
        partitions wait."""
        try:
            yield
        except (Retriable, Unreachable):
            self._not_fenced(routes)
            raise

    def _not_fenced(self, routes: Collection[Route]) -> None:
        targets = [route.target for route in routes if route.target_topic_id]
        found = self._target.not_ready(targets, now=True) or self._target.unserved(targets, now=True)
        if found:
            told = named(sorted(found.values()), "; ")
            why = f"{told}: Kafka may not be able to end the lane's last transaction there, and begins no other"
            self._partitions.wait_all(routes, Wait(Reason.TARGET_NOT_READY, why))

    def _keep_out_unserved(self, partitions: Collection[Partition]) -> dict[Partition, str]:
        """Make those wait that their leader doesn't serve: its disk has failed, and metadata doesn't show it."""
        found = self._unserved(partitions)
        for at, why in found.items():
            self._partitions.apply(at, Wait(Reason.NO_ANSWER, why))
        return found

    def _unserved(self, sources: Collection[Partition]) -> dict[Partition, str]:
        routes = [self._partitions[at].route for at in sources if at in self._partitions]
        targets = {route.target: route.source for route in routes if route.target_topic_id}
        return {targets[at]: why for at, why in self._target.unserved(targets).items()}

    def _found(self, sources: Collection[Partition], *, now: bool = False) -> dict[Partition, str]:
        routes = [self._partitions[at].route for at in sources if at in self._partitions]
        targets = {route.target: route.source for route in routes if route.target_topic_id}
        if not targets:
            return {}
        return {targets[at]: why for at, why in self._target.not_ready(targets, now=now).items()}
