"""What each partition of a lane is doing: copying, waiting, or stopped. Owned and reported by `lane.driver` alone.

Invariants
- Nothing stands still in any other state: a partition that is not copied either waits, for a reason that is logged and
  asked about again, or is stopped by an incident.
- A state is logged when it changes, not when it is found again.
- An incident that the next producer session could not find out again (a refused record) is kept over sessions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

import structlog

from replicator.incidents import tell_incident
from replicator.model.errors import Incident, NotAllowed, ReplicatorError, TopicMissing
from replicator.model.partition import Partition

RETRY_S, RETRY_S_MAX = 0.25, 5.0
DELETED_AFTER_S = 5.0  # a broker that starts may deny for a moment that it has a topic


class Reason(StrEnum):
    """Why a partition waits."""

    NOT_ALLOWED = "not_allowed"
    SOURCE_MISSING = "source_topic_missing"
    TARGET_MISSING = "target_topic_missing"
    NO_ANSWER = "no_answer"
    LISTED_SO = "not_ready"  # its topic can't be copied now, as the last discovery found


MISSING = (Reason.SOURCE_MISSING, Reason.TARGET_MISSING)


def reason_of(error: ReplicatorError, missing: Reason = Reason.SOURCE_MISSING) -> Reason:
    """Why a partition waits that `error` of a cluster keeps back; `missing` says whose topic is meant."""
    if isinstance(error, NotAllowed):
        return Reason.NOT_ALLOWED
    return missing if isinstance(error, TopicMissing) else Reason.NO_ANSWER


@dataclass(frozen=True, slots=True)
class Copying:
    """Records are copied as they come."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nothing is copied until the cause has gone; it is asked about again at `retry_s` (monotonic)."""

    reason: Reason
    detail: str
    since_s: float
    retry_s: float
    pause_s: float = RETRY_S


@dataclass(frozen=True, slots=True)
class Stopped:
    """An incident needs a decision. `lasting`: a new producer session could not find it out again."""

    incident: Incident
    lasting: bool = False


PartitionState = Copying | Waiting | Stopped


@dataclass(frozen=True, slots=True)
class Counts:
    """How many partitions are in which state."""

    copying: int = 0
    waiting: int = 0
    stopped: int = 0


class PartitionStates:
    """The states of one lane's source partitions, over all its producer sessions."""

    def __init__(
        self,
        log: structlog.stdlib.BoundLogger,
        now_s: Callable[[], float],
        changed: Callable[[Counts], None] = lambda counts: None,
    ) -> None:
        """`changed` is called by `publish` with the new counts if they are others; `now_s` is a monotonic clock."""
        self._log, self._now_s, self._changed = log, now_s, changed
        self._states: dict[Partition, PartitionState] = {}
        self._counts = Counts()

    def __getitem__(self, at: Partition) -> PartitionState:
        return self._states[at]

    def get(self, at: Partition) -> PartitionState | None:
        """The state of a partition; None for one that the lane doesn't have."""
        return self._states.get(at)

    def all(self) -> dict[Partition, PartitionState]:
        """A copy of all states."""
        return dict(self._states)

    def copied(self) -> set[Partition]:
        """Partitions that are copied."""
        return {at for at, state in self._states.items() if isinstance(state, Copying)}

    def keep(self, partitions: Iterable[Partition]) -> None:
        """Forget partitions that the lane doesn't have any more."""
        wanted = set(partitions)
        self._states = {at: state for at, state in self._states.items() if at in wanted}

    def lasting(self, at: Partition) -> Incident | None:
        """The incident that stopped a partition and that can't be found out again."""
        state = self._states.get(at)
        return state.incident if isinstance(state, Stopped) and state.lasting else None

    def copy(self, at: Partition) -> None:
        """It is copied from now on; logged if it had waited or was stopped."""
        before = self._states.get(at)
        self._states[at] = Copying()
        if isinstance(before, Waiting | Stopped):
            self._log.info("copying", topic=at.topic, partition=at.partition)

    def stop(self, at: Partition, incident: Incident, *, lasting: bool = False) -> None:
        """An incident stops it."""
        before = self._states.get(at)
        self._states[at] = Stopped(incident, lasting)
        if not isinstance(before, Stopped) or before.incident != incident:
            tell_incident(self._log, incident)

    def wait(self, at: Partition, reason: Reason, detail: str) -> None:
        """It waits. The same reason again waits longer until it is asked about, up to RETRY_S_MAX."""
        now_s, before = self._now_s(), self._states.get(at)
        if isinstance(before, Waiting) and before.reason is reason:
            pause_s = min(RETRY_S_MAX, before.pause_s * 2)
            self._states[at] = Waiting(reason, detail, before.since_s, now_s + pause_s, pause_s)
            return
        self._states[at] = Waiting(reason, detail, now_s, now_s + RETRY_S)
        self._log.warning("waiting", topic=at.topic, partition=at.partition, reason=reason.value, detail=detail)

    def due(self) -> list[Partition]:
        """Waiting partitions whose cause should be asked about now."""
        now_s = self._now_s()
        return [at for at, s in self._states.items() if isinstance(s, Waiting) and s.retry_s <= now_s]

    def missing_for_long(self, at: Partition) -> bool:
        """Whether the topic of a waiting partition has been missing for longer than a starting broker takes."""
        state = self._states.get(at)
        if not isinstance(state, Waiting) or state.reason not in MISSING:
            return False
        return self._now_s() - state.since_s >= DELETED_AFTER_S

    def publish(self) -> Counts:
        """How many partitions are in which state; `changed` is called if these are other numbers than before."""
        found = Counter(type(state) for state in self._states.values())
        counts = Counts(found[Copying], found[Waiting], found[Stopped])
        if counts != self._counts:
            self._counts = counts
            self._changed(counts)
        return counts
