"""Enforces ACLs: removes from a request what its client isn't authorized to do, and adds the errors to the response.

Called by `Server` around every handler when the authorizer is on. Three handlers check rights by themselves: Fetch,
because fetch sessions outlive requests, ConsumerGroupHeartbeat, because the group resolves a member's pattern, and
DescribeTopicPartitions, whose limit and cursor count what may be seen.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from embedded_broker.metadata.topic_names import NO_ID
from embedded_broker.metadata.topics import Topics
from embedded_broker.security import rules_admin, rules_data
from embedded_broker.security.acls import Operation, Resource
from embedded_broker.security.authorizer import Authorizer
from embedded_broker.security.rules import Denied, Merge, Rights, Rule
from embedded_broker.security.session import ClientSession
from embedded_broker.wire.responses import Answer, Fields, Later

RULES: Mapping[str, tuple[Rule, ...]] = {**rules_data.RULES, **rules_admin.RULES}
"""By kio's name of the API. An API without rules is refused; a test checks that there is none."""


class NoRule(Exception):
    """No rule says which rights this API needs."""


class Unanswerable(Exception):
    """A request without a response (Produce with acks=0) is refused: the connection must be closed instead."""


@dataclass(frozen=True, slots=True)
class ClientRights:
    """See `rules.Rights`."""

    authorizer: Authorizer
    session: ClientSession
    topics: Topics
    creates_topics: bool
    """Whether Metadata creates topics (`auto.create.topics.enable`)."""

    def may(self, operation: Operation, resource: Resource, name: str) -> bool:
        """See `rules.Rights`."""
        return self.authorizer.may(self.session, operation, resource, name)

    def may_with_some(self, operation: Operation, resource: Resource) -> bool:
        """See `rules.Rights`."""
        return self.authorizer.may_with_some(self.session, operation, resource)

    def topic_name(self, item: Any) -> str | None:
        """See `rules.Rights`."""
        topic_id = getattr(item, "topic_id", None)
        if topic_id not in (None, NO_ID):
            topic = self.topics.by_id(topic_id)
            return None if topic is None else topic.name
        name = getattr(item, "name", getattr(item, "topic", None))
        return None if name is None else str(name)

    def creates_topic(self, name: str) -> bool:
        """See `rules.Rights`."""
        return self.creates_topics and self.topics.get(name) is None


async def enforce(rights: Rights, name: str, request: Any, handle: Callable[[Any], Awaitable[Answer]]) -> Answer:
    """Return the response to a request of API `name`; `handle` gets only those parts that the client is authorized for.

    Raises NoRule or Unanswerable.
    """
    if name not in RULES:
        raise NoRule(name)
    merges: list[Merge] = []
    wants_no_answer = getattr(request, "acks", None) == 0
    try:
        for rule in RULES[name]:
            request, merge = rule.before(rights, request)
            if merge is not None:
                merges.insert(0, merge)
    except Denied as denied:
        if wants_no_answer:
            raise Unanswerable(name) from denied
        return denied.answer
    answer = await handle(request)
    if merges and wants_no_answer:
        raise Unanswerable(name)
    if not merges or answer is None:
        return answer
    if isinstance(answer, Later):
        return Later(_merged_later(answer.answer, merges))
    return _merged(answer, merges)


def _merged(answer: Fields, merges: list[Merge]) -> Fields:
    for merge in merges:
        answer = merge(answer)
    return answer


async def _merged_later(answer: Awaitable[Fields], merges: list[Merge]) -> Fields:
    return _merged(await answer, merges)
