"""The kinds of authorization rules; `rules_admin` and `rules_data` use them, and `enforcing` applies them. Pure.

A rule is applied before the handler. It removes from the request what the client isn't authorized to do, and adds the
errors for that to the handler's response; so handlers don't deal with rights.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kio.schema.errors import ErrorCode

from embedded_broker.security.acls import CLUSTER_NAME, Operation, Resource

Fields = Mapping[str, Any]
REFUSAL: Mapping[Resource, ErrorCode] = {
    Resource.TOPIC: ErrorCode.topic_authorization_failed,
    Resource.GROUP: ErrorCode.group_authorization_failed,
    Resource.CLUSTER: ErrorCode.cluster_authorization_failed,
    Resource.TRANSACTIONAL_ID: ErrorCode.transactional_id_authorization_failed,
}


class Rights(Protocol):
    """What one client may do."""

    def may(self, operation: Operation, resource: Resource, name: str) -> bool:
        """Return whether it may do that."""

    def may_with_some(self, operation: Operation, resource: Resource) -> bool:
        """Return whether it may do it with any resource of a type."""

    def topic_name(self, item: Any) -> str | None:
        """Return the name of the topic that an item of a request names, if there is one: by `topic_id` if it has one,
        as the handlers look it up, else by `name` or `topic`."""

    def creates_topic(self, name: str) -> bool:
        """Return whether there is no topic of that name, and Metadata would create one."""


class Denied(Exception):
    """The whole request is refused, with this answer."""

    def __init__(self, answer: Fields) -> None:
        super().__init__(answer)
        self.answer = answer


Merge = Callable[[Fields], Fields]
"""Makes the answer to the whole request from the handler's answer to what was left of it."""


class Rule(Protocol):
    """One right that a request needs."""

    def before(self, rights: Rights, request: Any) -> tuple[Any, Merge | None]:
        """Return (the request as the handler may see it, what is done to the answer). Raises Denied."""


@dataclass(frozen=True, slots=True)
class Whole:
    """The request needs a right as a whole."""

    operation: Operation
    resource: Resource
    name: Callable[[Any], str | None]
    """Of the resource; None: no right is needed."""
    refused: Callable[[Any, ErrorCode], Fields]

    def before(self, rights: Rights, request: Any) -> tuple[Any, Merge | None]:
        """See Rule."""
        name = self.name(request)
        if name is not None and not rights.may(self.operation, self.resource, name):
            raise Denied(self.refused(request, REFUSAL[self.resource]))
        return request, None


@dataclass(frozen=True, slots=True)
class Each:
    """Each item of a list needs a right for what it names; those without are answered beside the handler's answer."""

    operation: Operation
    resource: Resource
    items: str
    answers: str
    refused: Callable[[Any, ErrorCode], Fields]
    name: Callable[[Rights, Any], str | None]
    """What an item names; None: nothing that there is, which the handler may say."""

    def before(self, rights: Rights, request: Any) -> tuple[Any, Merge | None]:
        """See Rule."""
        allowed: list[Any] = []
        refused: list[Any] = []
        for item in getattr(request, self.items) or ():
            name = self.name(rights, item)
            may = name is None or rights.may(self.operation, self.resource, name)
            (allowed if may else refused).append(item)
        if not refused:
            return request, None
        added = [self.refused(item, REFUSAL[self.resource]) for item in refused]
        cut = dataclasses.replace(request, **{self.items: tuple(allowed)})
        return cut, lambda answer: {**answer, self.answers: [*answer.get(self.answers, ()), *added]}


@dataclass(frozen=True, slots=True)
class After:
    """Something is left out of the answer, or put in its place."""

    change: Callable[[Rights, Any, Fields], Fields]
    """(rights, request, answer) → answer."""

    def before(self, rights: Rights, request: Any) -> tuple[Any, Merge | None]:
        """See Rule."""
        return request, lambda answer: self.change(rights, request, answer)


@dataclass(frozen=True, slots=True)
class Special:
    """What fits into no other kind."""

    decide: Callable[[Rights, Any], tuple[Any, Merge | None]]
    """As Rule.before."""

    def before(self, rights: Rights, request: Any) -> tuple[Any, Merge | None]:
        """See Rule."""
        return self.decide(rights, request)


def topics(
    operation: Operation,
    refused: Callable[[Any, ErrorCode], Fields],
    items: str = "topics",
    answers: str = "topics",
) -> Each:
    """Make the rule of topics, by name or by id."""
    return Each(operation, Resource.TOPIC, items, answers, refused, lambda rights, item: rights.topic_name(item))


def cluster(operation: Operation, refused: Callable[[Any, ErrorCode], Fields]) -> Whole:
    """Make the rule of the cluster as a whole."""
    return Whole(operation, Resource.CLUSTER, lambda request: CLUSTER_NAME, refused)


def code_only(request: Any, code: ErrorCode) -> Fields:
    """Return an answer that is an error code and nothing else."""
    return {"error_code": code}


def topic_key(item: Any) -> Fields:
    """Say how an answer names the topic of a request's item, in whatever version."""
    found = {name: getattr(item, name) for name in ("name", "topic", "topic_id") if hasattr(item, name)}
    return {key: value for key, value in found.items() if value is not None}


def partition_errors(
    listed: str = "partitions", answered: str = "partitions", index: str = "partition_index", **more: Any
) -> Callable[[Any, ErrorCode], Fields]:
    """Return a function that says how a topic is refused: each of its partitions with the error, and `more`.

    `listed` is the field of the request's topic, with numbers or entities that hold `index`; `answered` is the
    answer's.
    """

    def refused(item: Any, code: ErrorCode) -> Fields:
        numbers = [each if isinstance(each, int) else getattr(each, index) for each in getattr(item, listed)]
        return {
            **topic_key(item),
            answered: [{"partition_index": number, "error_code": code, **more} for number in numbers],
        }

    return refused
