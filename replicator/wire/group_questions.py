"""Asks the brokers of one cluster about consumer groups that aren't the flow's own: which there are, where they stand;
and commits for those without members. Used by `group_sync` and by what shows it.

Coordinators are asked at the same time, each for all of its groups: one that is dead or slow holds up no other's, and
what it would have said is missing in the answer. Nothing is asked a second time within one call: whoever syncs groups
comes back soon. Of an answer that is, byte by byte, the last one to the same question the last values are returned.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from typing import NamedTuple, TypeVar

from kio.schema.errors import ErrorCode as E

from replicator.config import Cluster
from replicator.groups.decision import OffsetToCommit
from replicator.kafka import failures
from replicator.model.errors import ReplicatorError, Unreachable, Unsupported
from replicator.wire import group_requests, offset_commit, offset_fetch_groups
from replicator.wire.any_broker import body_at
from replicator.wire.broker_questions import ALLOWANCE_S, BrokerQuestions, answered
from replicator.wire.connection import Address, Connection
from replicator.wire.group_requests import ListedGroup
from replicator.wire.offset_fetch_groups import GroupValues, Wanted
from replicator.wire.response_limits import BadResponse

FETCHED_AT_ONCE, FOUND_AT_ONCE = 20, 500
"""Groups in one request."""
MOVED = frozenset({int(E.not_coordinator), int(E.coordinator_not_available), int(E.coordinator_load_in_progress)})
"""The coordinator is looked up anew."""
_KEPT_MAX = 2_000
T = TypeVar("T")
PartitionCodes = dict[str, dict[int, int]]
"""The error code of each partition of a commit, by topic; 0: it is committed."""
OffsetsToCommit = Mapping[str, Mapping[str, Mapping[int, OffsetToCommit]]]
"""By group, topic and partition."""


class GroupListing(NamedTuple):
    """All groups that the user may see, by name; and why some brokers didn't answer: theirs are missing then."""

    groups: dict[str, ListedGroup]
    unanswered: tuple[ReplicatorError, ...] = ()


class _OfGroups(NamedTuple):
    """A request to a coordinator, without its size, and of which groups it is. `made` makes it when it is sent;
    `kept`: its answer is compared with the next one."""

    api: str
    version: int
    groups: tuple[str, ...]
    made: Callable[[], bytes]
    kept: bool = False

    def write(self, connection: Connection) -> bytes:
        found = connection.version(self.api, self.version)
        if found != self.version:
            raise Unsupported(
                f"{connection.where}: it speaks {self.api} up to version {found}; version {self.version} is needed to "
                "ask about consumer groups (Kafka 3.0)"
            )
        return self.made()


@contextmanager
def _read(api: str) -> Iterator[None]:
    try:
        yield
    except BadResponse as error:
        raise Unreachable(f"cannot read the answer to {api}: {error}") from error


