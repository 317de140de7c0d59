"""Gives target topics what their source topics have: configs, where a flow has `topic_configs.sync`, and rights of
reading, where it has `sync_acls`.

Invariant: only the flow's own topics get them, which this process has created or whose claims say so (`own_topics`).
Others would be opened to readers whom their owner hasn't let in, and lose records to a retention that isn't theirs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

import structlog

from replicator.config import Flow
from replicator.flow.acl_sync import AclSync, AclTopics, principal
from replicator.flow.config_sync import ConfigSync, TopicConfigs
from replicator.flow.listing import Listing
from replicator.flow.own_topics import own_topics
from replicator.flow.topic_rules import ConfigChanges, ListedTopic
from replicator.model.errors import Incident, NotAllowed, Retriable, Unreachable
from replicator.state.claims import Claims
from replicator.state.flow_state import FlowState

NOT_OWN = "not all of its partitions are claimed as copies of this source topic's"


class SyncedTopics(TopicConfigs, AclTopics, Protocol):
    """As far as `flow.topics.ControlPlane` is asked for it."""

    @property
    def state(self) -> FlowState:
        """What the target remembers of the flow."""
        ...


class TopicSync:
    """Used from the thread of discovery, or before it runs."""

    def __init__(self, flow: Flow, plane: SyncedTopics, log: structlog.stdlib.BoundLogger) -> None:
        self._flow, self._plane = flow, plane
        self._configs = ConfigSync(plane, log)
        self._acls = AclSync(plane, log, principal(flow.target.properties))
        self._created: set[str] = set()  # ids
        self._claims = Claims({}, ())  # as they were read last
        self._listing, self._targets = Listing({}), dict[str, ListedTopic]()
        self._named: set[str] = set()  # target topics that would get something

    def note_created(self, topics: Iterable[ListedTopic]) -> None:
        """Take note of target topics that the flow has just created."""
        self._created |= {it.info.topic_id for it in topics if it.info is not None and it.info.topic_id}

    def note(
        self,
        listing: Listing,
        targets: Mapping[str, ListedTopic],
        changes: Collection[ConfigChanges],
        copied: Mapping[str, str],
    ) -> None:
        """Take note of what the last listing found.

        Args:
            targets: topics of the target by name.
            changes: configs that differ.
            copied: the target topic of each source topic of which something is copied.
        """
        self._listing, self._targets = listing, dict(targets)
        self._configs.note(changes)
        self._acls.note(copied)
        self._named = {it.topic for it in changes} | (set(copied.values()) if self._flow.sync_acls else set())

    def sync(self, source_cluster: str) -> None:
        """Set the configs and create the ACLs that the flow's own topics lack. Raises nothing: why a topic doesn't get
        them is told, and it is tried again after the next listing."""
        held = self._held(source_cluster)
        self._configs.set(held)
        if self._flow.sync_acls:
            self._acls.create(held)

    def _held(self, source_cluster: str) -> dict[str, str]:
        """Say which topics get nothing, and why. Claims are read again only where those that are known don't do: a
        topic stays the flow's own for as long as both sides keep their ids."""
        others, why = self._others(source_cluster), NOT_OWN
        if not others:
            return {}
        try:
            # without those that an open transaction hides: nothing is held up until it ends
            self._claims = self._plane.state.both_if_any()[1]() or Claims({}, ())
        except (Incident, NotAllowed, Retriable, Unreachable) as error:
            why = str(error)
        return dict.fromkeys(self._others(source_cluster), why)

    def _others(self, source_cluster: str) -> set[str]:
        own = own_topics(self._flow, source_cluster, self._listing, self._targets, self._claims)
        return {name for name in self._named - own if not self._is_created(name)}

    def _is_created(self, target_topic: str) -> bool:
        info = self._targets.get(target_topic, ListedTopic()).info
        return info is not None and info.topic_id in self._created
