"""The claims that flows have on a cluster from which another flow reads: where its source topics come from.

Used by `flow.topics` and, for lanes, by `flow.shared_origins`. Whoever may not read them isn't kept from copying,
but is told.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from replicator.config import Flow
from replicator.kafka.topic_reader import KeyAndValue, LogBounds, TopicReader
from replicator.model import names
from replicator.model.errors import Incident, NotAllowed, ReplicatorError, Retriable, Unreachable
from replicator.model.partition import Partition
from replicator.state.claims import read_claims
from replicator.state.envelope import NewerFormat, NotOurs
from replicator.state.origins import FoundOrigins, OriginsById, claimed_origins, merged, of_topics

READ_AT_ONCE = 20_000  # offsets: claims of some hundred bytes each


class _Known(NamedTuple):
    """What was read of a claims partition, whose log had these bounds then."""

    bounds: LogBounds
    origins: OriginsById


class SourceClaims:
    """Reads when it is asked, all flows' claims together: a cluster may hold hundreds of them, and each start asks. A
    partition is read again only when it has grown. Used from one thread; closing the
    reader is its owner's business."""

    def __init__(self, flow: Flow, reader: TopicReader, listed: Callable[[], Collection[str]] | None = None) -> None:
        """`reader` is of the flow's source; `listed` names its topics, where they were just listed anyway."""
        self._flow, self._reader = flow, reader
        self._names = listed or reader.names
        self._known: dict[Partition, _Known] = {}

    def origins(self, topic_ids: Mapping[str, str]) -> FoundOrigins:
        """Say where these topics of the source, with the ids that they have now, come from. Raises as `read`."""
        found, unread = self.read()
        return FoundOrigins(of_topics(found, topic_ids), unread)

    def read(self) -> tuple[OriginsById, dict[str, ReplicatorError]]:
        """Read where all topics of the source come from; why a claims topic could not be read, by its name.

        Raises Unreachable, Retriable, NotAllowed if not even the source's topics can be listed.
        """
        listed = {name: flow for name in self._names() if (flow := names.flow_of_claims(name)) is not None}
        # A topic that the user may not see isn't listed. Asked for by its name, this one tells whether that is so.
        own = names.claims_topic(self._flow.name)
        flows = dict(sorted({own: self._flow.name, **listed}.items()))
        unread = self._read_grown(flows)
        found = [known.origins for at, known in sorted(self._known.items()) if at.topic in flows.keys() - unread.keys()]
        return merged(found), unread

    def _read_grown(self, flows: Mapping[str, str]) -> dict[str, ReplicatorError]:
        """Read what has grown of these claims topics, all of them together; why one of them could not be read.

        Whatever a topic's partitions say counts: lanes write to different ones.
        """
        counts = self._reader.partition_counts(flows)
        unread = {name: count for name, count in counts.items() if isinstance(count, ReplicatorError)}
        partitions = [
            Partition(name, number)
            for name, count in counts.items()
            if not isinstance(count, ReplicatorError)
            for number in range(count)
        ]
        there = frozenset(partitions)
        self._known = {at: known for at, known in self._known.items() if at in there or at.topic in unread}
        grown: dict[Partition, LogBounds] = {}
        for at, bounds in self._reader.bounds(partitions).items():
            if isinstance(bounds, ReplicatorError):
                unread.setdefault(at.topic, bounds)
            elif at not in self._known or self._known[at].bounds != bounds:
                grown[at] = bounds
        for some in _parts(grown):
            for at, records in self._reader.records(some).items():
                try:
                    origins = self._origins(flows[at.topic], at, records)
                except (NotAllowed, Retriable, Unreachable, Incident) as error:
                    unread.setdefault(at.topic, error)
                else:
                    self._known[at] = _Known(grown[at], origins)
        return unread

    def _origins(self, flow: str, at: Partition, records: list[KeyAndValue] | ReplicatorError) -> OriginsById:
        if isinstance(records, ReplicatorError):
            raise records
        try:
            return claimed_origins(flow, read_claims(records))
        except NewerFormat as error:
            raise Incident("newer_format", str(error), topic=at.topic) from error
        except NotOurs as error:
            raise Incident("claims_topic_unreadable", str(error), topic=at.topic) from error


def _parts(grown: Mapping[Partition, LogBounds]) -> Iterator[dict[Partition, LogBounds]]:
    """Yield parts of these that are read at the same time: as many as have some ten thousand offsets between their
    bounds.
    """
    part: dict[Partition, LogBounds] = {}
    for at, (low, high) in grown.items():
        if part and sum(end - start for start, end in part.values()) + high - low > READ_AT_ONCE:
            yield part
            part = {}
        part[at] = low, high
    if part:
        yield part
