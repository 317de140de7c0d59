"""Static members of a classic group (KIP-345, KIP-814)."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from embedded_broker.state.group_types import (
    GroupState,
    JoinExpired,
    StaticMemberStored,
    Store,
)
from tests.embedded_broker.state.classic import (
    joined,
    joining,
    stable,
    synced,
    syncing,
)


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    group, (old,) = stable("i")
    request = joining(instance_id="i")
    (store,) = [effect for effect in group.join(request) if isinstance(effect, Store)]
    assert store.then == StaticMemberStored(request.new_member_id, old, True)
    (answer,) = joined(group.stored(store.then))
    assert (answer.generation, answer.skip_assignment, answer.leader_id) == (1, True, request.new_member_id)
    assert group.heartbeat(old, "i", 1)[0] is ErrorCode.fenced_instance_id
    assert synced(group.sync(syncing(request.new_member_id, 1, instance_id="i")))[0].assignment == old.encode()


def test_an_old_client_that_leads_is_not_named_the_leader() -> None:
    group, (old,) = stable("i")
    request = joining(instance_id="i", can_skip_assignment=False)
    (store,) = [effect for effect in group.join(request) if isinstance(effect, Store)]
    assert store.then is not None
    (answer,) = joined(group.stored(store.then))
    assert (answer.leader_id, answer.skip_assignment, answer.members) == (old, False, ())


def test_a_static_member_that_comes_twice_fences_the_first() -> None:
    group, (leader, _) = stable(None, "i")
    group.join(joining(leader))
    group.join(joining(instance_id="i"))
    assert group.state is GroupState.COMPLETING_REBALANCE
    group, (leader, other, _) = stable(None, None, "i")
    group.join(joining(leader))
    first = joining(instance_id="i")
    group.join(first)
    (answer,) = joined(group.join(joining(instance_id="i")))
    assert (answer.error_code, answer.member_id) == (ErrorCode.fenced_instance_id, first.new_member_id)
    assert other in group.members


def test_absent_static_members_keep_their_places_in_a_rebalance() -> None:
    group, (leader, static) = stable(None, "i")
    group.join(joining(leader))
    (answer,) = joined(group.expired(JoinExpired()))
    assert len(answer.members) == 2
    assert static in group.members
