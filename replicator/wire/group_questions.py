"""Asks the brokers of one cluster about consumer groups that aren't the flow's own: which there are, where they stand;
and commits for those without members. Used by `group_sync` and by what shows it.

Coordinators are asked at the same time, each for all of its groups: one that is dead or slow holds up no other's, and
what it would have said is missing in the answer. Nothing is asked a second time within one call, because whoever syncs
groups comes back soon; but where an answer was too large, less is asked for. Of an answer that is, byte by byte, the
last one to the same question the last values are returned.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from operator import is_
from typing import NamedTuple, Protocol, TypeVar

from kio.schema.errors import ErrorCode as E

from replicator.config import Cluster
from replicator.groups.decision import OffsetToCommit
from replicator.kafka import failures
from replicator.model.errors import ReplicatorError, Unreachable, Unsupported
from replicator.wire import group_requests, offset_commit, offset_fetch_groups
from replicator.wire.any_broker import body_at
from replicator.wire.broker_questions import ALLOWANCE_S, BrokerQuestions, answered
from replicator.wire.connection import Address, Connection, ResponseTooLarge
from replicator.wire.group_pieces import COMMIT_BYTES_MAX, OfGroup, commit_pieces, divided
from replicator.wire.group_requests import ListedGroup
from replicator.wire.offset_fetch_groups import GroupValues, Wanted
from replicator.wire.response_limits import BadResponse

FETCHED_AT_ONCE, FOUND_AT_ONCE = 20, 500
"""Groups in one request."""
MOVED = frozenset({int(E.not_coordinator), int(E.coordinator_not_available), int(E.coordinator_load_in_progress)})
"""The coordinator is looked up anew."""
SEND_S = 10.0
"""By when, after a call for commits, the last of them is sent: what is decided is out of date one day."""
TOO_MUCH_AT_ONCE = -2
"""Instead of an error code: the coordinator has refused what was committed together for its size, and so much at once
isn't committed again for this group."""
_TOO_LARGE = frozenset({int(E.invalid_commit_offset_size), int(E.message_too_large), int(E.record_list_too_large)})
_UNKNOWN = int(E.unknown_server_error)
"""What Kafka 4 says of a commit that is too large, and of others: whether it was done isn't known."""
_KEPT_MAX = 2_000
PartitionCodes = dict[str, dict[int, int]]
"""The error code of each partition of a commit, by topic; 0: it is committed."""
OffsetsToCommit = Mapping[str, Mapping[str, Mapping[int, OffsetToCommit]]]
"""By group, topic and partition."""
_Question = tuple[tuple[str, ...], tuple[int, int]]
"""Groups, and which of how many pieces."""


class ToCoordinator(Protocol):
    """A request to a coordinator, and of which groups it is."""

    @property
    def groups(self) -> tuple[str, ...]:
        """Their names."""

    def write(self, connection: Connection) -> bytes:
        """The request, without its size. Raises Unsupported."""


T = TypeVar("T")
R = TypeVar("R", bound=ToCoordinator)


class GroupListing(NamedTuple):
    """All groups that the user may see, by name; and why some brokers didn't answer: theirs are missing then."""

    groups: dict[str, ListedGroup]
    unanswered: tuple[ReplicatorError, ...] = ()


class _OfGroups(NamedTuple):
    """A request to a coordinator, without its size, and of which groups it is. `made` makes it when it is sent;
    `kept`: its answer is compared with the next one; `piece`: which of how many of its only group; `partitions`: how
    many are committed."""

    api: str
    version: int
    groups: tuple[str, ...]
    made: Callable[[], bytes]
    kept: bool = False
    piece: tuple[int, int] = (0, 1)
    partitions: int = 0

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


def _all_codes(_: str, answers: list[PartitionCodes]) -> PartitionCodes:
    """Those of several commits for one group."""
    found: PartitionCodes = {}
    for codes in answers:
        for topic, of_topic in codes.items():
            found[topic] = found.get(topic, {}) | of_topic
    return found


