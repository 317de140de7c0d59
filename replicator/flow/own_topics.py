"""Which target topics are copies that the flow makes, as their claims say. Pure.

Asked before rights or configs of a source topic are given to an existing target topic. One that somebody else has made
keeps its own: that the flow can't copy there (`target_not_empty`) only its lanes find out, after it was listed.
"""

from __future__ import annotations

from collections.abc import Mapping

from replicator.config import Flow
from replicator.config.routing import target_topic
from replicator.flow.listing import Listing
from replicator.flow.topic_rules import ListedTopic
from replicator.kafka.topic_questions import TopicInfo
from replicator.model.partition import Partition
from replicator.state.claims import Claims


def own_topics(
    flow: Flow, source_cluster: str, listing: Listing, targets: Mapping[str, ListedTopic], claims: Claims
) -> set[str]:
    """Return the target topics that are copies of the topics that the source has now.

    All partitions that both sides have must be claimed: of a topic that somebody else has written to those are claimed
    that were empty. `source_cluster`: its id.
    """
    found = set()
    for name, info in listing.topics.items():
        target = targets.get(target_topic(flow, name), ListedTopic()).info
        if target is not None and _is_claimed(source_cluster, info, target, claims):
            found.add(target.name)
    return found


def _is_claimed(source_cluster: str, source: TopicInfo, target: TopicInfo, claims: Claims) -> bool:
    for number in range(min(source.partitions, target.partitions)):
        claim = claims.claims.get(Partition(target.name, number))
        if claim is None or claim.target_topic_id != target.topic_id:
            return False
        if claim.contradicted(source_cluster, Partition(source.name, number), source.topic_id) is not None:
            return False
    return True
