"""Asks the brokers of one cluster about groups that aren't the flow's own: which there are, where they stand; commits
for those without members, and deletes offsets of groups. Used by `group_sync` and by what shows it. What is asked of
share groups only: `share_groups`.

Nothing is asked a second time within one call, because whoever syncs groups comes back soon; but where an answer was
too large, less is asked for. Of an answer that is, byte by byte, the last one to the same question the last values are
returned.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from operator import is_
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode as E

from replicator.config import Cluster
from replicator.kafka import failures
from replicator.model.errors import ReplicatorError, Unreachable, Unsupported
from replicator.wire import group_requests, offset_commit, offset_fetch_groups
from replicator.wire.any_broker import body_at
from replicator.wire.broker_questions import ALLOWANCE_S, answered
from replicator.wire.connection import Connection, ResponseTooLarge
from replicator.wire.group_coordinators import AskedOfGroup, GroupCoordinators, PartitionCodes, Partitions, only
from replicator.wire.group_pieces import COMMIT_BYTES_MAX, OfGroup, commit_pieces, divided
from replicator.wire.group_requests import ListedGroup
from replicator.wire.offset_fetch_groups import GroupValues, Wanted
from replicator.wire.protocol import Exchange
from replicator.wire.response_limits import BadResponse
from replicator.wire.share_groups import DELETE_SHARE, OffsetsToCommit, ShareGroups, delete_share_fields

FETCHED_AT_ONCE = 20
"""Groups in one request."""
SEND_S = 10.0
"""By when, after a call for commits, the last of them is sent: what is decided is out of date one day."""
TOO_MUCH_AT_ONCE = -2
"""Instead of an error code: the coordinator has refused what was committed together for its size, and so much at once
isn't committed again for this group."""
_TOO_LARGE = frozenset({int(E.invalid_commit_offset_size), int(E.message_too_large), int(E.record_list_too_large)})
_UNKNOWN = int(E.unknown_server_error)
"""What Kafka 4 says of a commit that is too large, and of others: whether it was done isn't known."""
_KEPT_MAX = 2_000
_Question = tuple[tuple[str, ...], tuple[int, int]]
"""Groups, and which of how many pieces."""


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
    """Merge the codes of several commits for one group."""
    found: PartitionCodes = {}
    for codes in answers:
        for topic, of_topic in codes.items():
            found[topic] = found.get(topic, {}) | of_topic
    return found