class GroupQuestions(BrokerQuestions):
    """Of one cluster. Used by one thread."""

    def __init__(self, cluster: Cluster, client_id: str) -> None:
        """See `BrokerQuestions`."""
        super().__init__(cluster, client_id)
        self._coordinators: dict[str, Address] = {}
        self._last: dict[_Question, tuple[bytes, dict[str, GroupValues]]] = {}  # digest of the answer, and it
        self._pieces: dict[str, int] = {}  # of groups that are asked about alone: in how many questions
        self._joined: dict[str, tuple[list[GroupValues], GroupValues]] = {}  # of these: the answers, and all of them
        self._commit_bytes: dict[str, int] = {}  # of groups for which less than usual is committed at once

    def keep(self, groups: Set[str]) -> None:
        """Let go of what is known of all groups but these."""
        for known in (self._coordinators, self._pieces, self._joined, self._commit_bytes):
            for name in known.keys() - groups:
                del known[name]
        for question in [it for it in self._last if not groups >= set(it[0])]:
            del self._last[question]

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
        self,
        groups: Mapping[str, Wanted],
        timeout_s: float,
        *,
        stable: bool,
        else_only: Callable[[], Mapping[str, Collection[int]]] = dict,
    ) -> dict[str, GroupValues | ReplicatorError]:
        """Return what groups have committed; or why that isn't known, by group. Arguments as of
        `offset_fetch_groups.request`.

        Args:
            else_only: of a group of which all is wanted, and is too much for one answer, these partitions are, by
                topic.

        Raises Unreachable, NotAllowed, Unsupported where nobody says who coordinates them.
        """
        asked = partial(self._fetches, groups, else_only, stable)
        found = self._of_coordinators(list(groups), timeout_s, asked, self._fetched, self._all_of)()
        large = [name for name, it in found.items() if isinstance(it, ResponseTooLarge)]
        chunks = deque(large[at : at + FETCHED_AT_ONCE] for at in range(0, len(large), FETCHED_AT_ONCE))
        while chunks:  # the answer of one fails for all groups of its coordinator
            names = chunks.popleft()
            again = self._of_coordinators(names, timeout_s, asked, self._fetched, self._all_of)()
            left = [name for name in names if isinstance(again[name], ResponseTooLarge)]
            found |= again
            if len(names) > 1:
                self._pieces |= dict.fromkeys(left, 1)
                chunks.extend([name] for name in left)
            elif left:
                wanted, pieces = groups[names[0]], self._pieces.get(names[0], 1)
                partitions = sum(map(len, (else_only() if wanted is None else wanted).values()))
                if pieces < partitions:
                    self._pieces[names[0]] = min(2 * pieces, partitions)
                    chunks.append(names)
        if len(self._last) > _KEPT_MAX:  # of groups that are asked about together no more
            self._last.clear()
        return found

    def _fetches(
        self,
        groups: Mapping[str, Wanted],
        else_only: Callable[[], Mapping[str, Collection[int]]],
        stable: bool,
        names: Sequence[str],
    ) -> Iterator[_OfGroups]:
        """What a coordinator is asked about these groups."""
        api, version = offset_fetch_groups.API, offset_fetch_groups.VERSION

        def one(part: Mapping[str, Wanted], piece: tuple[int, int] = (0, 1)) -> _OfGroups:
            made = partial(offset_fetch_groups.request, self._client_id, part, stable=stable)
            return _OfGroups(api, version, tuple(part), made, all(groups[name] is None for name in part), piece)

        together = [name for name in names if name not in self._pieces] if self._pieces else names
        for at in range(0, len(together), FETCHED_AT_ONCE):
            yield one({name: groups[name] for name in together[at : at + FETCHED_AT_ONCE]})
        for name in names if self._pieces else ():
            if not (pieces := self._pieces.get(name, 0)):
                continue
            wanted = groups[name]
            parts = list(divided(else_only() if wanted is None else wanted, pieces)) if pieces > 1 else []
            for number, part in enumerate(parts):
                yield one({name: part}, (number, len(parts)))
            if not parts:
                yield one({name: wanted})

    def _all_of(self, group: str, values: list[GroupValues]) -> GroupValues:
        """What several answers say of a group: the same object as long as they are."""
        last = self._joined.get(group)
        if last is not None and len(last[0]) == len(values) and all(map(is_, last[0], values)):
            return last[1]
        found = GroupValues.joined(values)
        self._joined[group] = values, found
        return found

    def commit(self, offsets: OffsetsToCommit, timeout_s: float) -> dict[str, PartitionCodes | ReplicatorError]:
        """Commit for groups without members, by topic and partition: the code of each partition; or an error, after
        which nothing is known of what this group's coordinator has done."""
        return self.send_commits(offsets, timeout_s)()

    def send_commits(
        self, offsets: OffsetsToCommit, timeout_s: float
    ) -> Callable[[], dict[str, PartitionCodes | ReplicatorError]]:
        """Send commits, and return what waits for their answers, see `commit`. Others may be asked meanwhile. What is
        too much for a batch of the coordinator's log is sent in several requests."""
        api, version = offset_commit.API, offset_commit.VERSION
        give_up_s = time.monotonic() + SEND_S

        def request(name: str, piece: OfGroup) -> bytes:
            if time.monotonic() > give_up_s:
                raise Unreachable(f"cluster {self._cluster!r}: it is too late to commit offsets of group {name!r}")
            return offset_commit.request(self._client_id, name, piece)

        def asked(names: Sequence[str]) -> Iterator[_OfGroups]:
            for name in names:
                for piece in commit_pieces(name, offsets[name], self._commit_bytes.get(name, COMMIT_BYTES_MAX)):
                    made, partitions = partial(request, name, piece), sum(map(len, piece.values()))
                    yield _OfGroups(api, version, (name,), made, partitions=partitions)

        answers = self._of_coordinators(list(offsets), timeout_s, asked, self._committed, _all_codes, once=True)

        def codes() -> dict[str, PartitionCodes | ReplicatorError]:
            found = answers()
            for name, topics in found.items():
                if isinstance(topics, ReplicatorError):
                    continue
                if any(MOVED.intersection(of_topic.values()) for of_topic in topics.values()):
                    self._coordinators.pop(name, None)
            return found

        return codes

    def _committed(self, one: _OfGroups, data: bytes) -> dict[str, PartitionCodes | ReplicatorError]:
        """The codes of one request; those of one that was too large, if it can be divided, are said to be."""
        with _read(one.api):
            found = offset_commit.read(data, body_at(data))
        codes = {code for of_topic in found.values() for code in of_topic.values()}
        if one.partitions > 1 and (_UNKNOWN in codes or codes & _TOO_LARGE):
            (name,) = one.groups
            self._commit_bytes[name] = self._commit_bytes.get(name, COMMIT_BYTES_MAX) // 2
            return {
                name: {
                    topic: {at: TOO_MUCH_AT_ONCE if code in _TOO_LARGE else code for at, code in of_topic.items()}
                    for topic, of_topic in found.items()
                }
            }
        return {one.groups[0]: found}

    def _of_coordinators(
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
        """Of one coordinator."""
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

    def _fetched(self, one: _OfGroups, data: bytes) -> Mapping[str, GroupValues | ReplicatorError]:
        begin = body_at(data)  # behind how long this client is throttled
        digest = blake2b(memoryview(data)[begin:], digest_size=16).digest()
        question = one.groups, one.piece
        last = self._last.get(question)
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
            self._last[question] = digest, values
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
