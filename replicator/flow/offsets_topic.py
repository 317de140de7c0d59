"""Makes sure of the flow's map topic before its lanes start, and while they run. Called by `flow.setup`.

`inspect.status` asks it what `status` shows of the map.

Invariant: no record waits for the map. Where its topic can't be made or used the flow is copied without it, and
says so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import structlog

from replicator.config import Delivery, Flow
from replicator.incidents import tell_incident
from replicator.kafka.admin import TopicSpec
from replicator.kafka.topic_questions import TopicInfo
from replicator.model import names
from replicator.model.errors import Incident, NotAllowed, ReplicatorError, Retriable, Unreachable
from replicator.offset_map.topic import CONFIGS, INDEX_PARTITIONS, MAP_PARTITIONS, index_unfit, unfit

SEGMENT_BYTES = str(50 * 1024 * 1024)
"""Of the index: what was deleted of a log leaves the disk by whole segments. Some services allow no smaller ones."""


class MapTopics(Protocol):
    """What is asked of the flow's control plane."""

    def offsets_topic(self) -> TopicInfo | None:
        """Describe the map topic as it stands, with its configs; None where there is none."""

    def offsets_index_topic(self) -> TopicInfo | None:
        """Describe its index in the same way."""

    def create_map_topic(self, spec: TopicSpec) -> ReplicatorError | None:
        """Create it; the error of a cluster that refuses."""


def map_topic_of(flow: Flow) -> TopicSpec | None:
    """Return the spec of a flow's map topic; None where its delivery mode has no map: there records are no part of a
    transaction.
    """
    if flow.delivery is not Delivery.EXACTLY_ONCE:
        return None
    replication = flow.topic_configs.replication_factor
    return TopicSpec(names.offsets_topic(flow.name), MAP_PARTITIONS, replication, CONFIGS)


def index_topic_of(flow: Flow) -> TopicSpec | None:
    """Return the spec of the topic of the map's index; None where nothing is put into one. Groups need it: for them the
    map is read all the time."""
    spec = map_topic_of(flow)
    if spec is None or not (flow.consolidate_map or flow.groups.synced):
        return None
    name, configs = names.offsets_index_topic(flow.name), {**CONFIGS, "segment.bytes": SEGMENT_BYTES}
    return replace(spec, name=name, partitions=INDEX_PARTITIONS, configs=configs)


def check_index_topic(info: TopicInfo) -> None:
    """Raise Incident `map_topic_unfit` where the index's topic would lose pages, or not take them."""
    if why := index_unfit(info.partitions, info.configs):
        raise Incident("map_topic_unfit", why, topic=info.name)


def check_map_topic(info: TopicInfo) -> None:
    """Raise Incident `map_topic_unfit` where it would lose blocks, or not take them."""
    if why := unfit(info.partitions, info.configs):
        raise Incident("map_topic_unfit", why, topic=info.name)


class MapTopic:
    """The map topic of one flow, looked after by `flow.setup`: at the start, and whenever topics are listed."""

    def __init__(self, flow: Flow, plane: MapTopics, log: structlog.stdlib.BoundLogger) -> None:
        self._flow, self._plane, self._log = flow, plane, log
        self._spec = map_topic_of(flow)
        self._told = ""
        self.topic_id = ""  # as it was found fit last; empty: it can't be used

    def prepare(self) -> None:
        """Make sure of it, and tell once what keeps lanes from writing to it."""
        if self._spec is None:
            return
        self.topic_id = ""
        try:
            self.topic_id = self._made(self._spec).topic_id
        except (Incident, NotAllowed, Retriable, Unreachable) as error:
            if self._told == str(error):
                return
            self._told = str(error)
            if isinstance(error, Incident):
                tell_incident(self._log, error)
            else:
                self._log.warning("map_not_written", topic=self._spec.name, reason=str(error))
        else:
            self._told = ""

    def _made(self, spec: TopicSpec) -> TopicInfo:
        found = self._plane.offsets_topic()
        if found is None:
            refused = self._plane.create_map_topic(spec)
            if refused is not None:
                raise refused
            found = self._plane.offsets_topic()
        if found is None:
            raise Retriable(f"cluster {self._flow.target.name!r} doesn't show {spec.name} yet")
        check_map_topic(found)
        return found


def map_note(flow: Flow, plane: MapTopics) -> str:
    """Say why no offset map can be written now; empty if one can be, or the flow has none. Changes nothing."""
    spec = map_topic_of(flow)
    if spec is None:
        return ""
    try:
        found = plane.offsets_topic()
        if found is None:
            return f"no offset map is written: {spec.name} doesn't exist on cluster {flow.target.name!r}"
        check_map_topic(found)
    except (Incident, NotAllowed, Retriable, Unreachable) as error:
        return f"no offset map is written: {error}"
    if index_topic_of(flow) is None:
        return ""
    try:
        index = plane.offsets_index_topic()
        if index is not None:
            check_index_topic(index)
    except (Incident, NotAllowed, Retriable, Unreachable) as error:
        return f"the offset map isn't consolidated: {error}"
    return ""
