"""Keeps the configs of target topics as their source topics have them, where a flow has `topic_configs.sync`.

`flow.topic_sync` notes at each listing what differs, as `topic_rules.changed_configs` says; `flow.discovery` has it set
afterwards, so that no cluster that is slow to change configs holds back a lane.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

import structlog

from replicator.flow.topic_rules import ConfigChanges
from replicator.model.errors import Incident, NotAllowed, ReplicatorError, Retriable, Unreachable


class TopicConfigs(Protocol):
    """As far as `flow.topics.ControlPlane` is asked for it."""

    def set_configs(self, wanted: Mapping[str, Mapping[str, str]]) -> dict[str, ReplicatorError | None]:
        """Set configs of these target topics; why not, by name."""
        ...


class ConfigSync:
    """Sets what was noted last. Used from the thread of discovery, or before it runs."""

    def __init__(self, plane: TopicConfigs, log: structlog.stdlib.BoundLogger) -> None:
        self._plane, self._log = plane, log
        self._wanted: tuple[ConfigChanges, ...] = ()
        self._refused: dict[str, str] = {}  # by topic, as it was told

    def note(self, changes: Collection[ConfigChanges]) -> None:
        """Take note of what differs now; whatever was noted before doesn't count any more."""
        self._wanted = tuple(changes)

    def set(self, held: Mapping[str, str]) -> None:
        """Set what differs. Raises nothing: a topic that keeps other configs is told, once for each reason, and is
        tried again when it is noted again. `held`: topics that keep theirs, and why."""
        noted, self._wanted = self._wanted, ()
        names = {changes.topic for changes in noted}
        self._refused = {topic: reason for topic, reason in self._refused.items() if topic in names}
        wanted = [changes for changes in noted if changes.topic not in held]
        for changes in noted:
            if changes.topic in held:
                self._tell_refused(changes, held[changes.topic])
        for changes, error in zip(wanted, self._answers(wanted), strict=True):
            if error is not None:
                self._tell_refused(changes, str(error))
                continue
            self._refused.pop(changes.topic, None)
            self._log.info("topic_configs_set", topic=changes.topic, configs=changes.said())

    def _answers(self, wanted: Collection[ConfigChanges]) -> list[ReplicatorError | None]:
        if not wanted:
            return []
        try:
            answers = self._plane.set_configs({changes.topic: changes.after for changes in wanted})
        except (Incident, NotAllowed, Retriable, Unreachable) as error:
            return [error] * len(wanted)
        return [answers[changes.topic] for changes in wanted]

    def _tell_refused(self, changes: ConfigChanges, reason: str) -> None:
        if self._refused.get(changes.topic) != reason:
            self._log.warning("topic_configs_not_set", topic=changes.topic, configs=changes.said(), reason=reason)
        self._refused[changes.topic] = reason
