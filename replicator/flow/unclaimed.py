"""Whether a target topic that the flow hasn't claimed may grow with its source all the same. Asked by `flow.setup` and
by `inspect`, before topics are decided on.

A topic is claimed by its first transaction. Until then, after a crash between the opening and that, or while all of its
partitions wait, its source may grow, and the flow would take its own topic for somebody else's.

What tells: it has all partitions that its source had when the flow listed that first, so the flow has made it, or would
have claimed it as it was; and it never held a record, so no key changes its partition. One that was too small from the
start, or that anybody has written to, stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping

from replicator.config import Flow
from replicator.config.routing import target_topic
from replicator.flow.listing import Listing
from replicator.flow.topic_rules import ListedTopic, needs_claims
from replicator.lane.ports import ClusterQuestions, LogEndsByPartition
from replicator.model.errors import ReplicatorError
from replicator.model.partition import Partition
from replicator.state.claims import Claims


def unclaimed(
    flow: Flow,
    listing: Listing,
    targets: Mapping[str, ListedTopic],
    claims: Claims,
    first: Mapping[str, int],
    logs: ClusterQuestions,
) -> dict[str, str]:
    """Say which topics too small for their sources may grow without a claim, by target topic: empty, or why that can't
    be told just now.

    Args:
        first: how many partitions source topics had when the flow listed them first.
        logs: asks the target.
    """
    asked: dict[str, int] = {}
    for name, info in listing.topics.items():
        target = targets.get(target_topic(flow, name), ListedTopic())
        if name in listing.conflicts or target.info is None or not needs_claims(info, target):
            continue
        if not claims.of_topic(target.info.name) and 0 < first.get(name, 0) <= target.info.partitions:
            asked[target.info.name] = target.info.partitions
    ends = logs.log_ends([Partition(name, number) for name, count in asked.items() for number in range(count)])
    found = {name: _unwritten(name, count, ends) for name, count in asked.items()}
    return {name: why for name, why in found.items() if why is not None}


def _unwritten(topic: str, partitions: int, ends: LogEndsByPartition) -> str | None:
    """Return an empty text if a topic never held a record, None if it did; else why it isn't known of all
    partitions.
    """
    answers = [ends[Partition(topic, number)] for number in range(partitions)]
    if any(answer.end > 0 for answer in answers if not isinstance(answer, ReplicatorError)):
        return None
    return next((str(answer) for answer in answers if isinstance(answer, ReplicatorError)), "")
