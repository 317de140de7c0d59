"""The consumer group machine: joining, handing partitions over, epochs, patterns, leaving and expiry."""

from __future__ import annotations

import itertools

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.state.consumer_types import (
    GROUP_TRANSITIONS,
    LEAVE_EPOCH,
    NOTHING,
    ConsumerGroupConfig,
    ConsumerGroupState,
    ConsumerHeartbeat,
    MemberState,
    RevocationExpired,
    SessionExpired,
)
from embedded_broker.state.group_types import IllegalGroupStep
from tests.embedded_broker.state.consumers import Client, Log, Topics, partitions, settle


def test_every_step_of_the_table_can_be_made_and_no_other() -> None:
    for before, after in itertools.product(ConsumerGroupState, ConsumerGroupState):
        group = Log(Topics()).group
        group.state = before
        if after in GROUP_TRANSITIONS[before]:
            group._enter(after)
            assert group.state is after
        else:
            with pytest.raises(IllegalGroupStep):
                group._enter(after)


def test_the_first_member_gets_everything_at_once() -> None:
    log = Log(Topics(t=3))
    answer = Client(log, "a", "t").beat()
    assert (answer.member_id, answer.member_epoch, answer.assignment) == ("a", 1, partitions("t", 0, 1, 2))
    assert log.group.state is ConsumerGroupState.STABLE


def test_partitions_move_only_when_they_have_been_given_back() -> None:
    log = Log(Topics(t=4))
    a, b = Client(log, "a", "t"), Client(log, "b", "t")
    a.turn()
    assert (b.turn().member_epoch, b.holds) == (2, NOTHING)
    assert log.group.state is ConsumerGroupState.RECONCILING
    told = a.beat()
    assert (told.member_epoch, len(told.assignment or ())) == (1, 2)
    assert b.beat().assignment is None, "a still holds them"
    a.revoke()
    given = a.beat()
    assert (given.member_epoch, given.assignment) == (2, None)
    b.turn()
    assert (len(a.holds), a.holds | b.holds) == (2, partitions("t", 0, 1, 2, 3))
    assert log.group.state is ConsumerGroupState.STABLE


def test_a_heartbeat_response_repeats_no_assignment() -> None:
    log = Log(Topics(t=1))
    a = Client(log, "a", "t")
    a.turn()
    before = dict(log.written)
    assert a.beat(owned=None).assignment is None
    assert log.written == before
    assert a.beat(topic_names=frozenset({"t"}), rebalance_timeout_ms=1_000).assignment == partitions("t", 0)


def test_a_member_that_missed_its_new_epoch_may_come_with_the_former() -> None:
    log = Log(Topics(t=2))
    a, b = Client(log, "a", "t"), Client(log, "b", "t")
    a.turn()
    b.turn()
    a.beat()
    a.revoke()
    assert a.beat(lose_answer=True).member_epoch == 2
    assert a.beat(owned=partitions("t", 0, 1)).error_code is ErrorCode.fenced_member_epoch
    a.joined, a.epoch = True, 1
    assert a.beat(owned=NOTHING).member_epoch == 2


@pytest.mark.parametrize("epoch", [2, 9])
def test_other_epochs_are_fenced(epoch: int) -> None:
    log = Log(Topics(t=1))
    a, b = Client(log, "a", "t"), Client(log, "b", "t")
    a.turn()
    assert a.beat(member_epoch=epoch).error_code is ErrorCode.fenced_member_epoch
    assert b.beat(member_epoch=1).error_code is ErrorCode.unknown_member_id
    assert log.group.members.epoch == 1


@pytest.mark.parametrize("state", MemberState)
def test_a_fenced_member_may_join_again_under_its_id(state: MemberState) -> None:
    """KAFKA-19233: it has given up all, so it may come in any state of the broker's."""
    log = Log(Topics(t=4))
    a, b = Client(log, "a", "t"), Client(log, "b", "t")
    a.turn()
    b.turn()
    if state is MemberState.UNREVOKED:
        a.beat()
    elif state is MemberState.STABLE:
        settle(a, b)
    fenced = {MemberState.STABLE: a, MemberState.UNREVOKED: a, MemberState.UNRELEASED: b}[state]
    member = log.group.members.get(fenced.member_id)
    assert member is not None
    assert member.state is state
    assert member.epoch > 0
    assert fenced.beat(member_epoch=member.epoch + 1).error_code is ErrorCode.fenced_member_epoch
    answer = fenced.turn()
    assert answer.error_code is ErrorCode.none
    assert answer.member_epoch >= member.epoch
    assert answer.assignment == fenced.holds, "all that it has, since it holds nothing"
    assert log.group.validate_commit(fenced.member_id, None, answer.member_epoch, False, 9, fenced.holds) is (
        ErrorCode.none
    )
    settle(a, b)
    assert (len(a.holds), a.holds | b.holds) == (2, partitions("t", 0, 1, 2, 3))
    assert len(log.group.members) == 2


