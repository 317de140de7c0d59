"""The claims that flows have on a cluster from which another flow reads: where its source topics come from.

Used by `flow.topics` and by lanes (as `lane.ports.OriginsReader`). Whoever may not read them isn't kept from copying,
but is told.
"""

from __future__ import annotations

from collections.abc import Mapping

from replicator.config import Flow
from replicator.kafka.topic_reader import Record, TopicReader
from replicator.model import names
from replicator.model.errors import Incident, NotAllowed, ReplicatorError, Retriable, Unreachable
from replicator.model.partition import Partition
from replicator.state.claims import Claims, read_claims
from replicator.state.envelope import NewerFormat, NotOurs
from replicator.state.origins import FoundOrigins, origins_of


class SourceClaims:
    """Reads when it is asked. A partition is read again only when it has grown. Used from one thread; closing the
    reader is its owner's business."""

    def __init__(self, flow: Flow, reader: TopicReader) -> None:
        """`reader` is of the flow's source."""
        self._flow, self._reader = flow, reader
        self._read: dict[Partition, tuple[tuple[int, int], list[Record]]] = {}  # by its log's ends at that time

    def origins(self, topic_ids: Mapping[str, str]) -> FoundOrigins:
        """Where these topics of the source, with the ids that they have now, come from.

        Raises Unreachable, Retriable, NotAllowed if not even the source's topics can be listed.
        """
        listed = {name: flow for name in self._reader.names() if (flow := names.flow_of_claims(name)) is not None}
        # A topic that the user may not see isn't listed. Asked for by its name, this one tells whether that is so.
        own = names.claims_topic(self._flow.name)
        claims: dict[str, Claims] = {}
        unread: dict[str, ReplicatorError] = {}
        for topic, flow in sorted({own: self._flow.name, **listed}.items()):
            try:
                claims[flow] = self._claims(topic)
            except (NotAllowed, Retriable, Unreachable, Incident) as error:
                unread[topic] = error
        return FoundOrigins(origins_of(claims, topic_ids), unread)

    def _claims(self, topic: str) -> Claims:
        records: list[Record] = []
        for number in range(self._reader.partition_count(topic)):
            at = Partition(topic, number)
            ends, known = self._reader.bounds(at), self._read.get(at)
            if known is None or known[0] != ends:
                known = self._read[at] = ends, self._reader.whole(topic, [number])
            records += known[1]
        try:
            return read_claims(records)
        except NewerFormat as error:
            raise Incident("newer_format", str(error), topic=topic) from error
        except NotOurs as error:
            raise Incident("claims_topic_unreadable", str(error), topic=topic) from error
