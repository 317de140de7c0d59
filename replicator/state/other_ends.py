"""What the flow notes of source partitions of which the ends' group has no offset, as records of its groups topic.
Pure.

The target takes no offset for a partition that it doesn't have: one that was added at the source, or a topic that the
flow hasn't created, or may not. Whoever fails over must hear of it all the same. `ends/TOPIC` has those of one source
topic; it is deleted once there are none. Older versions of the program pass over these records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from replicator.model.partition import Partition
from replicator.state.envelope import NewerFormat, unwrap, wrap

OTHER_ENDS = "other_ends"
PREFIX = b"ends/"


class OtherEnds:
    """All of a flow's."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[int, int | None]] = {}

    @classmethod
    def read(cls, records: Mapping[bytes | None, bytes | None]) -> OtherEnds:
        """Take the last record of each key. What can't be read says nothing. Raises NewerFormat."""
        found = cls()
        for key, value in records.items():
            if key is None or not key.startswith(PREFIX) or not value:
                continue
            try:
                body = unwrap(key, value, frozenset({OTHER_ENDS}))
                if body is not None:
                    ends = {int(at): None if end is None else int(end) for at, end in body["ends"].items()}
                    found._topics[str(body["topic"])] = ends
            except NewerFormat:
                raise
            except (AttributeError, KeyError, TypeError, ValueError):  # NotOurs is one
                continue
        return found

    def ends(self) -> dict[Partition, int | None]:
        """Return where these partitions end; None: that isn't known."""
        return {Partition(topic, at): end for topic, ends in self._topics.items() for at, end in ends.items()}

    def write(self, ends: Mapping[Partition, int | None]) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield the records in which these take the place of what there was."""
        topics: dict[str, dict[int, int | None]] = {topic: {} for topic in self._topics}
        for at, end in sorted(ends.items(), key=lambda it: it[0]):
            topics.setdefault(at.topic, {})[at.partition] = end
        changed = {topic: of_it for topic, of_it in topics.items() if of_it != self._topics.get(topic)}
        self._topics = {topic: of_it for topic, of_it in topics.items() if of_it}
        for topic, of_it in changed.items():
            content = {"topic": topic, "ends": of_it}
            yield PREFIX + topic.encode(), wrap(OTHER_ENDS, content, must_understand=False) if of_it else None
