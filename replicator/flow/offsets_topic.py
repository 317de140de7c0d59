"""Makes sure of the flow's map topic before its lanes start. Called by `flow.setup`.

Invariant: no record waits for the map. Where its topic can't be made or used the flow is copied without it, and
says so.
"""

from __future__ import annotations

from typing import Protocol

import structlog

from replicator.config import Delivery, Flow
from replicator.incidents import tell_incident
from replicator.kafka.admin import TopicSpec
from replicator.kafka.topic_questions import TopicInfo
from replicator.model import names
from replicator.model.errors import Incident, NotAllowed, ReplicatorError, Retriable, Unreachable
from replicator.offset_map.topic import CONFIGS, MAP_PARTITIONS, unfit


class MapTopics(Protocol):
    """What is asked of the flow's control plane."""

    def offsets_topic(self) -> TopicInfo | None:
        """The map topic as it stands, with its configs; None where there is none."""

    def create_map_topic(self, spec: TopicSpec) -> ReplicatorError | None:
        """Create it; the error of a cluster that refuses."""


def map_topic_of(flow: Flow) -> TopicSpec | None:
    """The map topic of a flow; None where its delivery mode has no map: there records are no part of a transaction."""
    if flow.delivery is not Delivery.EXACTLY_ONCE:
        return None
    replication = flow.topic_configs.replication_factor
    return TopicSpec(names.offsets_topic(flow.name), MAP_PARTITIONS, replication, CONFIGS)


def check_map_topic(info: TopicInfo) -> None:
    """Raise Incident `map_topic_unfit` where it would lose blocks, or not take them."""
    if why := unfit(info.partitions, info.configs):
        raise Incident("map_topic_unfit", why, topic=info.name)


def prepare_map(flow: Flow, plane: MapTopics, log: structlog.stdlib.BoundLogger) -> bool:
    """Make sure of the map topic; whether lanes can write the map."""
    spec = map_topic_of(flow)
    if spec is None:
        return False
    try:
        found = plane.offsets_topic()
        if found is None:
            refused = plane.create_map_topic(spec)
            if refused is not None:
                raise refused
            found = plane.offsets_topic()
        if found is None:
            raise Retriable(f"cluster {flow.target.name!r} doesn't show {spec.name} yet")
        check_map_topic(found)
    except Incident as incident:
        tell_incident(log, incident)
    except (NotAllowed, Retriable, Unreachable) as error:
        log.warning("map_not_written", topic=spec.name, reason=str(error))
    else:
        return True
    return False
