"""With which of its epochs a member of a consumer group may commit (KIP-1251) and come back, by single requests."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from kio.schema.errors import ErrorCode as E

from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.wire import MILLISECOND, Wire, connected, settled

PARTITIONS = 4
REBALANCE_MS = 60_000


class Member:
    """A member that says what it holds with every heartbeat, and revokes when it is told to."""

    def __init__(self, wire: Wire, group: str, topic: str) -> None:
        self._wire, self._group, self._topic = wire, group, topic
        self.member_id, self.epoch = str(uuid.uuid4()), 0
        self.holds: set[int] = set()
        self.told: set[int] = set()
        self._topic_id = uuid.UUID(int=0)

    def beat(self) -> None:
        """One heartbeat; what it is told to revoke, it still holds."""
        answer = settled(self._beat, lambda found: found.error_code)
        assert answer.error_code is E.none, answer
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            for topic in answer.assignment.topic_partitions:
                self._topic_id = topic.topic_id
            self.told = {index for topic in answer.assignment.topic_partitions for index in topic.partitions}
            self.holds |= self.told

    def _beat(self, epoch: int | None = None) -> Any:
        held = [{"topic_id": self._topic_id, "partitions": tuple(sorted(self.holds))}] if self.holds else []
        return self._wire(
            "consumer_group_heartbeat",
            1,
            group_id=self._group,
            member_id=self.member_id,
            member_epoch=self.epoch if epoch is None else epoch,
            rebalance_timeout=REBALANCE_MS * MILLISECOND,
            subscribed_topic_names=(self._topic,),
            topic_partitions=held,
        )

    def refused(self) -> E:
        """The error of a heartbeat with a wrong epoch."""
        answer = self._beat(self.epoch + 1)
        return cast(E, answer.error_code)

    def join_again(self) -> None:
        """With its id and epoch 0, holding nothing, as a member does that was fenced."""
        self.epoch, self.holds, self.told = 0, set(), set()
        self.beat()

    def commit(self, epoch: int, *partitions: int) -> set[E]:
        """The errors of an OffsetCommit with this epoch."""
        asked = [{"partition_index": each, "committed_offset": 0, "committed_metadata": ""} for each in partitions]
        answer = self._wire(
            "offset_commit",
            9,
            group_id=self._group,
            generation_id_or_member_epoch=epoch,
            member_id=self.member_id,
            topics=[{"name": self._topic, "partitions": asked}],
        )
        return {each.error_code for topic in answer.topics for each in topic.partitions}


def until(done: Callable[[], bool], *members: Member) -> None:
    """Heartbeats of all members in turn; Kafka may take a second before it assigns anew."""
    deadline = time.monotonic() + clients.TIMEOUT_S
    while not done():
        assert time.monotonic() < deadline, [(each.epoch, each.holds, each.told) for each in members]
        for each in members:
            each.beat()
        time.sleep(0.05)


@pytest.fixture
def wire(target: BrokerHandle) -> Iterator[Wire]:
    with connected(target.bootstrap) as made:
        yield made


def two_members(target: BrokerHandle, wire: Wire, unique: Callable[[str], str]) -> tuple[Member, Member]:
    """The first one has all partitions, and was told to give half of them back for the second."""
    topic, group = unique("shared"), unique("group")
    clients.create_topic(target.bootstrap, topic, PARTITIONS)
    one, two = Member(wire, group, topic), Member(wire, group, topic)
    until(lambda: len(one.holds) == PARTITIONS, one)
    joined = one.epoch
    until(lambda: len(one.told) == PARTITIONS // 2, two, one)
    assert one.epoch == joined
    return one, two


def test_a_former_epoch_may_commit_what_the_member_has_had_since(
    target: BrokerHandle, wire: Wire, unique: Callable[[str], str]
) -> None:
    one, two = two_members(target, wire, unique)
    joined = one.epoch
    gone, kept = sorted(one.holds - one.told), sorted(one.told)
    assert one.commit(joined, *kept, *gone) == {E.none}, "it has not revoked anything yet"
    one.holds = set(one.told)
    until(lambda: one.epoch > joined and sorted(two.holds) == gone, one, two)
    assert one.commit(joined, *kept) == {E.none}
    assert one.commit(joined - 1, *kept) == {E.stale_member_epoch}
    assert one.commit(one.epoch + 1, *kept) == {E.stale_member_epoch}
    assert one.commit(joined, *gone) == {E.stale_member_epoch}
    assert one.commit(joined, *kept, *gone) == {E.stale_member_epoch}, "all of a request, or nothing"
    assert two.commit(joined, *gone) == {E.stale_member_epoch}, "it got them later"
    assert one.commit(one.epoch, *gone) == {E.none}, "in its present epoch it may commit whatever it names"


def test_a_fenced_member_keeps_its_partitions_and_may_join_again_under_its_id(
    target: BrokerHandle, wire: Wire, unique: Callable[[str], str]
) -> None:
    """FENCED_MEMBER_EPOCH ends nothing on the broker's side: KIP-1251, KAFKA-19233."""
    one, two = two_members(target, wire, unique)
    joined = one.epoch
    kept = sorted(one.told)
    one.holds = set(one.told)
    until(lambda: one.epoch > joined and len(two.holds) == len(kept), one, two)
    assert one.refused() is E.fenced_member_epoch
    before = one.epoch
    assert one.commit(joined, *kept) == {E.none}, "it is a member still, and they are its own"
    assert one.commit(before, *kept) == {E.none}
    one.join_again()
    assert (one.epoch, sorted(one.holds)) == (before, kept)
    assert one.commit(joined, *kept) == {E.none}
