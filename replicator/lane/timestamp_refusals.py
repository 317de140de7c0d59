"""Partitions that stopped because the target refused a record for its timestamp, and go on once it takes such again.

Used by `lane.session`. The bounds of a target topic are known from its configs, as they were listed last, and a record
outside is stopped before it is written. Where they were lowered a moment ago the target refuses it: the same incident.
Its next listing changes the partition's route, and all of it is checked anew. But bounds that were raised
again before that listing change no route: so they are asked for here.
"""

from __future__ import annotations

from collections.abc import Collection

from replicator.lane.partition import Stopped
from replicator.lane.partitions import Partitions
from replicator.lane.ports import Clock, ClusterQuestions
from replicator.lane.refusal_search import TIMESTAMP_BOUNDS
from replicator.model.errors import Incident, NotAllowed, ReplicatorError, Retriable, TopicMissing, Unreachable
from replicator.model.partition import Partition
from replicator.model.timestamps import TimestampBounds


class TimestampRefusals:
    """Of one producer session."""

    def __init__(self, partitions: Partitions, target: ClusterQuestions, clock: Clock, interval_s: float) -> None:
        """`interval_s`: of discovery, which these questions are as frequent as."""
        self._partitions, self._target, self._clock, self._interval_s = partitions, target, clock, interval_s
        # Invariant: stopped because the target has refused a record. A stop by the bounds that are known is the same
        # incident in the same state, and nothing to ask about again.
        self._refused: set[Partition] = set()
        self._looked_s = 0.0

    def note(self, at: Partition, incident: Incident) -> bool:
        """Note what stops a partition before a refused record; whether it is a timestamp that was refused."""
        if incident.name != TIMESTAMP_BOUNDS:
            return False
        self._refused.add(at)
        self._looked_s = self._clock.now_s()
        return True

    def over(self) -> list[Partition]:
        """Find, now and then, those whose target topic takes what it took when it was listed last: check them again."""
        self._refused = {at for at in self._refused if self._is_stopped(at)}
        now_s = self._clock.now_s()
        if not self._refused or now_s < self._looked_s + self._interval_s:
            return []
        self._looked_s = now_s
        found = self._same_bounds(self._refused)
        self._refused -= set(found)
        return found

    def _is_stopped(self, at: Partition) -> bool:
        state = self._partitions[at].state if at in self._partitions else None
        return isinstance(state, Stopped) and state.incident.name == TIMESTAMP_BOUNDS

    def _same_bounds(self, partitions: Collection[Partition]) -> list[Partition]:
        topics = {self._partitions[at].route.target.topic for at in partitions}
        now = {topic: self._bounds(topic) for topic in topics}
        routes = {at: self._partitions[at].route for at in sorted(partitions)}
        return [at for at, route in routes.items() if now[route.target.topic] == route.timestamps]

    def _bounds(self, topic: str) -> TimestampBounds | ReplicatorError:
        """Ask for the bounds. What can't be asked now is asked for again: nothing goes on meanwhile, and the incident
        says why."""
        try:
            return TimestampBounds.of(self._target.topic_shape(topic).configs)
        except (TopicMissing, NotAllowed, Retriable, Unreachable, Incident) as error:
            return error
