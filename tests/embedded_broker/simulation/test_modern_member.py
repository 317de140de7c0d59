"""What a simulated member of a consumer group takes for over when the broker refuses its heartbeat."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.simulation.group_history import GroupHistory
from embedded_broker.simulation.history import History, ViolationKind
from embedded_broker.simulation.member import MembershipLost
from embedded_broker.simulation.modern_member import ModernMember
from embedded_broker.simulation.wire import SimulatedClient

HELD, GIVEN_BACK = ("t", 0), ("t", 1)
EPOCH, OFFSET = 3, 7
FENCED, UNKNOWN = ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id


class AnsweringBroker:
    """Answers every heartbeat in the same way, and takes every commit."""

    def __init__(self, error_code: ErrorCode) -> None:
        self.random, self.now_s, self.error_code = Random(1), 0.0, error_code
        self.committed: list[tuple[str, int]] = []

    async def call(self, name: str, version: int, **fields: Any) -> Any:
        if name == "consumer_group_heartbeat":
            return SimpleNamespace(error_code=self.error_code, member_epoch=EPOCH + 2, assignment=None)
        (topic,) = fields["topics"]
        (partition,) = topic["partitions"]
        assert (fields["generation_id_or_member_epoch"], partition["committed_offset"]) == (EPOCH, OFFSET)
        self.committed.append((topic["name"], partition["partition_index"]))
        taken = SimpleNamespace(error_code=ErrorCode.none)
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[taken])])


def refused(error_code: ErrorCode, epoch: int = EPOCH) -> tuple[ModernMember, AnsweringBroker, History, GroupHistory]:
    """A member that held one partition, had given back another, and was told this of its next heartbeat."""
    broker, history = AnsweringBroker(error_code), History()
    group_history = GroupHistory(history, "g", [HELD, GIVEN_BACK])
    member = ModernMember(cast(SimulatedClient, broker), history, group_history, "m")
    member._reader = cast(Any, SimpleNamespace(positions={HELD: OFFSET, GIVEN_BACK: OFFSET}))
    member.member_id, member.epoch = "m", epoch
    given = group_history.given("m", [HELD, GIVEN_BACK], group_history.tick())
    member.held = dict(zip([HELD, GIVEN_BACK], given, strict=True))
    member._given_back = member.release([GIVEN_BACK])
    member._reader.positions[GIVEN_BACK] = OFFSET
    with pytest.raises(MembershipLost):
        asyncio.run(member.heartbeat())
    assert member.held == {}
    return member, broker, history, group_history


async def commit_late(member: ModernMember) -> None:
    for _ in range(3):
        await member._commit_late()


@pytest.mark.parametrize(("error_code", "wrong"), [(FENCED, [GIVEN_BACK]), (UNKNOWN, [HELD, GIVEN_BACK])])
def test_a_wrong_epoch_ends_what_was_given_back_and_no_membership_ends_all(
    error_code: ErrorCode, wrong: list[tuple[str, int]]
) -> None:
    """With a wrong epoch it stays a member until its session ends, and may commit what it has kept (KIP-1251)."""
    member, broker, history, _ = refused(error_code)
    asyncio.run(commit_late(member))
    assert broker.committed == [HELD, GIVEN_BACK], "both are tried"
    assert [each.kind for each in history.violations] == [ViolationKind.STALE_COMMIT] * len(wrong)
    assert all(str(at) in each.detail for at, each in zip(wrong, history.violations, strict=True))


def test_what_was_abandoned_is_not_its_own_once_another_member_has_it() -> None:
    member, broker, history, group_history = refused(FENCED)
    group_history.given("other", [HELD], group_history.tick())
    asyncio.run(member._commit_late())
    assert broker.committed == [HELD]
    assert [each.kind for each in history.violations] == [ViolationKind.TWO_OWNERS]


def test_a_fenced_member_that_joins_again_goes_on_with_what_it_is_given_and_sends_no_delayed_commit() -> None:
    member, broker, _, group_history = refused(FENCED)
    member._keeps_id = True
    broker.error_code = ErrorCode.none
    asyncio.run(member.join())
    asyncio.run(commit_late(member))
    assert (member.member_id, member.epoch, broker.committed) == ("m", EPOCH + 2, [])
    (before,), (after,) = group_history._given[HELD], group_history.given("m", [HELD], group_history.tick())
    assert after is before
    assert not after.is_abandoned
    (again,) = group_history.given("m", [GIVEN_BACK], group_history.tick())
    assert again.ended is None, "its end is known: this is another one"


@pytest.mark.parametrize("error_code", [FENCED, UNKNOWN])
def test_nothing_explains_that_a_member_may_not_join(error_code: ErrorCode) -> None:
    _, _, history, _ = refused(error_code, epoch=0)
    assert [each.kind for each in history.violations] == [ViolationKind.BROKEN]
