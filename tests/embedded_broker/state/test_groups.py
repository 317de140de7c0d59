"""The classic group machine: rebalances, static members, expiry, and which requests are refused."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.state.group_types import (
    TRANSITIONS,
    AssignmentStored,
    Cancel,
    Effect,
    GroupState,
    HeartbeatExpired,
    IllegalTransition,
    InitialDelayOver,
    JoinAnswer,
    JoinExpired,
    JoinRequest,
    Reply,
    Schedule,
    StaticMemberStored,
    Store,
    SyncAnswer,
    SyncExpired,
    SyncRequest,
)
from embedded_broker.state.groups import Group

RANGE = (("range", b"r"),)
numbers = itertools.count()


def joining(member_id: str = "", *, instance_id: str | None = None, **changes: object) -> JoinRequest:
    number = next(numbers)
    request = JoinRequest(
        ticket=f"join {number}",
        member_id=member_id,
        instance_id=instance_id,
        client_id="c",
        client_host="h",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=3_000,
        protocol_type="consumer",
        protocols=RANGE,
        must_know_member_id=True,
        can_skip_assignment=True,
        new_member_id=f"m{number}",
    )
    return replace(request, **changes)  # type: ignore[arg-type]


def syncing(
    member_id: str, generation: int, assignment: dict[str, bytes] | None = None, **changes: object
) -> SyncRequest:
    request = SyncRequest(
        ticket=f"sync {next(numbers)}",
        member_id=member_id,
        instance_id=None,
        generation=generation,
        protocol_type="consumer",
        protocol_name="range",
        assignment=assignment or {},
    )
    return replace(request, **changes)  # type: ignore[arg-type]


def joined(effects: list[Effect]) -> list[JoinAnswer]:
    return [e.answer for e in effects if isinstance(e, Reply) and isinstance(e.answer, JoinAnswer)]


def synced(effects: list[Effect]) -> list[SyncAnswer]:
    return [e.answer for e in effects if isinstance(e, Reply) and isinstance(e.answer, SyncAnswer)]


def timer(effects: list[Effect], key: str) -> Schedule | None:
    """The timer that is set under a key once all effects are carried out."""
    found: Schedule | None = None
    for effect in effects:
        if isinstance(effect, Schedule) and effect.key == key:
            found = effect
        if isinstance(effect, Cancel) and effect.key == key:
            found = None
    return found


def new_group(initial_delay_ms: int = 0) -> Group:
    return Group("g", initial_delay_ms, 300_000)


def member_of(group: Group, **changes: object) -> str:
    """Take a dynamic member through the first JoinGroup, which tells it its id."""
    (answer,) = joined(group.join(joining(**changes)))  # type: ignore[arg-type]
    assert answer.error_code is ErrorCode.member_id_required
    return answer.member_id


def stable(*instance_ids: str | None) -> tuple[Group, list[str]]:
    """A stable group; the first member leads. Members with an instance id are static."""
    group = new_group()
    members: list[str] = []
    for instance_id in instance_ids:
        if instance_id is None:
            member_id = member_of(group)
            group.join(joining(member_id))
        else:
            request = joining(instance_id=instance_id)
            member_id = request.new_member_id
            group.join(request)
        members.append(member_id)
    group.expired(InitialDelayOver(0, 0))
    settle(group, members)
    return group, members


def settle(group: Group, members: list[str]) -> None:
    """From completing to stable; each member is assigned its own name."""
    for member_id in reversed(members):
        instance_id = group.members[member_id].instance_id
        assignment = {each: each.encode() for each in members} if member_id == group.members.leader_id else {}
        for effect in group.sync(syncing(member_id, group.generation, assignment, instance_id=instance_id)):
            if isinstance(effect, Store) and effect.then is not None:
                group.stored(effect.then)
    assert group.state is GroupState.STABLE


def test_every_step_of_the_table_can_be_made_and_no_other() -> None:
    for before, after in itertools.product(GroupState, GroupState):
        group = new_group()
        group.state = before
        if after in TRANSITIONS[before]:
            group._enter(after)
            assert group.state is after
        else:
            with pytest.raises(IllegalTransition):
                group._enter(after)


def test_a_new_member_must_come_back_with_the_id_it_is_told() -> None:
    group = new_group()
    member_id = member_of(group)
    assert (group.state, len(group.members)) == (GroupState.EMPTY, 0)
    assert group.join(joining("someone"))[0] == Reply(
        f"join {next(numbers) - 1}", JoinAnswer(ErrorCode.unknown_member_id, "someone")
    )
    group.join(joining(member_id))
    assert group.state is GroupState.PREPARING_REBALANCE


def test_old_clients_are_taken_in_at_once() -> None:
    group = new_group()
    effects = group.join(joining(must_know_member_id=False))
    assert joined(effects) == []
    assert len(group.members) == 1


def test_a_member_that_never_comes_back_is_forgotten() -> None:
    group, (leader,) = stable(None)
    pending = member_of(group)
    group.join(joining(leader))
    assert group.state is GroupState.PREPARING_REBALANCE
    (answer,) = joined(group.expired(HeartbeatExpired(pending)))
    assert (answer.error_code, answer.generation) == (ErrorCode.none, 2)


def test_all_members_get_their_assignment_once_it_is_stored() -> None:
    group = new_group()
    first, second = member_of(group), member_of(group)
    group.join(joining(first, protocols=(("range", b"1"),)))
    group.join(joining(second, protocols=(("range", b"2"),)))
    answers = {answer.member_id: answer for answer in joined(group.expired(InitialDelayOver(0, 0)))}
    assert answers[first].members == ((first, None, b"1"), (second, None, b"2"))
    assert answers[second].members == ()
    assert {answer.leader_id for answer in answers.values()} == {first}
    assert synced(group.sync(syncing(second, 1))) == []
    (store,) = [e for e in group.sync(syncing(first, 1, {first: b"a", second: b"b"})) if isinstance(e, Store)]
    assert group.state is GroupState.COMPLETING_REBALANCE
    assert store.then == AssignmentStored(1, {first: b"a", second: b"b"})
    assert [answer.assignment for answer in synced(group.stored(store.then))] == [b"a", b"b"]
    assert group.state is GroupState.STABLE
    (again,) = synced(group.sync(syncing(second, 1)))
    assert (again.assignment, again.protocol_name) == (b"b", "range")


def test_members_left_out_of_the_assignment_get_nothing() -> None:
    group, (leader, follower) = stable(None, None)
    group.join(joining(leader))
    group.join(joining(follower))
    (store,) = [e for e in group.sync(syncing(leader, 2, {leader: b"all", "ghost": b"x"})) if isinstance(e, Store)]
    assert store.assignment == {leader: b"all", follower: b""}


def test_a_stored_assignment_of_an_earlier_generation_is_dropped() -> None:
    group, (leader,) = stable(None)
    group.join(joining(leader))
    assert group.state is GroupState.COMPLETING_REBALANCE
    assert group.stored(AssignmentStored(1, {leader: b"old"})) == []
    assert group.state is GroupState.COMPLETING_REBALANCE


def test_a_rebalance_sends_waiting_members_back() -> None:
    group, (leader, follower) = stable(None, None)
    group.join(joining(leader))
    group.join(joining(follower))
    group.sync(syncing(follower, 2))
    (answer,) = synced(group.join(joining(leader, protocols=(("range", b"changed"),))))
    assert answer == SyncAnswer(ErrorCode.rebalance_in_progress)


def test_a_rebalance_goes_on_without_members_that_do_not_join() -> None:
    group, (leader, slow) = stable(None, None)
    effects = group.join(joining(leader))
    waiting = timer(effects, "join")
    assert waiting is not None
    assert (waiting.delay_ms, waiting.event) == (3_000, JoinExpired())
    (answer,) = joined(group.expired(waiting.event))
    assert (answer.generation, len(answer.members)) == (2, 1)
    assert group.heartbeat(slow, None, 2)[0] is ErrorCode.unknown_member_id


def test_the_lead_passes_on_when_the_leader_leaves() -> None:
    group, (leader, follower) = stable(None, None)
    results, _ = group.leave([(leader, None)])
    assert results == [ErrorCode.none]
    (answer,) = joined(group.join(joining(follower)))
    assert answer.leader_id == follower
    assert answer.members == ((follower, None, b"r"),)


def test_the_last_member_leaves_an_empty_group_behind() -> None:
    group, (only,) = stable(None)
    _, effects = group.leave([(only, None)])
    assert (group.state, group.generation, group.protocol_type) == (GroupState.EMPTY, 2, "consumer")
    assert Store({}) in effects


def test_leaving_answers_each_member_by_itself() -> None:
    group, (dynamic, static) = stable(None, "i")
    results, _ = group.leave([("ghost", None), (dynamic, "i"), ("", "j"), ("", "i"), (dynamic, None)])
    assert results == [
        ErrorCode.unknown_member_id,
        ErrorCode.fenced_instance_id,
        ErrorCode.unknown_member_id,
        ErrorCode.none,
        ErrorCode.none,
    ]
    assert static not in group.members


def test_a_silent_member_expires_and_the_rest_rebalances() -> None:
    group, (leader, silent) = stable(None, None)
    group.expired(HeartbeatExpired(silent))
    assert group.state is GroupState.PREPARING_REBALANCE
    assert group.heartbeat(leader, None, 1)[0] is ErrorCode.rebalance_in_progress
    assert group.heartbeat(silent, None, 1)[0] is ErrorCode.unknown_member_id


def test_a_member_that_waits_for_an_answer_does_not_expire() -> None:
    group, (leader, follower) = stable(None, None)
    group.join(joining(leader))
    group.expired(HeartbeatExpired(leader))
    assert leader in group.members
    group.expired(HeartbeatExpired(follower))
    assert follower not in group.members
    assert group.state is GroupState.COMPLETING_REBALANCE


def test_members_that_never_ask_for_their_assignment_are_removed() -> None:
    group, (leader, lazy) = stable(None, None)
    group.join(joining(leader))
    effects = group.join(joining(lazy))
    assert timer(effects, "sync") == Schedule("sync", 3_000, SyncExpired(2))
    for effect in group.sync(syncing(leader, 2)):
        if isinstance(effect, Store) and effect.then is not None:
            group.stored(effect.then)
    group.expired(SyncExpired(1))
    assert lazy in group.members
    group.expired(SyncExpired(2))
    assert (lazy in group.members, group.state) == (False, GroupState.PREPARING_REBALANCE)


@pytest.mark.parametrize(
    ("changes", "error_code"),
    [
        ({"protocol_type": "connect"}, ErrorCode.inconsistent_group_protocol),
        ({"protocols": (("sticky", b""),)}, ErrorCode.inconsistent_group_protocol),
    ],
)
def test_members_without_a_common_protocol_are_refused(changes: dict[str, object], error_code: ErrorCode) -> None:
    group, _ = stable(None)
    (answer,) = joined(group.join(joining(**changes)))  # type: ignore[arg-type]
    assert answer.error_code is error_code


def test_the_protocol_is_the_common_one_that_most_prefer() -> None:
    group = new_group()
    for protocols in (
        (("a", b""), ("b", b""), ("c", b"")),
        (("b", b""), ("a", b"")),
        (("b", b""), ("c", b""), ("a", b"")),
    ):
        group.join(joining(must_know_member_id=False, protocols=protocols))
    group.expired(InitialDelayOver(0, 0))
    assert group.protocol_name == "b"


def test_a_follower_that_comes_back_unchanged_is_told_where_the_group_is() -> None:
    group, (_, follower) = stable(None, None)
    (answer,) = joined(group.join(joining(follower)))
    assert (answer.generation, group.state) == (1, GroupState.STABLE)


def test_the_initial_delay_is_prolonged_while_members_come() -> None:
    group = new_group(initial_delay_ms=1_000)
    first = timer(group.join(joining(must_know_member_id=False)), "join")
    assert first is not None
    assert first.event == InitialDelayOver(1_000, 2_000)
    assert joined(group.join(joining(must_know_member_id=False))) == []
    second = timer(group.expired(first.event), "join")
    assert second is not None
    assert second.event == InitialDelayOver(1_000, 1_000)
    assert len(joined(group.expired(second.event))) == 2


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    group, (old,) = stable("i")
    request = joining(instance_id="i")
    (store,) = [effect for effect in group.join(request) if isinstance(effect, Store)]
    assert store.then == StaticMemberStored(request.new_member_id, old, True)
    (answer,) = joined(group.stored(store.then))
    assert (answer.generation, answer.skip_assignment, answer.leader_id) == (1, True, request.new_member_id)
    assert group.heartbeat(old, "i", 1)[0] is ErrorCode.fenced_instance_id
    assert synced(group.sync(syncing(request.new_member_id, 1, instance_id="i")))[0].assignment == old.encode()


def test_an_old_client_that_leads_is_told_it_does_not() -> None:
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
        (answer,) = synced(group.sync(replace(syncing(leader, 1), **changes)))  # type: ignore[arg-type]
        assert answer == SyncAnswer(error_code)


def test_a_dead_group_answers_nobody() -> None:
    group = new_group()
    group.die()
    (answer,) = joined(group.join(joining()))
    assert answer.error_code is ErrorCode.coordinator_not_available
    assert synced(group.sync(syncing("m", 1)))[0].error_code is ErrorCode.coordinator_not_available
    assert group.heartbeat("m", None, 1)[0] is ErrorCode.coordinator_not_available
    assert group.leave([("m", None)])[0] == [ErrorCode.coordinator_not_available]
