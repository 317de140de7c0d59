"""What OffsetCommit and TxnOffsetCommit have in common: partitions in, an error code for each of them out.

Others have their turn meanwhile: a request may have tens of thousands of partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Parts
from embedded_broker.coordinators.offsets import Committer, PartitionCommit, Results
from embedded_broker.runtime.fair_share import Share
from embedded_broker.state.transactions import TopicPartition

PREPARED_STEPS, WRITTEN_STEPS = 10, 5


async def prepared(
    broker: Parts, share: Share, who: Committer, topics: Iterable[tuple[str, Sequence[Any]]], has_epochs: bool
) -> tuple[Results, list[PartitionCommit]]:
    """Return the errors of partitions that don't exist, and the commits of the others. Of a partition that is named
    again the last counts.

    Args:
        broker: with the topics.
        share: of the request.
        who: commits.
        topics: names, and what the request has for their partitions.
        has_epochs: whether that has leader epochs.
    """
    wanted: dict[TopicPartition, Any] = {}
    for name, partitions in topics:
        for each in partitions:
            wanted[name, each.partition_index] = each
            await share.spent(1)
    results: Results = {}
    commits: list[PartitionCommit] = []
    for partition, each in wanted.items():
        await share.spent(PREPARED_STEPS)
        if broker.topics.partition(*partition) is None:
            results[partition] = ErrorCode.unknown_topic_or_partition
            continue
        leader_epoch = each.committed_leader_epoch if has_epochs else -1
        said = each.committed_offset, leader_epoch, each.committed_metadata or ""
        commits.append(broker.groups.offsets.prepared(who, partition, *said))
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