def test_a_member_that_leaves_frees_its_partitions_for_the_next_heartbeat() -> None:
    log = Log(Topics(t=2))
    a, b = Client(log, "a", "t"), Client(log, "b", "t")
    a.turn()
    b.turn()
    settle(a, b)
    assert b.beat(member_epoch=-1).member_epoch == -1
    assert log.group.state is ConsumerGroupState.ASSIGNING
    a.turn()
    assert (a.holds, log.group.state) == (partitions("t", 0, 1), ConsumerGroupState.STABLE)
    assert set(log.timers) == {"session a"}
    a.beat(member_epoch=-1)
    assert (log.group.state, log.timers) == (ConsumerGroupState.EMPTY, {})


def test_a_silent_member_is_gone_after_its_session() -> None:
    log = Log(Topics(t=2), ConsumerGroupConfig(session_timeout_ms=77))
    a, b = Client(log, "a", "t"), Client(log, "b", "t")
    a.turn()
    b.turn()
    watch = log.timers["session b"]
    assert watch.delay_ms == 77
    log.expire(watch.event)
    a.turn()
    assert a.holds == partitions("t", 0, 1)
    assert b.beat().error_code is ErrorCode.unknown_member_id
    log.expire(SessionExpired("nobody"))


def test_a_member_that_does_not_give_back_in_time_is_gone() -> None:
    log = Log(Topics(t=2))
    a, b = Client(log, "a", "t"), Client(log, "b", "t")
    a.turn()
    b.turn()
    a.beat()
    watch = log.timers["revocation a"]
    assert (watch.delay_ms, watch.event) == (1_000, RevocationExpired("a", 1))
    log.expire(RevocationExpired("a", 0))
    assert log.group.members.get("a") is not None, "that timer was of an earlier epoch"
    log.expire(watch.event)
    b.turn()
    assert b.holds == partitions("t", 0, 1)


def test_giving_back_in_time_stops_the_clock() -> None:
    log = Log(Topics(t=2))
    a, b = Client(log, "a", "t"), Client(log, "b", "t")
    a.turn()
    b.turn()
    a.turn()
    a.beat()
    assert set(log.timers) == {"session a", "session b"}


def test_topics_that_come_grow_and_go_raise_the_epoch() -> None:
    topics = Topics(t=1)
    log = Log(topics)
    a = Client(log, "a", "t", "later")
    a.turn()
    topics.set("other", 5)
    assert a.turn().member_epoch == 1
    topics.set("t", 2)
    assert (a.turn().member_epoch, a.holds) == (2, partitions("t", 0, 1))
    topics.set("later", 1)
    assert a.turn().assignment == partitions("t", 0, 1) | partitions("later", 0)
    topics.set("t", None)
    a.turn()
    assert (a.turn().member_epoch, a.holds) == (4, partitions("later", 0))


def test_a_changed_subscription_takes_effect_at_once() -> None:
    log = Log(Topics(t=1, u=1))
    a = Client(log, "a", "t")
    a.turn()
    a.beat(topic_names=frozenset({"u"}))
    a.take()
    assert a.holds == NOTHING
    a.turn()
    assert (a.epoch, a.holds) == (2, partitions("u", 0))


def test_a_pattern_follows_the_topics() -> None:
    topics = Topics(**{"orders-1": 1, "other": 1})
    log = Log(topics)
    a = Client(log, "a", topic_regex="orders-.*")
    assert a.turn().assignment == partitions("orders-1", 0)
    topics.set("orders-2", 2)
    assert a.turn().assignment == partitions("orders-1", 0) | partitions("orders-2", 0, 1)
    assert log.group.subscribed_topics(topics) == {"orders-1", "orders-2"}
    a.beat(topic_regex="", topic_names=frozenset({"other"}))
    a.take()
    assert a.turn().assignment == partitions("other", 0)


def test_most_members_choose_the_assignor() -> None:
    log = Log(Topics(t=2, u=2))
    a = Client(log, "a", "t", "u", assignor="range")
    b = Client(log, "b", "t", "u", assignor="range")
    c = Client(log, "c", "t", "u", assignor="uniform")
    a.turn()
    b.turn()
    settle(a, b)
    assert a.holds == partitions("t", 0) | partitions("u", 0)
    c.turn()
    settle(a, b, c)
    assert log.group.members.assignor() == "range"
    assert c.holds == NOTHING


