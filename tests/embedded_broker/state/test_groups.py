"""The classic group machine: joining, rebalances, leaving and expiry."""

from __future__ import annotations

import itertools

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.state.group_types import (
    TRANSITIONS,
    AssignmentStored,
    GroupState,
    HeartbeatExpired,
    IllegalGroupStep,
    InitialDelayOver,
    JoinAnswer,
    JoinExpired,
    Reply,
    ScheduleEvent,
    Store,
    SyncAnswer,
    SyncExpired,
)
from tests.embedded_broker.state.classic import (
    joined,
    joining,
    member_of,
    new_group,
    numbers,
    stable,
    synced,
    syncing,
    timer,
)


def test_every_step_of_the_table_can_be_made_and_no_other() -> None:
    for before, after in itertools.product(GroupState, GroupState):
        group = new_group()
        group.state = before
        if after in TRANSITIONS[before]:
            group._enter(after)
            assert group.state is after
        else:
            with pytest.raises(IllegalGroupStep):
                group._enter(after)


def test_a_new_member_must_join_again_with_the_id_it_is_given() -> None:
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
    assert timer(effects, "sync") == ScheduleEvent("sync", 3_000, SyncExpired(2))
    for effect in group.sync(syncing(leader, 2)):
        if isinstance(effect, Store) and effect.then is not None:
            group.stored(effect.then)
    group.expired(SyncExpired(1))
    assert lazy in group.members
    group.expired(SyncExpired(2))
    assert (lazy in group.members, group.state) == (False, GroupState.PREPARING_REBALANCE)


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


def test_a_follower_that_joins_again_unchanged_gets_the_current_generation() -> None:
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
