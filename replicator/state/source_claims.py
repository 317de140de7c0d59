"""The claims that flows have on a cluster from which another flow reads: where its source topics come from.

Used by `flow.topics` and, for lanes, by `flow.shared_origins`. Whoever may not read them isn't kept from copying,
but is told.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from replicator.config import Flow
from replicator.kafka.topic_reader import TopicReader
from replicator.model import names
from replicator.model.errors import Incident, NotAllowed, ReplicatorError, Retriable, Unreachable
from replicator.model.partition import Partition
from replicator.state.claims import read_claims
from replicator.state.envelope import NewerFormat, NotOurs
from replicator.state.origins import FoundOrigins, OriginsById, claimed_origins, merged, of_topics


class SourceClaims:
    """Reads when it is asked. A partition is read again only when it has grown. Used from one thread; closing the
    reader is its owner's business."""

    def __init__(self, flow: Flow, reader: TopicReader, listed: Callable[[], Collection[str]] | None = None) -> None:
        """`reader` is of the flow's source; `listed` names its topics, where they were just listed anyway."""
        self._flow, self._reader = flow, reader
        self._names = listed or reader.names
        self._known: dict[Partition, tuple[tuple[int, int], OriginsById]] = {}  # with its log's ends at that time

    def origins(self, topic_ids: Mapping[str, str]) -> FoundOrigins:
        """Where these topics of the source, with the ids that they have now, come from. Raises as `read`."""
        found, unread = self.read()
        return FoundOrigins(of_topics(found, topic_ids), unread)

    def read(self) -> tuple[OriginsById, dict[str, ReplicatorError]]:
        """Where all topics of the source come from; why a claims topic could not be read, by its name.

        Raises Unreachable, Retriable, NotAllowed if not even the source's topics can be listed.
        """
        listed = {name: flow for name in self._names() if (flow := names.flow_of_claims(name)) is not None}
        # A topic that the user may not see isn't listed. Asked for by its name, this one tells whether that is so.
        own = names.claims_topic(self._flow.name)
        found: list[OriginsById] = []
        unread: dict[str, ReplicatorError] = {}
        for topic, flow in sorted({own: self._flow.name, **listed}.items()):
            try:
                found += self._topic(flow, topic)
            except (NotAllowed, Retriable, Unreachable, Incident) as error:
                unread[topic] = error
        return merged(found), unread

    def _topic(self, flow: str, topic: str) -> list[OriginsById]:
        """By partition: lanes write to different ones, and what any of them says of a topic counts."""
        found: list[OriginsById] = []
        partitions = [Partition(topic, number) for number in range(self._reader.partition_count(topic))]
        for at, ends in self._reader.bounds(partitions).items():
            known = self._known.get(at)
            if known is None or known[0] != ends:
                known = self._known[at] = ends, self._partition(flow, topic, at.partition)
            found.append(known[1])
        return found

    def _partition(self, flow: str, topic: str, number: int) -> OriginsById:
        try:
            return claimed_origins(flow, read_claims(self._reader.whole(topic, [number])))
        except NewerFormat as error:
            raise Incident("newer_format", str(error), topic=topic) from error
        except NotOurs as error:
            raise Incident("claims_topic_unreadable", str(error), topic=topic) from error