class GroupQuestions(GroupCoordinators):
    """Consumer groups and share groups of one cluster. Used by one thread."""

    def __init__(self, cluster: Cluster, client_id: str) -> None:
        """See `BrokerQuestions`."""
        super().__init__(cluster, client_id)
        self._shares = ShareGroups(self, cluster.name)
        self._last: dict[_Question, tuple[bytes, dict[str, GroupValues]]] = {}  # digest of the answer, and it
        self._pieces: dict[str, int] = {}  # of groups that are asked about alone: in how many questions
        self._joined: dict[str, tuple[list[GroupValues], GroupValues]] = {}  # of these: the answers, and all of them
        self._commit_bytes: dict[str, int] = {}  # of groups for which less than usual is committed at once

    def keep(self, groups: Set[str]) -> None:
        """Let go of what is known of all groups but these."""
        for known in (self._coordinators, self._pieces, self._joined, self._commit_bytes):
            for name in known.keys() - groups:
                del known[name]
        self._shares.keep(groups)
        for question in [it for it in self._last if not groups >= set(it[0])]:
            del self._last[question]

    def listing(self, timeout_s: float) -> GroupListing:
        """List the groups of all brokers; which of them are share groups is known from then on.

        Raises Unreachable, NotAllowed, Retriable, Unsupported where none answers.
        """
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
        self._shares.listed(found)
        return GroupListing(found, tuple(failed))

    def share(self, groups: Set[str]) -> None:
        """Take these for share groups, too, which don't exist yet."""
        self._shares.told(groups)

    def offsets(
        self,
        groups: Mapping[str, Wanted],
        timeout_s: float,
        *,
        stable: bool,
        else_only: Callable[[], Mapping[str, Collection[int]]] = dict,
    ) -> dict[str, GroupValues | ReplicatorError]:
        """Return what groups have committed, of share groups where they stand; or why that isn't known, by group.
        Arguments as of `offset_fetch_groups.request`. What is as it was is the same object.

        Args:
            else_only: of a group of which all is wanted, and is too much for one answer, these partitions are, by
                topic.

        Raises Unreachable, NotAllowed, Unsupported where nobody says who coordinates them.
        """
        shares, groups = self._shares.apart(groups)
        asked = partial(self._fetches, groups, else_only, stable)
        found = self.of_coordinators(list(groups), timeout_s, asked, self._fetched, self._all_of)()
        large = [name for name, it in found.items() if isinstance(it, ResponseTooLarge)]
        chunks = deque(large[at : at + FETCHED_AT_ONCE] for at in range(0, len(large), FETCHED_AT_ONCE))
        while chunks:  # the answer of one fails for all groups of its coordinator
            names = chunks.popleft()
            again = self.of_coordinators(names, timeout_s, asked, self._fetched, self._all_of)()
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
        return found | self._shares.offsets(shares, timeout_s) if shares else found

    def _fetches(
        self,
        groups: Mapping[str, Wanted],
        else_only: Callable[[], Mapping[str, Collection[int]]],
        stable: bool,
        names: Sequence[str],
    ) -> Iterator[_OfGroups]:
        """Yield what a coordinator is asked about these groups."""
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
        """Return what several answers say of a group: the same object as long as they are."""
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
        too much for a batch of the coordinator's log is sent in several requests. Share groups are set to where they
        are to stand."""
        shares, offsets = self._shares.apart(offsets)
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

        answers = self.of_coordinators(list(offsets), timeout_s, asked, self._committed, _all_codes, once=True)
        set_ = self._shares.send(shares, timeout_s)

        def codes() -> dict[str, PartitionCodes | ReplicatorError]:
            found = answers()
            for name, topics in found.items():
                if isinstance(topics, ReplicatorError):
                    continue
                for code in {code for of_topic in topics.values() for code in of_topic.values()}:
                    self.moved(name, code)
            return found | set_()

        return codes

    def _committed(self, one: _OfGroups, data: bytes) -> dict[str, PartitionCodes | ReplicatorError]:
        """Return the codes of one request; those of one that was too large, if it can be divided, are said to be."""
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

    def delete_offsets(
        self, offsets: Mapping[str, Partitions], timeout_s: float
    ) -> dict[str, PartitionCodes | ReplicatorError]:
        """Delete these offsets of groups, those of share groups by whole topics, and no others: the code of each
        partition, 0 if its offset is deleted; or an error, after which nothing is known of this group's."""

        def asked(names: Sequence[str]) -> Iterator[AskedOfGroup]:
            for name in names:
                api, fields = _DELETE_SHARE if self._shares.has(name) else _DELETE
                yield self.asked_of(api, partial(fields, name, offsets[name]), (name,), offsets[name])

        return self.of_coordinators(list(offsets), timeout_s, asked, self._deleted, only, once=True)()

    def _deleted(self, one: AskedOfGroup, data: bytes) -> Mapping[str, PartitionCodes | ReplicatorError]:
        answer, (name,) = one.read(data), one.groups
        if code := int(answer.error_code):
            self.moved(name, code)
            return one.for_all(code)
        if one.api == DELETE_SHARE:
            codes = {it.topic_name: int(it.error_code) for it in answer.responses}
            return {name: {topic: dict.fromkeys(one.partitions[topic], code) for topic, code in codes.items()}}
        return {
            name: {
                it.name: {each.partition_index: int(each.error_code) for each in it.partitions} for it in answer.topics
            }
        }

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
            self.moved(name, of_group.code)
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


def _delete_fields(group: str, offsets: Partitions, exchange: Exchange) -> Mapping[str, Any]:
    types = exchange.types
    return {
        "group_id": group,
        "topics": tuple(
            types.OffsetDeleteRequestTopic(
                name=topic, partitions=tuple(types.OffsetDeleteRequestPartition(partition_index=it) for it in numbers)
            )
            for topic, numbers in offsets.items()
        ),
    }


_DELETE, _DELETE_SHARE = ("offset_delete", _delete_fields), (DELETE_SHARE, delete_share_fields)
