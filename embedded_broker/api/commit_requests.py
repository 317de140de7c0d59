"""What OffsetCommit and TxnOffsetCommit have in common: partitions in, an error code for each of them out.

Others have their turn meanwhile: a request may have tens of thousands of partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Parts
from embedded_broker.coordinators.offsets import Committer, PartitionCommit, Results
from embedded_broker.metadata.topics import Topic
from embedded_broker.runtime.fair_share import Share
from embedded_broker.state.transactions import TopicPartition

PREPARED_STEPS, WRITTEN_STEPS = 10, 5


class CommittedTopic(NamedTuple):
    """A topic that a request names."""

    name: str
    topic: Topic | None
    """None: there is none."""
    partitions: Sequence[Any]
    """What the request has for them."""


async def prepared(
    broker: Parts, share: Share, who: Committer, asked: Iterable[CommittedTopic], has_epochs: bool
) -> tuple[Results, list[PartitionCommit]]:
    """Return the errors of partitions that don't exist, and the commits of the others. Of a partition that is named
    again the last counts.

    Args:
        broker: with the topics.
        share: of the request.
        who: commits.
        asked: topics that are there, or named; looked up when the request arrived, since another one of the same name
            may be created while others have their turn.
        has_epochs: whether that has leader epochs.
    """
    wanted: dict[TopicPartition, tuple[Topic | None, Any]] = {}
    for name, topic, partitions in asked:
        for each in partitions:
            wanted[name, each.partition_index] = topic, each
            await share.spent(1)
    results: Results = {}
    commits: list[PartitionCommit] = []
    for partition, (topic, each) in wanted.items():
        await share.spent(PREPARED_STEPS)
        if topic is None or topic.partition(partition[1]) is None:
            results[partition] = ErrorCode.unknown_topic_or_partition
            continue
        leader_epoch = each.committed_leader_epoch if has_epochs else -1
        said = each.committed_offset, leader_epoch, each.committed_metadata or ""
        commits.append(broker.groups.offsets.prepared(who, partition, *said, topic.topic_id))
    await share.spent(len(commits) * WRITTEN_STEPS)
    return results, commits


async def answered(share: Share, name: str | None, partitions: Sequence[Any], results: Results) -> list[dict[str, Any]]:
    """Return the answer for what a request has for a topic's partitions; None: there is no topic with its id."""
    answers: list[dict[str, Any]] = []
    for each in partitions:
        index = each.partition_index
        error_code = ErrorCode.unknown_topic_id if name is None else results[name, index]
        answers.append({"partition_index": index, "error_code": error_code})
        await share.spent(1)
    return answers
