"""What of tiered source topics (KIP-405) is in remote storage only, for `inspect.planning`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing

from replicator.config import Flow
from replicator.flow.topics import topics_of
from replicator.kafka.offset_questions import EARLIEST, EARLIEST_LOCAL, ListedOffset
from replicator.kafka.topic_questions import TopicInfo, within
from replicator.model.counting import counted
from replicator.model.errors import ReplicatorError
from replicator.model.partition import Partition

_TIERED = "remote.storage.enable"
_ASK_S = 5.0


def tiered_warnings(
    flow: Flow, topics: Mapping[str, TopicInfo], stored: Mapping[Partition, int | None]
) -> Iterator[str]:
    """Ask the leaders of tiered topics, and yield for each topic how much is still to be read from remote storage. No
    cluster is asked where none is tiered.

    Args:
        topics: of the source, with their configs.
        stored: where partitions that have a position go on.
    """
    tiered = [it for it in topics.values() if it.configs.get(_TIERED, "").lower() == "true"]
    asked = [Partition(it.name, number) for it in tiered for number in range(it.partitions)]
    if not asked:
        return
    with closing(topics_of(flow, flow.source, "plan")) as questions:
        starts, locals_ = within(questions.list_offsets(asked, (EARLIEST, EARLIEST_LOCAL)), _ASK_S)
    for topic in tiered:
        remote, unknown = 0, list[ReplicatorError]()
        for at in (Partition(topic.name, number) for number in range(topic.partitions)):
            start, local = starts[at], locals_[at]
            if isinstance(start, ListedOffset) and isinstance(local, ListedOffset):
                remote += max(0, local.offset - max(start.offset, stored.get(at) or 0))
            else:
                unknown += [next(it for it in (start, local) if isinstance(it, ReplicatorError))]
        yield from _said(topic.name, remote, unknown)


def _said(topic: str, remote: int, unknown: list[ReplicatorError]) -> Iterator[str]:
    if remote:
        yield (
            f"topic {topic!r} is tiered ({_TIERED}): {counted(remote, 'offset')} still to be copied, in remote "
            "storage only; a broker reads them slower, and may answer with nothing for a while"
        )
    if unknown:
        yield (
            f"topic {topic!r} is tiered ({_TIERED}): how much is only in remote storage is not known of "
            f"{counted(len(unknown), 'partition')}: {unknown[0]}"
        )
