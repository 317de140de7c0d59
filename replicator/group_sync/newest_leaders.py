"""Where logs end, as the newest leaders tell it that anybody has named. Used by `live_map`.

A broker that is cut off from the controllers can be reached all the same. It names itself, or another leader of before,
and the answer under that leader's epoch ends where its own log does: before what was written since. Whoever took that
for the end would take for copied what isn't.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from replicator.kafka.admin import ClusterAdmin
from replicator.kafka.offset_questions import LATEST, ListedOffset, Wanted
from replicator.model.errors import ReplicatorError, Retriable
from replicator.model.newest_epochs import NewestEpochs, old_leader
from replicator.model.partition import Partition
from replicator.translation.partition_maps import MappedPartition

Offsets = Mapping[Partition, int | ReplicatorError]


class ToldByOldLeader(Retriable):
    """A leader of before has answered."""


class NewestLeaders:
    """Of the partitions of one cluster. Used by one thread."""

    def __init__(self) -> None:
        self._epochs = NewestEpochs()

    def offsets(
        self, cluster: ClusterAdmin, ats: Collection[Partition], wanted: Wanted = LATEST, *, patient: bool = False
    ) -> Offsets:
        """Ask for an offset of each log; return it, or why it isn't known. Where an old leader has answered it isn't,
        and another broker is asked next who leads. `patient`: as of `TopicQuestions.list_offsets`."""
        listed = cluster.listed_offsets(ats, wanted, patient=patient) if ats else {}
        found = {at: it if isinstance(it, ReplicatorError) else self._believed(at, it) for at, it in listed.items()}
        if any(isinstance(it, ToldByOldLeader) for it in found.values()):
            cluster.ask_another()
        return found

    def _believed(self, at: Partition, told: ListedOffset) -> int | ToldByOldLeader:
        self._epochs.topic(at.topic, told.topic_id)
        if self._epochs.take(at, told.leader_epoch):
            return told.offset
        return ToldByOldLeader(old_leader(at, told.leader_epoch, self._epochs.newest(at)))

    def learn(self, mapped: Iterable[MappedPartition]) -> dict[Partition, ToldByOldLeader]:
        """Take the epochs under which source partitions were copied. Return those of which only older ones were told
        before: what was said then isn't believed any more."""
        found = {}
        for it in mapped:
            at = it.source
            self._epochs.topic(at.topic, it.key[0])
            before = self._epochs.newest(at)
            if self._epochs.take(at, it.leader_epoch) and 0 <= before < it.leader_epoch:
                found[at] = ToldByOldLeader(old_leader(at, before, it.leader_epoch))
        return found
