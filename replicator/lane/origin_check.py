"""Whether partitions of which nothing was copied yet come from the cluster to which they would be copied. For
`lane.start`, before their first record is read, and for `lane.transaction`, before the first ones are committed.

Invariants
- Claim, then look, then copy. Two flows that would copy each other's copies and start at the same time each commit a
  claim before they look for the other's: whichever looks last finds it.
- A flow's claim stands before its first record. So whoever has read a record that a flow wrote finds that flow's claim
  behind it: where a partition was empty, its first records are looked at once more before they are committed.
- What is learned goes into the claim, at the latest in the transaction of the first records: whoever reads those finds
  there all clusters that they have come over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from replicator.lane.partition import LanePartition
from replicator.lane.partitions import Partitions
from replicator.lane.plan import LanePlan
from replicator.lane.ports import Clock, OriginsReader
from replicator.model.errors import NotAllowed, ReplicatorError, Retriable, Unreachable
from replicator.model.origins import NONE
from replicator.model.partition import LogEnds, Partition
from replicator.state.claims import Claim
from replicator.state.origins import loop

WrongOrigins = dict[Partition, ReplicatorError]
"""Why partitions must not be copied: an incident, or what keeps it from being known."""


class OriginCheck:
    """Of one producer session."""

    def __init__(self, plan: LanePlan, partitions: Partitions, reader: OriginsReader, clock: Clock) -> None:
        self._plan, self._partitions, self._reader, self._clock = plan, partitions, reader, clock
        self.claims: dict[Partition, Claim] = {}  # as they stand on the target, of other lanes too, by target partition

    def claimed(self, claims: Iterable[Claim]) -> None:
        """Note that these claims stand on the target."""
        for claim in claims:
            self.claims[claim.target] = claim
            partition = self._partitions.get(claim.source)
            if partition is not None and partition.session.learned <= claim.origins:
                partition.session.learned = NONE

    def renewed(self, partition: LanePartition) -> Claim | None:
        """Renew the claim of a partition that has a position, if it doesn't say all that is known of where it comes
        from."""
        plan, claim = self._plan, self.claims.get(partition.route.target)
        if claim is None or claim.source != partition.route.source or partition.position is None:
            return None
        origins = partition.route.origins | partition.session.learned
        return claim.renewed(plan.source_cluster, origins, plan.generation, plan.owner, self._clock.now_ms())

    def before_reading(self, ends: Mapping[Partition, LogEnds | ReplicatorError]) -> WrongOrigins:
        """Look where partitions come from, after their claims were committed. `ends`: of source partitions, as they
        were read before that."""
        copied = self._partitions.copied
        fresh = {at: it for at, it in copied.items() if not it.session.origin_checked and _untouched(it)}
        wrong = self._look(fresh)
        for at in fresh.keys() - wrong.keys():
            log, known = ends.get(at), fresh[at].session
            known.origin_checked = True
            known.was_empty = known.was_empty or (isinstance(log, LogEnds) and log.end == 0)
        return wrong

    def before_commit(self, copied: Collection[Partition]) -> tuple[WrongOrigins, list[Claim]]:
        """Find, after the last fetch of a transaction, what is wrong with these partitions, and claims to write with
        it."""
        partitions = [(at, self._partitions[at]) for at in copied]
        first = {at: it for at, it in partitions if it.session.was_empty}
        wrong = self._look(first)
        for at in first.keys() - wrong.keys():
            first[at].session.was_empty = False
        told = [self.renewed(it) for _, it in partitions if it.session.learned]
        return wrong, [claim for claim in told if claim is not None]

    def _look(self, fresh: Mapping[Partition, LanePartition]) -> WrongOrigins:
        if not fresh:
            return {}
        plan = self._plan
        try:
            found = self._reader.origins({at.topic: it.route.source_topic_id for at, it in fresh.items()})
        except (NotAllowed, Retriable, Unreachable) as error:
            return dict.fromkeys(fresh, error)
        wrong: WrongOrigins = {}
        for at, partition in fresh.items():
            origins = found.origins.get(at.topic, NONE)
            back = loop(plan.flow, plan.source_cluster, plan.target_cluster, at.topic, origins)
            if back is not None:
                wrong[at] = back.at(at.partition, partition.position.offset if partition.position else -1)
            elif found.passing is not None:
                wrong[at] = found.passing
            elif origins:
                partition.session.learned = origins
        return wrong


def _untouched(partition: LanePartition) -> bool:
    return partition.position is not None and not partition.position.evidence.count
