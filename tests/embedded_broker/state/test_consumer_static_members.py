"""Static members of a consumer group."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from embedded_broker.state.consumer_types import ConsumerGroupState
from tests.embedded_broker.state.consumers import Client, Log, Topics, partitions


def test_a_static_member_comes_back_to_its_partitions() -> None:
    log = Log(Topics(t=2))
    a, b = Client(log, "a", "t", instance_id="i"), Client(log, "b", "t", instance_id="j")
    a.turn()
    b.turn()
    for each in (a, a, b):
        each.turn()
    held = a.holds
    assert a.beat(member_epoch=-2).member_epoch == -2
    assert b.turn().member_epoch == 2, "nobody else gets its place"
    again = Client(log, "a2", "t", instance_id="i")
    answer = again.turn()
    assert (answer.member_epoch, again.holds) == (2, held)
    assert a.beat(member_epoch=2).error_code is ErrorCode.fenced_instance_id
    assert set(log.timers) == {"session a2", "session b"}
    log.restart()
    assert again.beat().error_code is ErrorCode.none


def test_an_instance_id_in_use_is_not_given_away() -> None:
    log = Log(Topics(t=1))
    a = Client(log, "a", "t", instance_id="i")
    a.turn()
    assert Client(log, "b", "t", instance_id="i").beat().error_code is ErrorCode.unreleased_instance_id
    assert a.beat().error_code is ErrorCode.none
    assert a.beat(instance_id="j").error_code is ErrorCode.unknown_member_id


def test_a_static_member_that_stays_away_loses_its_place() -> None:
    log = Log(Topics(t=1))
    a, b = Client(log, "a", "t", instance_id="i"), Client(log, "b", "t")
    a.turn()
    b.turn()
    a.beat(member_epoch=-2)
    log.expire(log.timers["session a"].event)
    b.turn()
    assert b.holds == partitions("t", 0)
    assert a.beat(member_epoch=-2).error_code is ErrorCode.unknown_member_id


def test_a_static_member_may_leave_for_good() -> None:
    log = Log(Topics(t=1))
    a = Client(log, "a", "t", instance_id="i")
    a.turn()
    assert Client(log, "b", "t", instance_id="i").beat(member_epoch=-1).error_code is ErrorCode.fenced_instance_id
    assert a.beat(member_epoch=-1).error_code is ErrorCode.none
    assert log.group.state is ConsumerGroupState.EMPTY
    assert Client(log, "b", "t", instance_id="i").turn().assignment == partitions("t", 0)
