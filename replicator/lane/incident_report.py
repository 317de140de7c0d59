"""What the claims topic says of the incidents of one partition, and what has to be written there. Pure; a value of
`LanePartition`.

Invariant: an incident is tried to be written once: the flow goes on without it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from replicator.lane.plan import LanePlan
from replicator.model.commands import READING_SHOWS, RECREATED
from replicator.model.errors import Incident
from replicator.model.route import Route
from replicator.state.occurrences import Closing, Ending, Occurrence, found

Topics = tuple[str, str]
"""Ids of the source and of the target topic, as they were when an incident was found; empty where that isn't known."""
UNKNOWN: Topics = ("", "")


@dataclass(frozen=True, slots=True)
class IncidentReport:
    """`open` is what the claims topic has, by kind; `new` an incident that has to be written there, found of these
    `topics`; `ended` an occurrence that a decision has closed, and `tried` the incident that was written last, or could
    not be."""

    open: Mapping[str, Occurrence] = field(default_factory=dict)
    new: Incident | None = None
    topics: Topics = UNKNOWN
    ended: Occurrence | None = None
    tried: Incident | None = None

    def read(self, open_: Iterable[Occurrence]) -> IncidentReport:
        """Take what a producer session has read; what the one before has not committed is void."""
        return replace(self, open={it.name: it for it in open_}, ended=None)

    def noted(self, incident: Incident, topics: Topics = UNKNOWN) -> IncidentReport:
        """Have an incident written, unless it is there or was tried before."""
        known = self.open.get(incident.name)
        there = known is not None and known.is_of(incident) and self.ended is None
        if self.tried == incident or (there and known is not None and known.detail == incident.detail):
            return self
        return replace(self, new=incident, topics=topics)

    def of(self, incident: Incident) -> Occurrence | None:
        """Return the open occurrence of an incident that stops the partition."""
        known = self.open.get(incident.name)
        return known if known is not None and known.is_of(incident) else None

    def decided(self, closed: Occurrence) -> IncidentReport:
        """Have the end of an occurrence written; the same incident, found after that, is another one."""
        return replace(self, ended=closed, tried=None)

    def writing(self) -> IncidentReport:
        """Put into a transaction what there was to write."""
        return replace(self, new=None, ended=None, tried=self.new or self.tried)

    def after_commit(self, written: Collection[Occurrence]) -> IncidentReport:
        """Take what was written as certainly committed. What has ended may be found anew."""
        open_ = dict(self.open)
        for it in written:  # what has ended comes first
            if it.is_open:
                open_[it.name] = it
            else:
                open_.pop(it.name, None)
        tried = self.tried if any(it.is_open for it in written) else None
        return replace(self, open=open_, ended=None, tried=tried)

    def to_write(self, plan: LanePlan, route: Route, now_ms: int, *, admitted: bool) -> list[Occurrence]:
        """Make the records of what has ended, and then of what was found. `admitted`: the partition is copied from the
        same transaction on."""
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
        if admitted:
            ended += [_closed(it, Ending.GONE, plan, now_ms) for name, it in left.items() if name not in READING_SHOWS]
        return ended

    def passed(self, plan: LanePlan, offset: int, now_ms: int) -> list[Occurrence]:
        """Make the ends of occurrences that the position has passed, which is `offset` now."""
        over = [it for name, it in self.open.items() if name in READING_SHOWS and it.offset < offset]
        return [_closed(it, Ending.GONE, plan, now_ms) for it in over]


def _closed(it: Occurrence, effect: Ending, plan: LanePlan, now_ms: int) -> Occurrence:
    return it.closed(Closing(effect=effect, by=plan.owner, at_ms=now_ms), plan.generation)


NOT_REPORTED = IncidentReport()
