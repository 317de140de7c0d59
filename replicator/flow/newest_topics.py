"""Asks a cluster for a flow's own topics. Used by `flow.topics`, and by `flow.wiring` for the control topic's watch.

What operators set, and whether the generation is over, is learned by where the control topic ends. A broker that is
cut off from the others would tell for ever that nothing is new.
"""

from __future__ import annotations

from replicator.config import Cluster, Flow
from replicator.kafka.topic_questions import TopicQuestions
from replicator.wire.topics import topic_questions


def newest_topics(flow: Flow, cluster: Cluster, role: str = "reader") -> TopicQuestions:
    """Ask another broker each half discovery interval, and take no old leader's word (`newest_only`). `role` is the end
    of the client's id."""
    client_id, limits = f"eos-replicate.{flow.name}.{role}", flow.limits
    kept_s = limits.discovery_interval_ms / 2000
    return topic_questions(cluster, client_id, limits.request_timeout_ms / 1000, kept_s=kept_s, newest_only=True)
