"""What of a group's offsets goes into one request where all of it is too much. Pure. Used by `group_questions`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from replicator.groups.decision import OffsetToCommit

COMMIT_BYTES_MAX = 256 * 1024
"""Of one commit in the coordinator's log: it is a batch there, and brokers take 1 MiB of one by default
(`message.max.bytes`)."""
_AROUND_BYTES = 96  # each offset is a record, with the names of group and topic
_CHARACTER_BYTES_MAX = 4

OfGroup = Mapping[str, Mapping[int, OffsetToCommit]]
"""By topic and partition."""


def commit_pieces(group: str, offsets: OfGroup, bytes_max: int = COMMIT_BYTES_MAX) -> Iterator[OfGroup]:
    """Yield what of a group's offsets is committed with one request, in their order; one at least."""
    around = {topic: _AROUND_BYTES + len(group.encode()) + len(topic.encode()) for topic in offsets}
    most = sum(
        around[topic] * len(values) + _CHARACTER_BYTES_MAX * sum(len(it.metadata) for it in values.values())
        for topic, values in offsets.items()
    )
    if most <= bytes_max:
        yield offsets
        return
    piece, size = dict[str, dict[int, OffsetToCommit]](), 0
    for topic, values in offsets.items():
        for number, it in values.items():
            bytes_ = around[topic] + len(it.metadata.encode())
            if size and size + bytes_ > bytes_max:
                yield piece
                piece, size = {}, 0
            piece.setdefault(topic, {})[number] = it
            size += bytes_
    yield piece


def divided(wanted: Mapping[str, Collection[int]], pieces: int) -> Iterator[dict[str, list[int]]]:
    """Yield partitions by topic, in so many pieces at most."""
    all_ = [(topic, number) for topic, numbers in wanted.items() for number in numbers]
    size = max(1, -(-len(all_) // pieces))
    for at in range(0, len(all_), size):
        piece = dict[str, list[int]]()
        for topic, number in all_[at : at + size]:
            piece.setdefault(topic, []).append(number)
        yield piece