class GroupQuestions(BrokerQuestions):
    """Of one cluster. Used by one thread."""

    def __init__(self, cluster: Cluster, client_id: str) -> None:
        """See `BrokerQuestions`."""
        super().__init__(cluster, client_id)
        self._coordinators: dict[str, Address] = {}
        self._last: dict[tuple[str, ...], tuple[bytes, dict[str, GroupValues]]] = {}  # digest of the answer, and it

    def listing(self, timeout_s: float) -> GroupListing:
        """List the groups of all brokers. Raises Unreachable, NotAllowed, Retriable, Unsupported where none answers."""
        asked = []
        for address in self._addresses(timeout_s).values():
            one = self.asked(group_requests.LIST, group_requests.list_fields)
            asked.append((one, self._leaders.ask(address, [(one.write, ALLOWANCE_S)])))
        found, failed = dict[str, ListedGroup](), list[ReplicatorError]()
        for one, future in asked:
            try:
                (data,) = answered(future)
                code, groups = group_requests.listed(one.read(data))
                self.check(code, "list groups", "Describe on the cluster, or on groups")
            except ReplicatorError as error:
                failed.append(error)
            else:
                found |= groups
        if failed and len(failed) == len(asked):
            raise failed[0]
        return GroupListing(found, tuple(failed))

    def offsets(
        self, groups: Mapping[str, Wanted], timeout_s: float, *, stable: bool
    ) -> dict[str, GroupValues | ReplicatorError]:
        """Return what groups have committed; or why that isn't known, by group. Arguments as of
        `offset_fetch_groups.request`.

        Raises Unreachable, NotAllowed, Unsupported where nobody says who coordinates them.
        """
        api, version = offset_fetch_groups.API, offset_fetch_groups.VERSION

        def asked(names: Sequence[str]) -> Iterator[_OfGroups]:
            for at in range(0, len(names), FETCHED_AT_ONCE):
                part = {name: groups[name] for name in names[at : at + FETCHED_AT_ONCE]}
                made = partial(offset_fetch_groups.request, self._client_id, part, stable=stable)
                yield _OfGroups(api, version, tuple(part), made, all(it is None for it in part.values()))

        found = self._of_coordinators(list(groups), timeout_s, asked, self._fetched)()
        if len(self._last) > _KEPT_MAX:  # of groups that are asked about together no more
            self._last.clear()
        return found

    def commit(self, offsets: OffsetsToCommit, timeout_s: float) -> dict[str, PartitionCodes | ReplicatorError]:
        """Commit for groups without members, by topic and partition: the code of each partition; or an error, after
        which nothing is known of what this group's coordinator has done."""
        return self.send_commits(offsets, timeout_s)()

    def send_commits(
        self, offsets: OffsetsToCommit, timeout_s: float
    ) -> Callable[[], dict[str, PartitionCodes | ReplicatorError]]:
        """Send commits, and return what waits for their answers, see `commit`. Others may be asked meanwhile."""
        api, version = offset_commit.API, offset_commit.VERSION

        def asked(names: Sequence[str]) -> Iterator[_OfGroups]:
            for name in names:
                made = partial(offset_commit.request, self._client_id, name, offsets[name])
                yield _OfGroups(api, version, (name,), made)

        def read(one: _OfGroups, data: bytes) -> dict[str, PartitionCodes | ReplicatorError]:
            with _read(api):
                return {one.groups[0]: offset_commit.read(data, body_at(data))}

        answers = self._of_coordinators(list(offsets), timeout_s, asked, read, once=True)

        def codes() -> dict[str, PartitionCodes | ReplicatorError]:
            found = answers()
            for name, topics in found.items():
                if isinstance(topics, ReplicatorError):
                    continue
                if any(MOVED.intersection(of_topic.values()) for of_topic in topics.values()):
                    self._coordinators.pop(name, None)
            return found

        return codes

    def _of_coordinators(
        self,
        groups: Sequence[str],
        timeout_s: float,
        asked: Callable[[Sequence[str]], Iterator[_OfGroups]],
        read: Callable[[_OfGroups, bytes], Mapping[str, T | ReplicatorError]],
        *,
        once: bool = False,
    ) -> Callable[[], dict[str, T | ReplicatorError]]:
        """Send to each coordinator what is asked of its groups; what is returned waits for the answers, by group."""
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
                found |= self._answers_of(parts, future, read)
            return found

        return answers

    def _answers_of(
        self,
        parts: Sequence[_OfGroups],
        future: Future[list[bytes]],
        read: Callable[[_OfGroups, bytes], Mapping[str, T | ReplicatorError]],
    ) -> dict[str, T | ReplicatorError]:
        """Of one coordinator."""
        found: dict[str, T | ReplicatorError] = {}
        try:
            answers = answered(future)
        except ReplicatorError as error:
            for name in (name for one in parts for name in one.groups):
                found[name] = error
                self._coordinators.pop(name, None)
            return found
        for one, data in zip(parts, answers, strict=True):
            try:
                found |= read(one, data)
            except ReplicatorError as error:
                found |= dict.fromkeys(one.groups, error)
        return found

    def _fetched(self, one: _OfGroups, data: bytes) -> Mapping[str, GroupValues | ReplicatorError]:
        begin = body_at(data)  # behind how long this client is throttled
        digest = blake2b(memoryview(data)[begin:], digest_size=16).digest()
        last = self._last.get(one.groups)
        if last is not None and last[0] == digest:
            return last[1]
        with _read(one.api):
            values = offset_fetch_groups.read(data, begin)
        found: dict[str, GroupValues | ReplicatorError] = {}
        for name, of_group in values.items():
            if of_group.code in MOVED:
                self._coordinators.pop(name, None)
            if of_group.code:
                doing = f"read the offsets of group {name!r}"
                found[name] = failures.classify_code(of_group.code, self._cluster, doing, f"Describe on group {name!r}")
            else:
                found[name] = of_group
        if found.keys() != set(one.groups):
            raise Unreachable(f"cluster {self._cluster!r}: answers for other groups than those that were asked about")
        if one.kept and not any(isinstance(it, ReplicatorError) for it in found.values()):
            self._last[one.groups] = digest, values
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
