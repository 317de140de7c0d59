"""Offsets of logs, without what an old leader tells. Used by `topics`.

A broker that is cut off from the controllers can be reached all the same. It names itself as the leader of before, and
answers for its own log, under its own epoch: that log ends before what was written since, and never grows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from replicator.kafka.offset_questions import ListedOffset, ListedOffsets, OffsetAnswers
from replicator.model.errors import ReplicatorError, Retriable
from replicator.model.newest_epochs import NewestEpochs, old_leader
from replicator.model.partition import Partition


class NewestOffsets:
    """Implements `OffsetAnswers` over others."""

    def __init__(
        self, cluster: str, answers: OffsetAnswers, epochs: NewestEpochs, ask_another: Callable[[], None]
    ) -> None:
        """`epochs`: as they were told to the same client before. `ask_another` has another broker asked next who leads,
        where an old leader has answered."""
        self._cluster, self._answers, self._epochs, self._ask_another = cluster, answers, epochs, ask_another

    def poll(self, timeout_s: float) -> bool:
        """See `OffsetAnswers`."""
        return self._answers.poll(timeout_s)

    def values(self) -> Sequence[ListedOffsets]:
        """See `OffsetAnswers`. What an old leader tells is Retriable."""
        listed = self._answers.values()
        for each in listed:  # all of them first: the leader may have changed between two of the answers
            for at, told in each.items():
                if isinstance(told, ListedOffset):
                    self._epochs.topic(at.topic, told.topic_id)
                    self._epochs.take(at, told.leader_epoch)
        found = [{at: self._believed(at, told) for at, told in each.items()} for each in listed]
        if any(told is not found[n][at] for n, each in enumerate(listed) for at, told in each.items()):
            self._ask_another()
        return found

    def _believed(self, at: Partition, told: ListedOffset | ReplicatorError) -> ListedOffset | ReplicatorError:
        if isinstance(told, ReplicatorError) or self._epochs.take(at, told.leader_epoch):
            return told
        said = old_leader(at, told.leader_epoch, self._epochs.newest(at))
        return Retriable(f"cluster {self._cluster!r}: {said}")
