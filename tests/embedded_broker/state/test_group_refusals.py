"""What a classic group refuses, and with which error."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.state.group_types import (
    GroupState,
    SyncAnswer,
)
from tests.embedded_broker.state.classic import (
    joined,
    joining,
    new_group,
    stable,
    synced,
    syncing,
)


@pytest.mark.parametrize(
    ("changes", "error_code"),
    [
        ({"protocol_type": "connect"}, ErrorCode.inconsistent_group_protocol),
        ({"protocols": (("sticky", b""),)}, ErrorCode.inconsistent_group_protocol),
    ],
)
def test_members_without_a_common_protocol_are_refused(changes: dict[str, Any], error_code: ErrorCode) -> None:
    group, _ = stable(None)
    (answer,) = joined(group.join(joining(**changes)))
    assert answer.error_code is error_code


COMMITS = [
    # state, member, generation, transactional, expected
    (GroupState.EMPTY, "", -1, False, ErrorCode.none),
    (GroupState.EMPTY, "ghost", -1, False, ErrorCode.none),
    (GroupState.EMPTY, "ghost", 1, False, ErrorCode.unknown_member_id),
    (GroupState.STABLE, "", -1, False, ErrorCode.unknown_member_id),
    (GroupState.STABLE, "", -1, True, ErrorCode.none),
    (GroupState.STABLE, "me", 1, False, ErrorCode.none),
    (GroupState.STABLE, "me", 0, False, ErrorCode.illegal_generation),
    (GroupState.STABLE, "me", 0, True, ErrorCode.illegal_generation),
    (GroupState.STABLE, "ghost", 1, True, ErrorCode.unknown_member_id),
    (GroupState.COMPLETING_REBALANCE, "me", 1, False, ErrorCode.rebalance_in_progress),
    (GroupState.COMPLETING_REBALANCE, "me", 1, True, ErrorCode.none),
    (GroupState.PREPARING_REBALANCE, "me", 1, False, ErrorCode.none),
    (GroupState.DEAD, "me", 1, False, ErrorCode.coordinator_not_available),
]


@pytest.mark.parametrize(("state", "who", "generation", "transactional", "error_code"), COMMITS)
def test_who_may_commit_offsets(
    state: GroupState, who: str, generation: int, transactional: bool, error_code: ErrorCode
) -> None:
    group, (member_id,) = stable(None)
    if state is GroupState.EMPTY:
        group.members.remove(member_id)
    group.state = state
    found = group.validate_commit(member_id if who == "me" else who, None, generation, transactional)
    assert found is error_code


def test_sync_is_refused_by_a_wrong_generation_or_protocol() -> None:
    group, (leader,) = stable(None)
    for changes, error_code in (
        ({"generation": 9}, ErrorCode.illegal_generation),
        ({"protocol_name": "sticky"}, ErrorCode.inconsistent_group_protocol),
        ({"protocol_type": "connect"}, ErrorCode.inconsistent_group_protocol),
        ({"instance_id": "i"}, ErrorCode.unknown_member_id),
        ({"member_id": "ghost"}, ErrorCode.unknown_member_id),
    ):
        (answer,) = synced(group.sync(replace(syncing(leader, 1), **changes)))
        assert answer == SyncAnswer(error_code)


def test_a_dead_group_refuses_all_requests() -> None:
    group = new_group()
    group.die()
    (answer,) = joined(group.join(joining()))
    assert answer.error_code is ErrorCode.coordinator_not_available
    assert synced(group.sync(syncing("m", 1)))[0].error_code is ErrorCode.coordinator_not_available
    assert group.heartbeat("m", None, 1)[0] is ErrorCode.coordinator_not_available
    assert group.leave([("m", None)])[0] == [ErrorCode.coordinator_not_available]
