"""Topic configs about timestamps, and the incident of a target topic that replaces them. Pure.

Used by `flow.topic_rules`, which reads configs, and by `lane.transaction`, which sees acknowledgements.
"""

from __future__ import annotations

from replicator.model.errors import Incident

TIMESTAMP_TYPE = "message.timestamp.type"
LOG_APPEND_TIME = "LogAppendTime"


def target_rewrites_timestamps(cluster: str, target_topic: str, source_topic: str) -> Incident:
    """The incident of a source topic whose target topic stamps records with the time of their append.

    Configs and acknowledgements show it in the same words, so that it is logged once.
    """
    why = f"topic {target_topic!r} of cluster {cluster!r} has {TIMESTAMP_TYPE}={LOG_APPEND_TIME}"
    return Incident("target_rewrites_timestamps", why, topic=source_topic)
