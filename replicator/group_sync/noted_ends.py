"""Notes at the target where the source's partitions end, for who must do without the source one day: what isn't copied
then is bounded by that. Nobody owns these offsets but the flow. Used by `sync`.

The first of the partitions says when the ends were noted last. Whoever fails over takes that for the moment up to which
all of them are known, so it goes on only once no partition has an end that is older. All of it is committed again from
time to time: the group has no members, so each offset expires by itself, so long after its own commit.

A partition that the group has no offset of, because the target doesn't have it or refuses it, or because its end was
never known, is noted in the flow's groups topic instead; so is the time while the group has no offset at all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from replicator.config import Flow
from replicator.group_sync.commits import ASK_S
from replicator.group_sync.ports import LiveMap, Notes, SourceEnds, TargetGroups
from replicator.groups.decision import COMMIT_DEADLINE_MS, OffsetToCommit
from replicator.groups.ownership import GroupOffset
from replicator.kafka import failures
from replicator.lane.ports import Clock
from replicator.model import names
from replicator.model.errors import ReplicatorError, Retriable
from replicator.model.partition import Partition
from replicator.state.other_ends import OtherEnds
from replicator.wire.offset_fetch_groups import GroupValues

_NOTING = "note where the source's partitions end in topic {!r}"
_MISSING = -1  # instead of an error code: the answer doesn't have the partition


class NotedEnds:
    """Of one flow; it has one writer at a time. By source partition."""

    def __init__(self, flow: Flow, target: TargetGroups, live_map: LiveMap, notes: Notes, clock: Clock) -> None:
        self._group, self._cluster = names.ends_group(flow.name), flow.target.name
        self._target, self._map, self._notes, self._clock = target, live_map, notes, clock
        self._renew_s, self._renewed_s = flow.limits.recommit_interval_ms / 1000, 0.0
        self._begun = False
        self._noted: dict[Partition, int] = {}
        self._others = OtherEnds()
        self._again = set[Partition]()  # to be committed whether or not their ends change
        self._said = ""  # when they were noted last, as it was committed; empty: never

    def forget(self) -> None:
        """Begin anew: somebody else may have noted them since."""
        self._begun = False

    def note(self, source: SourceEnds, asked_ms: int, unanswered: list[ReplicatorError]) -> None:
        """Note where the partitions ended at a moment. Adds to `unanswered` why some of that isn't noted.

        Raises ReplicatorError where the groups topic isn't written.
        """
        if not (source.ends or source.unknown):
            return
        if not self._begun and not self._begin([*source.noted, *source.unknown], unanswered):
            return
        for at in source.ends.keys() - source.noted.keys():
            self._noted.pop(at, None)  # the target doesn't have it any more: its offset is gone with it
        older = {at: self._noted[at] for at in source.unknown if at in self._noted}
        ends = {**source.noted, **older}
        if self._clock.now_s() >= self._renewed_s + self._renew_s:
            self._renewed_s = self._clock.now_s()
            self._again.update(ends)
        changed = {at for at, end in ends.items() if self._noted.get(at) != end or at in self._again}
        # the first one is committed by itself below, unless it is one that keeps the time from going on
        if changed - {min(ends, default=None)} or changed & self._again:
            self._commit(changed, ends, self._said, unanswered)
        self._note_others(source)
        if older or any(at in self._again and self._noted.get(at, ends[at]) != ends[at] for at in changed):
            return
        if not ends:  # no offset can say when
            self._notes.write([*self._others.write_seen(asked_ms)])
            return
        first, said = min(ends.keys() - self._again, default=min(ends)), str(asked_ms)
        if self._commit({first}, ends, said, unanswered):
            self._said = said

    def _note_others(self, source: SourceEnds) -> None:
        """Note those of which the group has no offset: before the time goes on, and once it has those that it had
        not."""
        ats = (source.ends.keys() | source.unknown.keys()) - self._noted.keys()
        if records := list(self._others.write({at: source.ends.get(at) for at in ats})):
            self._notes.write(records)

    def _begin(self, ats: Collection[Partition], unanswered: list[ReplicatorError]) -> bool:
        """Read what is noted; return whether that is known now."""
        found = self._target.offsets({self._group: None}, ASK_S, stable=False)[self._group]
        if isinstance(found, ReplicatorError):
            unanswered.append(found)
            return False
        stands = _values(found)
        said = [int(it.metadata) for it in stands.values() if it.metadata.isdigit()]
        self._said = str(max(said)) if said else ""
        noted = {at: stands.get(self._to(at)) for at in ats}
        self._noted = {at: it.offset for at, it in noted.items() if it is not None}
        self._begun, self._again, self._renewed_s = True, set(), float("-inf")
        self._others = self._notes.other_ends()
        return True

    def _commit(
        self, ats: Collection[Partition], ends: Mapping[Partition, int], said: str, unanswered: list[ReplicatorError]
    ) -> bool:
        """Commit the ends of these partitions; return whether all of them are."""
        offsets = defaultdict[str, dict[int, OffsetToCommit]](dict)
        for at in ats:
            offsets[self._map.target_topic(at.topic)][at.partition] = OffsetToCommit(ends[at], said)
        codes = self._target.commit({self._group: offsets}, COMMIT_DEADLINE_MS / 1000)[self._group]
        if isinstance(codes, ReplicatorError):
            unanswered.append(codes)
            self._again.update(ats)
            return False
        refused = dict[tuple[str, int], None]()
        for at in ats:
            topic = self._map.target_topic(at.topic)
            code = codes.get(topic, {}).get(at.partition, _MISSING)
            if code:
                refused[topic, code] = None
                self._again.add(at)
            else:
                self._noted[at] = ends[at]
                self._again.discard(at)
        unanswered += [self._error(*one) for one in sorted(refused)]
        return not refused

    def _error(self, topic: str, code: int) -> ReplicatorError:
        doing = _NOTING.format(topic)
        if code < 0:  # one of ours: no broker has said anything of it
            return Retriable(f"cluster {self._cluster!r}: cannot {doing}: it was not answered")
        return failures.classify_code(code, self._cluster, doing, f"Read on topic {topic!r}")

    def _to(self, at: Partition) -> Partition:
        return Partition(self._map.target_topic(at.topic), at.partition)


def _values(found: GroupValues) -> dict[Partition, GroupOffset]:
    return {
        Partition(topic, number): value
        for topic, of_topic in found.topics().items()
        for number, value in of_topic.items()
        if isinstance(value, GroupOffset)
    }