def test_a_full_group_takes_nobody_else() -> None:
    log = Log(Topics(t=2), ConsumerGroupConfig(max_size=1))
    a = Client(log, "a", "t")
    a.turn()
    assert Client(log, "b", "t").beat().error_code is ErrorCode.group_max_size_reached
    assert a.beat().error_code is ErrorCode.none


COMMITS = [
    # member, epoch, transactional, version, expected
    ("a", 1, False, 9, ErrorCode.none),
    ("a", 0, False, 9, ErrorCode.stale_member_epoch),
    ("a", 2, False, 10, ErrorCode.stale_member_epoch),
    ("a", 1, False, 8, ErrorCode.unsupported_version),
    ("a", 1, True, 3, ErrorCode.none),
    ("a", 0, True, 3, ErrorCode.illegal_generation),
    ("b", 1, False, 9, ErrorCode.unknown_member_id),
    ("", -1, False, 9, ErrorCode.unknown_member_id),
]


@pytest.mark.parametrize(("who", "epoch", "transactional", "version", "error_code"), COMMITS)
def test_who_may_commit_offsets(who: str, epoch: int, transactional: bool, version: int, error_code: ErrorCode) -> None:
    log = Log(Topics(t=1))
    Client(log, "a", "t").turn()
    mine = partitions("t", 0)
    assert log.group.validate_commit(who, None, epoch, transactional, version, mine) is error_code


def test_a_former_epoch_may_commit_what_the_member_has_had_since() -> None:
    """KIP-1251: a member that has kept its partitions over a rebalance need not know the new epoch yet."""
    log = Log(Topics(t=4))
    a, b = Client(log, "a", "t"), Client(log, "b", "t")
    a.turn()
    settle(a, b)
    joined, member = 1, log.group.members.get("a")
    assert member is not None
    assert member.epoch > joined
    kept, gone = member.assigned, b.holds
    for restarted in (False, True):
        if restarted:
            log.restart()
        check = log.group.validate_commit
        assert check("a", None, joined, False, 9, kept) is ErrorCode.none
        assert check("a", None, joined, True, 3, kept) is ErrorCode.none
        assert check("a", None, joined - 1, False, 9, kept) is ErrorCode.stale_member_epoch
        assert check("a", None, member.epoch + 1, False, 9, kept) is ErrorCode.stale_member_epoch
        assert check("a", None, joined, False, 9, gone) is ErrorCode.stale_member_epoch
        assert check("a", None, joined, False, 9, kept | gone) is ErrorCode.stale_member_epoch, "all or none"
        # What is not its own it may commit in its present epoch, as in Kafka.
        assert check("a", None, member.epoch, False, 9, gone) is ErrorCode.none
    log.send(ConsumerHeartbeat(member_id="b", member_epoch=LEAVE_EPOCH))
    settle(a)
    assert log.group.validate_commit("a", None, joined, False, 9, kept) is ErrorCode.none
    assert log.group.validate_commit("a", None, joined, False, 9, gone) is ErrorCode.stale_member_epoch, "it came back"


def test_what_a_member_has_yet_to_revoke_it_may_commit_in_the_epoch_in_which_it_got_it() -> None:
    log = Log(Topics(t=4))
    a, b = Client(log, "a", "t"), Client(log, "b", "t")
    a.turn()
    b.turn()
    a.beat()  # is told to revoke, and has not
    member = log.group.members.get("a")
    assert member is not None
    assert member.revoking
    assert log.group.validate_commit("a", None, 1, False, 9, member.assigned | member.revoking) is ErrorCode.none


def test_anybody_may_commit_to_a_group_without_members() -> None:
    group = Log(Topics()).group
    assert group.validate_commit("", None, -1, False, 2) is ErrorCode.none
    assert group.validate_commit("a", None, 1, False, 9) is ErrorCode.unknown_member_id


def test_who_may_read_offsets() -> None:
    log = Log(Topics(t=1))
    Client(log, "a", "t").turn()
    assert log.group.validate_fetch(None, -1) is ErrorCode.none
    assert log.group.validate_fetch("a", 1) is ErrorCode.none
    assert log.group.validate_fetch("a", 0) is ErrorCode.stale_member_epoch
    assert log.group.validate_fetch("b", 1) is ErrorCode.unknown_member_id


def test_a_restart_finds_members_where_they_were() -> None:
    log = Log(Topics(t=4))
    a, b = Client(log, "a", "t"), Client(log, "b", "t")
    a.turn()
    b.turn()
    a.beat()
    state, records = log.group.state, log.group.members.records()
    log.restart()
    assert (log.group.state, log.group.members.records()) == (state, records)
    assert set(log.timers) == {"session a", "session b", "revocation a"}
    log.topics.set("t", 5)
    log.restart()
    settle(a, b)
    assert a.holds | b.holds == partitions("t", 0, 1, 2, 3, 4), "grown while nobody looked"
