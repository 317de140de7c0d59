"""Subscriptions of members, by topic name or pattern, and the validation of ConsumerGroupHeartbeat requests."""

from __future__ import annotations

import hashlib

from kio.schema.errors import ErrorCode

from embedded_broker.state.assignors import ASSIGNORS
from embedded_broker.state.consumer_members import ConsumerMember, ConsumerMembers
from embedded_broker.state.consumer_types import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    Catalog,
    ConsumerHeartbeat,
    HeartbeatRejected,
)
from embedded_broker.state.patterns import BadPattern, NamePattern


def check(group_id: str, request: ConsumerHeartbeat, version: int) -> None:
    """Validate a heartbeat without its group. Raises HeartbeatRejected.

    Source: `throwIfConsumerGroupHeartbeatRequestIsInvalid`.

    Args:
        group_id: which group.
        request: the heartbeat.
        version: of the API; from 1 on the member makes its own id.
    """
    for value, name in ((group_id, "GroupId"), (request.instance_id, "InstanceId"), (request.rack_id, "RackId")):
        if value is not None and not value.strip():
            raise _invalid(f"{name} can't be empty.")
    epoch = request.member_epoch
    if (version >= 1 or epoch != JOIN_EPOCH) and not request.member_id.strip():
        raise _invalid("MemberId can't be empty.")
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if request.assignor is not None and request.assignor not in ASSIGNORS:
        raise HeartbeatRejected(
            ErrorCode.unsupported_assignor,
            f"ServerAssignor {request.assignor} is not supported. Supported assignors: {', '.join(ASSIGNORS)}.",
        )
    if request.topic_regex and epoch not in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
        try:
            NamePattern(request.topic_regex)
        except BadPattern as bad:
            raise HeartbeatRejected(ErrorCode.invalid_regular_expression, f"{request.topic_regex!r}: {bad}") from bad


def _check_join(request: ConsumerHeartbeat) -> None:
    if request.rebalance_timeout_ms is None:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.owned is None or request.owned:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.topic_names is None and request.topic_regex is None:
        raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be set when (re-)joining.")


def _invalid(message: str) -> HeartbeatRejected:
    return HeartbeatRejected(ErrorCode.invalid_request, message)


class Subscriptions:
    """The patterns of one group, resolved against the topics as they were when `resolve` was called last."""

    def __init__(self) -> None:
        self._version: int | None = None
        self._matched: dict[str, frozenset[str]] = {}

    def is_new(self, topics: Catalog) -> bool:
        """Return whether topics may have changed since."""
        return topics.version != self._version

    def resolve(self, members: ConsumerMembers, topics: Catalog) -> None:
        """Find out which topics the members' patterns match."""
        if self.is_new(topics):
            self._matched = {}
            self._version = topics.version
        wanted = {member.topic_regex for member in members if member.topic_regex is not None}
        self._matched = {regex: names for regex, names in self._matched.items() if regex in wanted}
        for regex in sorted(wanted - self._matched.keys()):
            pattern = NamePattern(regex)
            self._matched[regex] = frozenset(name for name in topics.names() if pattern.matches(name))

    def of(self, member: ConsumerMember) -> frozenset[str]:
        """Return the names of the topics that a member is subscribed to; they may not exist."""
        return member.topic_names | self._matched.get(member.topic_regex or "", frozenset())

    def names(self, members: ConsumerMembers) -> frozenset[str]:
        """Return names as `of` does, for all members together."""
        return frozenset().union(*map(self.of, members))

    def metadata_hash(self, members: ConsumerMembers, topics: Catalog) -> int:
        """Return a signed 64-bit number that changes when a subscribed topic comes, goes, or gets partitions."""
        digest = hashlib.blake2b(digest_size=8)
        for name, info in topics.infos(self.names(members)).items():
            digest.update(f"{name} {info.topic_id} {info.partitions}\n".encode())
        return int.from_bytes(digest.digest(), "big", signed=True)
