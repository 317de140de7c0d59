"""Which target topics a running flow would give configs and rights of its source topics. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from replicator.config import Flow
from replicator.config.routing import target_topic
from replicator.flow.listing import Listing
from replicator.flow.own_topics import own_topics
from replicator.flow.topic_rules import ListedTopic
from replicator.inspect.expected_starts import ExpectedStarts
from replicator.state.claims import Claims


def synced_topics(
    flow: Flow,
    source_cluster: str,
    listing: Listing,
    targets: Mapping[str, ListedTopic],
    claims: Claims,
    expected: ExpectedStarts,
) -> set[str]:
    """Return the source topics whose target topics are the flow's own, or will be: it creates them, or claims them
    first, as far as `expected` says that nothing stops it there."""
    own = own_topics(flow, source_cluster, listing, targets, claims)
    stopped = {at.topic for at, it in expected.items() if it.decision.stopped is not None}
    named = {name: target_topic(flow, name) for name in listing.topics}
    return {name for name, to in named.items() if to in own or (name not in stopped and not claims.of_topic(to))}
