"""Who the members of a group of the new consumer protocol are (KIP-848)."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode as E

from replicator.kafka.admin import GroupMember
from replicator.model.errors import NotAllowed
from replicator.wire.consumer_members import consumer_members
from replicator.wire.lane_assignment import assigned_lanes
from tests.replicator.wire.fake_broker import FakeBroker, flow_of
from tests.replicator.wire.test_group_questions import Coordinator

pytestmark = pytest.mark.tier("default")


class NewProtocol(Coordinator):
    """Of one group, `g`, in which a worker has lane 1 and a stranger lane 0."""

    def __init__(self, code: int = 0) -> None:
        super().__init__()
        self.code = code

    def answer_consumer_group_describe(self, request: Any) -> dict[str, Any]:
        (group,) = request.group_ids
        members = [] if self.code else [self.member("eos-replicate/h/1/n", 1), self.member("stranger", 0)]
        return {
            "groups": [
                {"error_code": self.code, "group_id": group, "group_state": "", "assignor_name": "", "members": members}
            ]
        }

    @staticmethod
    def member(client_id: str, lane: int) -> dict[str, Any]:
        given = [{"topic_id": None, "topic_name": "lanes", "partitions": (lane,)}]
        return {
            "member_id": client_id,
            "client_id": client_id,
            "client_host": "/10.0.0.1",
            "assignment": {"topic_partitions": given},
            "target_assignment": {"topic_partitions": []},
        }


def members(leader: NewProtocol) -> list[GroupMember]:
    with FakeBroker(leader) as broker:
        leader.broker = broker
        return consumer_members(flow_of(broker).target, "g", 5.0)


def test_members_are_listed_with_what_they_have() -> None:
    found = [(it.client_id, it.host, assigned_lanes(it.assignment, "lanes")) for it in members(NewProtocol())]
    assert found == [("eos-replicate/h/1/n", "/10.0.0.1", {1}), ("stranger", "/10.0.0.1", {0})]


def test_a_group_of_the_classic_protocol_has_none() -> None:
    assert members(NewProtocol(int(E.group_id_not_found))) == []


def test_before_kafka_4_there_is_no_such_protocol() -> None:
    leader = NewProtocol()
    del leader.versions[69]
    assert members(leader) == []


def test_a_missing_right_is_said() -> None:
    with pytest.raises(NotAllowed, match="Describe on group 'g'"):
        members(NewProtocol(int(E.group_authorization_failed)))
