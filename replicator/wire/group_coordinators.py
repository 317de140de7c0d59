"""Asks the coordinators of groups of one cluster. Used by `group_questions` and `share_groups`.

They are asked at the same time, each for all of its groups: one that is dead or slow holds up no other's, and what it
would have said is missing in the answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Protocol, TypeVar

from kio.schema.errors import ErrorCode as E

from replicator.config import Cluster
from replicator.kafka import failures
from replicator.model.errors import ReplicatorError, Unreachable
from replicator.wire import group_requests
from replicator.wire.broker_questions import ALLOWANCE_S, AskedOnce, BrokerQuestions, answered
from replicator.wire.connection import Address, Connection, Fields, ResponseTooLarge

FOUND_AT_ONCE = 500
"""Groups in one request."""
MOVED = frozenset({int(E.not_coordinator), int(E.coordinator_not_available), int(E.coordinator_load_in_progress)})
"""The coordinator is looked up anew."""
PartitionCodes = dict[str, dict[int, int]]
"""The error code of each partition of a commit, by topic; 0: it is committed."""
Partitions = Mapping[str, Collection[int]]
"""By topic."""


class ToCoordinator(Protocol):
    """A request to a coordinator, and of which groups it is."""

    @property
    def groups(self) -> tuple[str, ...]:
        """Their names."""

    def write(self, connection: Connection) -> bytes:
        """Write the request, without its size. Raises Unsupported."""


class AskedOfGroup(AskedOnce):
    """A request to a coordinator, by kio's codecs."""

    def __init__(
        self, client_id: str, api: str, fields: Fields, groups: tuple[str, ...], partitions: Partitions | None = None
    ) -> None:
        """`partitions`: that are altered or deleted."""
        super().__init__(client_id, api, fields)
        self.api, self.groups, self.partitions = api, groups, partitions or {}

    def for_all(self, code: int) -> dict[str, PartitionCodes]:
        """Say what a code of the whole answer says of each partition."""
        (name,) = self.groups
        return {name: {topic: dict.fromkeys(numbers, code) for topic, numbers in self.partitions.items()}}


T = TypeVar("T")
R = TypeVar("R", bound=ToCoordinator)


def only(_: str, answers: list[T]) -> T:
    """Return the one of a group about which there is one question."""
    return answers[-1]


class GroupCoordinators(BrokerQuestions):
    """Of one cluster. Used by one thread."""

    def __init__(self, cluster: Cluster, client_id: str) -> None:
        """See `BrokerQuestions`."""
        super().__init__(cluster, client_id)
        self._coordinators: dict[str, Address] = {}

    def asked_of(
        self, api: str, fields: Fields, groups: tuple[str, ...], partitions: Partitions | None = None
    ) -> AskedOfGroup:
        """Make a request, for `of_coordinators`."""
        return AskedOfGroup(self._client_id, api, fields, groups, partitions)

    def moved(self, group: str, code: int) -> None:
        """Look up anew who coordinates a group, if an answer's code says that."""
        if code in MOVED:
            self._coordinators.pop(group, None)

    def of_coordinators(
        self,
        groups: Sequence[str],
        timeout_s: float,
        asked: Callable[[Sequence[str]], Iterator[R]],
        read: Callable[[R, bytes], Mapping[str, T | ReplicatorError]],
        join: Callable[[str, list[T]], T],
        *,
        once: bool = False,
    ) -> Callable[[], dict[str, T | ReplicatorError]]:
        """Send to each coordinator what is asked of its groups; what is returned waits for the answers, by group.
        `join`: makes one of those to several questions about a group."""
        failed = self._find(groups, timeout_s)
        by_address: defaultdict[Address, list[str]] = defaultdict(list)
        for name in groups:
            if name not in failed:
                by_address[self._coordinators[name]].append(name)
        waiting = []
        for address, names in by_address.items():
            parts = list(asked(names))
            requests = [(one.write, ALLOWANCE_S) for one in parts]
            waiting.append((parts, self._leaders.ask(address, requests, once=once)))

        def answers() -> dict[str, T | ReplicatorError]:
            found: dict[str, T | ReplicatorError] = dict(failed)
            for parts, future in waiting:
                of_it = self._answers_of(parts, future, read, join)
                found |= of_it
            return found

        return answers

    def _answers_of(
        self,
        parts: Sequence[R],
        future: Future[list[bytes]],
        read: Callable[[R, bytes], Mapping[str, T | ReplicatorError]],
        join: Callable[[str, list[T]], T],
    ) -> dict[str, T | ReplicatorError]:
        """Return the answers of one coordinator, by group."""
        found: dict[str, T | ReplicatorError] = {}
        try:
            answers = answered(future)
        except ReplicatorError as error:
            for name in (name for one in parts for name in one.groups):
                found[name] = error
                if not isinstance(error, ResponseTooLarge):
                    self._coordinators.pop(name, None)
            return found
        several = defaultdict[str, list[T]](list)
        for one, data in zip(parts, answers, strict=True):
            try:
                got = read(one, data)
            except ReplicatorError as error:
                got = dict.fromkeys(one.groups, error)
            for name, it in got.items():
                if isinstance(it, ReplicatorError):
                    found[name] = it
                else:
                    several[name].append(it)
        for name, its in several.items():  # of one that failed in part nothing is known
            found.setdefault(name, its[0] if len(its) == 1 else join(name, its))
        return found

    def _find(self, groups: Collection[str], timeout_s: float) -> dict[str, ReplicatorError]:
        """Look up the coordinators that aren't known; why one isn't found, by group."""
        unknown = [name for name in groups if name not in self._coordinators]
        failed: dict[str, ReplicatorError] = {}
        for at in range(0, len(unknown), FOUND_AT_ONCE):
            part = unknown[at : at + FOUND_AT_ONCE]
            asked = self.asked(group_requests.FIND, group_requests.find_fields(part))
            answers = group_requests.coordinators(self._ask_any(asked, timeout_s))
            for name in part:
                answer = answers.get(name)
                if answer is None:
                    failed[name] = Unreachable(f"cluster {self._cluster!r}: no answer who coordinates group {name!r}")
                elif answer.code:
                    doing, right = f"find the coordinator of group {name!r}", f"Describe on group {name!r}"
                    failed[name] = failures.classify_code(answer.code, self._cluster, doing, right)
                else:
                    self._coordinators[name] = answer.address
        return failed
