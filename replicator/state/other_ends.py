"""What the flow notes of source partitions of which the ends' group has no offset, as records of its groups topic.
Pure.

The target takes no offset for a partition that it doesn't have: one that was added at the source, or a topic that the
flow hasn't created, or may not. Whoever fails over must hear of it all the same. `ends/TOPIC` has those of one source
topic; it is deleted once there are none. `ends_seen` says when they were seen last, of a target that has none of the
flow's partitions: else an offset says so. Older versions of the program pass over these records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from replicator.model.partition import Partition
from replicator.state.envelope import NewerFormat, unwrap, wrap

OTHER_ENDS, ENDS_SEEN = "other_ends", "ends_seen"
PREFIX, SEEN_KEY = b"ends/", b"ends_seen"


class OtherEnds:
    """All of a flow's. `seen_ms`: when the ends were seen last, as far as no offset says so; 0: never."""

    def __init__(self) -> None:
        self.seen_ms = 0
        self._topics: dict[str, dict[int, int | None]] = {}

    @classmethod
    def read(cls, records: Mapping[bytes | None, bytes | None]) -> OtherEnds:
        """Take the last record of each key. What can't be read says nothing. Raises NewerFormat."""
        found = cls()
        for key, value in records.items():
            if key is None or not (key.startswith(PREFIX) or key == SEEN_KEY) or not value:
                continue
            try:
                body = unwrap(key, value, frozenset({ENDS_SEEN if key == SEEN_KEY else OTHER_ENDS}))
                if body is not None and key == SEEN_KEY:
                    found.seen_ms = int(body["seen_ms"])
                elif body is not None:
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

    def write_seen(self, seen_ms: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield the record in which this time takes the place of the one before."""
        self.seen_ms = seen_ms
        yield SEEN_KEY, wrap(ENDS_SEEN, {"seen_ms": seen_ms}, must_understand=False)

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
