"""Gives the readers of source topics the same rights on the target topics, where a flow has `sync_acls`.

`flow.topic_sync` notes at each listing which topics are copied; `flow.discovery` has the ACLs created afterwards, so
that no cluster that is slow to answer holds back a lane. What is there already stays, whoever has created it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import groupby
from typing import Protocol

import structlog

from replicator.flow.acl_rules import lockouts, wanted_acls
from replicator.model.acls import TopicAcl
from replicator.model.errors import Incident, NotAllowed, ReplicatorError, Retriable, Unreachable


class AclTopics(Protocol):
    """As far as `flow.topics.ControlPlane` is asked for it."""

    def acls(self) -> tuple[Collection[TopicAcl], Collection[TopicAcl]]:
        """Return all ACLs of topics, of the source and of the target."""
        ...

    def create_acls(self, wanted: Collection[TopicAcl]) -> dict[TopicAcl, ReplicatorError | None]:
        """Create ACLs on the target; why not, by ACL."""
        ...


class AclSync:
    """Creates what is missing. Used from the thread of discovery, or before it runs."""

    def __init__(self, plane: AclTopics, log: structlog.stdlib.BoundLogger, own: str = "") -> None:
        """`own`: see `wanted_acls`."""
        self._plane, self._log, self._own = plane, log, own
        self._topics: dict[str, str] = {}
        self._refused = ""  # as it was told
        self._wanted: frozenset[TopicAcl] = frozenset()

    def note(self, topics: Mapping[str, str]) -> None:
        """Take note of which topics are copied: the target topic of each source topic."""
        self._topics = dict(topics)

    def create(self, held: Mapping[str, str]) -> None:
        """Create the ACLs that copies lack. Raises nothing: why one isn't created is told, once for each reason, and it
        is tried again the next time. `held`: target topics that get none, and why."""
        topics = {name: copy for name, copy in self._topics.items() if copy not in held}
        try:
            source, target = self._plane.acls()
            wanted = wanted_acls(source, topics, self._own)
            answers = self._plane.create_acls(wanted - frozenset(target))
        except (Incident, NotAllowed, Retriable, Unreachable) as error:
            self._tell_refused(str(error))
            return
        self._tell_left(self._wanted & frozenset(target) - wanted, topics.values())
        self._wanted = wanted
        created = sorted(acl for acl, refused in answers.items() if refused is None)
        for topic, of_topic in groupby(created, key=lambda acl: acl.topic):
            self._log.info("acls_created", topic=topic, acls=_said(of_topic))
        refused = {str(error) for error in answers.values() if error is not None}
        lacking = wanted_acls(source, self._topics, self._own) - wanted - frozenset(target)
        refused |= {f"{topic}: {held[topic]}" for topic in {acl.topic for acl in lacking} & held.keys()}
        self._tell_refused("; ".join(sorted(refused.union(lockouts(source, topics, self._own)))))

    def _tell_refused(self, reason: str) -> None:
        if reason and reason != self._refused:
            self._log.warning("acls_not_created", reason=reason)
        self._refused = reason

    def _tell_left(self, left: frozenset[TopicAcl], topics: Collection[str]) -> None:
        """Tell of ACLs that the source had, as this process saw, and has no more: the target has them still."""
        gone = {acl for acl in left if acl.topic in topics}
        for topic, of_topic in groupby(sorted(gone), key=lambda acl: acl.topic):
            self._log.warning("acls_left", topic=topic, acls=_said(of_topic))


def principal(properties: Mapping[str, str]) -> str:
    """Return as whom a cluster knows the user that these client properties log in; empty where only the cluster knows
    that, such as of a certificate, a ticket or a token."""
    name = properties.get("sasl.username", "")
    return f"User:{name}" if name else ""


def _said(acls: Iterable[TopicAcl]) -> str:
    return ", ".join(acl.said() for acl in acls)
