"""Records about groups: a restart finds the group as it was stored."""

from __future__ import annotations

import pytest

from embedded_broker.state import group_log
from embedded_broker.state.codec import Truncated
from embedded_broker.state.group_log import GroupForgotten, GroupRecord
from embedded_broker.state.group_members import Member
from embedded_broker.state.group_types import GroupState
from embedded_broker.state.groups import Group


def stored_group() -> Group:
    group = Group("g", 0, 300_000)
    group.state, group.generation = GroupState.STABLE, 7
    group.protocol_type, group.protocol_name = "consumer", "range"
    for member_id, instance_id in (("a", None), ("b", "i")):
        group.members.add(Member(member_id, instance_id, "c", "h", 3_000, 10_000, "consumer", [("range", b"meta")]))
    return group


def decoded(value: bytes) -> GroupRecord:
    record = group_log.decode(group_log.encode_key("g"), value, 0)
    assert isinstance(record, GroupRecord)
    return record


def test_a_group_comes_back_stable_with_its_assignment() -> None:
    value = group_log.encode_group(stored_group(), {"a": b"A", "b": b"B"}, 99)
    group = Group("g", 0, 300_000)
    group_log.restore(group, decoded(value))
    assert (group.state, group.generation, group.protocol_name) == (GroupState.STABLE, 7, "range")
    assert [(member.member_id, member.assignment) for member in group.members] == [("a", b"A"), ("b", b"B")]
    assert group.members["a"].metadata("range") == b"meta"
    assert (group.members.leader_id, group.members.with_instance("i")) == ("a", "b")


def test_an_empty_group_comes_back_empty() -> None:
    empty = Group("g", 0, 300_000)
    empty.generation, empty.protocol_type = 3, "consumer"
    record = decoded(group_log.encode_group(empty, {}, 99))
    group = Group("g", 0, 300_000)
    group_log.restore(group, record)
    assert (group.state, group.generation, group.members.leader_id) == (GroupState.EMPTY, 3, None)
    assert record.state_ms == 99


def test_a_tombstone_forgets_the_group() -> None:
    assert group_log.decode(group_log.encode_key("g"), None, 0) == GroupForgotten("g")


def test_kinds_of_later_versions_are_passed_over() -> None:
    assert group_log.decode(b"\x00\x09rest", b"?", 0) is None


def test_cut_records_are_refused() -> None:
    value = group_log.encode_group(stored_group(), {"a": b"A"}, 99)
    for cut in range(len(value)):
        with pytest.raises(Truncated):
            group_log.decode(group_log.encode_key("g"), value[:cut], 0)
