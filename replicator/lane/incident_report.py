"""What the claims topic says of the incidents of one partition, and what has to be written there. Pure; a value of
`LanePartition`.

Invariant: the flow goes on without an incident that can't be written. After an attempt that isn't known to be committed
it is left out of transactions for a while, which is longer each time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from replicator.lane.plan import LanePlan
from replicator.model.checkpoint import Position
from replicator.model.commands import ONE_RECORD, READING_SHOWS, RECREATED, TRUNCATED, Command
from replicator.model.errors import Incident
from replicator.model.route import Route
from replicator.state.occurrences import Closing, Ending, Occurrence, found

Topics = tuple[str, str]
"""Ids of the source and of the target topic, as they were when an incident was found; empty where that isn't known."""
UNKNOWN: Topics = ("", "")


@dataclass(frozen=True, slots=True)
class IncidentReport:
    """`open` is what the claims topic has, by kind; `new` an incident that has to be written there, found of these
    `topics`, and not before `again_ms`, which is `pause_ms` behind the last attempt; `ended` an occurrence that a
    decision has closed, and `last` the incident that was written last."""

    open: Mapping[str, Occurrence] = field(default_factory=dict)
    new: Incident | None = None
    topics: Topics = UNKNOWN
    ended: Occurrence | None = None
    last: Incident | None = None
    again_ms: int = 0
    pause_ms: int = 0

    def read(self, open_: Iterable[Occurrence]) -> IncidentReport:
        """Take what a producer session has read; of what the one before has not committed, ends are void."""
        return replace(self, open={it.name: it for it in open_}, ended=None)

    def noted(self, incident: Incident, topics: Topics = UNKNOWN) -> IncidentReport:
        """Have an incident written, unless it is there or was written before."""
        known = self.open.get(incident.name)
        there = known is not None and known.is_of(incident) and self.ended is None
        if self.last == incident or (there and known is not None and known.detail == incident.detail):
            return self
        return replace(self, new=incident, topics=topics)

    def of(self, incident: Incident) -> Occurrence | None:
        """Return the open occurrence of an incident that stops the partition."""
        known = self.open.get(incident.name)
        return known if known is not None and known.is_of(incident) else None

    def truncated(self, position: Position) -> Incident | None:
        """Return the truncation of the source that was found at this position, where nobody has decided about it.

        Without a leader epoch only the end of the log shows it, and no longer once the log has grown past the position:
        whoever goes on there never copies what stands between the cut and the position.
        """
        it, closing = self.open.get(TRUNCATED), None if self.ended is None else self.ended.closing
        if it is None or position.evidence.leader_epoch >= 0 or it.offset != position.offset:
            return None
        retried = closing is not None and closing.decision is not None and closing.decision.command is Command.RETRY
        if retried or it.topic_id not in ("", position.evidence.source_topic_id):
            return None
        at = it.source
        return Incident(it.name, it.detail, topic=at.topic, partition=at.partition, offset=it.offset, end=it.end)

    def decided(self, closed: Occurrence) -> IncidentReport:
        """Have the end of an occurrence written; the same incident, found after that, is another one."""
        return replace(self, ended=closed, last=None)

    def not_begun(self) -> IncidentReport:
        """Forget the end of an occurrence with a position that isn't committed with it."""
        return replace(self, ended=None) if self.ended is not None and self.ended.moved is not None else self

    def sending(self, now_ms: int, incident: Incident | None) -> IncidentReport:
        """Return what there is to write now: `new` if it is the incident that stops the partition, and due."""
        due = self.new is None or (self.new == incident and now_ms >= self.again_ms)
        return self if due else replace(self, new=None)

    def sent(self, sending: IncidentReport, now_ms: int, pauses_ms: tuple[int, int]) -> IncidentReport:
        """Note that this goes into a transaction. `pauses_ms`: the first and the longest."""
        if sending.new is None:
            return replace(self, ended=None)
        first_ms, longest_ms = pauses_ms
        pause_ms = min(max(2 * self.pause_ms, first_ms), longest_ms)
        return replace(self, ended=None, again_ms=now_ms + pause_ms, pause_ms=pause_ms)

    def dropped(self) -> IncidentReport:
        """Forget an incident that was not written and has gone."""
        return replace(self, new=None, again_ms=0, pause_ms=0)

    def after_commit(self, written: Collection[Occurrence], new: Incident | None = None) -> IncidentReport:
        """Take what was written as certainly committed, with what there was to write of `new`. What has ended may be
        found anew."""
        open_ = dict(self.open)
        for it in written:  # what has ended comes first
            if it.is_open:
                open_[it.name] = it
            else:
                open_.pop(it.name, None)
        last = new or self.last if any(it.is_open for it in written) or not written else None
        done = self.dropped() if new is not None and self.new == new else self
        return replace(done, open=open_, ended=None, last=last)

    def to_write(
        self, plan: LanePlan, route: Route, now_ms: int, *, admitted: Position | None = None
    ) -> list[Occurrence]:
        """Make the records of what has ended, and then of what was found. `admitted`: the partition is copied from
        there, from the same transaction on."""
        ended = [self.ended] if self.ended is not None else []
        left = {name: it for name, it in self.open.items() if self.ended is None or it.id != self.ended.id}
        new = self.new
        if new is not None:
            known = left.get(new.name)
            topic_id, target_topic_id = self.topics[0] or route.source_topic_id, self.topics[1] or route.target_topic_id
            # Of a topic that was created once more nobody has decided anything.
            same = new.name not in RECREATED or (known and (known.topic_id, known.target_topic_id)) == (
                topic_id,
                target_topic_id,
            )
            if known is not None and known.is_of(new) and same:
                again = known.found_again(new, plan.generation, now_ms)
                return [*ended, *([again] if again is not None else [])]
            if known is not None:
                ended.append(_closed(known, Ending.REPLACED, plan, now_ms))
            at = route.target, route.source
            made = found(new, *at, plan.owner, plan.generation, now_ms, topic_id, target_topic_id)
            return [*ended, made]
        if admitted is not None:
            over = [it for name, it in left.items() if name not in READING_SHOWS or self._left(it, admitted)]
            ended += [_closed(it, Ending.GONE, plan, now_ms) for it in over]
        return ended

    def _left(self, it: Occurrence, position: Position) -> bool:
        """Tell whether a truncation was found at another position than this one, which no reading leads to: somebody
        has set it since."""
        return it.name == TRUNCATED and position.evidence.leader_epoch < 0 and self.truncated(position) is None

    def passed(self, plan: LanePlan, before: Position, offset: int, now_ms: int) -> list[Occurrence]:
        """Make the ends of occurrences that the position passes, on its way from `before` to `offset`."""
        over = [it for name, it in self.open.items() if name in ONE_RECORD and it.offset < offset]
        # Only where the leader epoch of `before` was checked it is known that nothing was cut below it.
        cut = self.open.get(TRUNCATED)
        if cut is not None and before.evidence.leader_epoch >= 0 and before.offset <= cut.offset < offset:
            over.append(cut)
        return [_closed(it, Ending.GONE, plan, now_ms) for it in over]


def _closed(it: Occurrence, effect: Ending, plan: LanePlan, now_ms: int) -> Occurrence:
    return it.closed(Closing(effect=effect, by=plan.owner, at_ms=now_ms), plan.generation)


NOT_REPORTED = IncidentReport()
