"""Who shares a flow, from what the group and the workers' proofs say."""

from __future__ import annotations

import struct

import pytest

from replicator.flow.group_members import HeldLane, shown
from replicator.flow.group_watch import foreign
from replicator.kafka.admin import GroupMember
from replicator.model import names
from replicator.state.generation import Generation, Phase
from replicator.wire.lane_assignment import assigned_lanes
from replicator.workers.early import WorkerClientId
from replicator.workers.proofs import ProofMetadata
from tests.replicator.flow.fakes import flow

TOPIC = names.lanes_topic("f", 3)
OPEN = Generation(7, Phase.OPEN, 3)
FLOW = flow()


def assignment(*lanes: int, topic: str = TOPIC, version: int = 1) -> bytes:
    """A member's assignment as Kafka's clients write it."""
    name = topic.encode()
    numbers = b"".join(struct.pack(">i", lane) for lane in lanes)
    topics = struct.pack(">ih", 1, len(name)) + name + struct.pack(">i", len(lanes)) + numbers
    return struct.pack(">h", version) + topics + struct.pack(">i", -1)


def member(pid: int, *lanes: int) -> GroupMember:
    return GroupMember(WorkerClientId("h", pid, "n").encode(), "/10.0.0.1", assignment(*lanes))


def proof(pid: int, since_ms: int = 5) -> ProofMetadata:
    return ProofMetadata(owner=f"h:{pid}:abc", version="1.2", generation=7, since_ms=since_ms, settings_hash="x")


def test_each_worker_has_its_lanes_and_since_when() -> None:
    found = shown("f", OPEN, [member(2, 2), member(1, 0)], {0: proof(1), 2: proof(2, 9)})
    assert [(it.host, it.pid, it.lanes, it.version) for it in found.workers] == [
        ("h", 1, (HeldLane(lane=0, since_ms=5),), "1.2"),
        ("h", 2, (HeldLane(lane=2, since_ms=9),), "1.2"),
    ]
    assert (found.generation, found.lanes, found.unassigned) == (7, 3, (1,))


def test_a_lane_that_another_has_proved_last_is_about_to_start() -> None:
    found = shown("f", OPEN, [member(1, 0)], {0: proof(2)})
    assert found.workers[0].lanes == (HeldLane(lane=0, since_ms=None),)
    assert found.workers[0].version == ""


def test_a_member_that_is_no_worker_is_shown_as_one_that_is_none() -> None:
    found = shown("f", OPEN, [GroupMember("rdkafka", "/10.0.0.2", assignment(0))], {0: proof(1)})
    assert [(it.host, it.pid) for it in found.workers] == [("rdkafka", None)]


def test_a_flow_that_never_ran_has_nothing() -> None:
    found = shown("f", None, [], {})
    assert (found.generation, found.workers, found.unassigned) == (None, (), ())


@pytest.mark.parametrize("version", [0, 1, 3])
def test_an_assignment_of_each_version_is_read(version: int) -> None:
    assert assigned_lanes(assignment(0, 4, version=version), TOPIC) == {0, 4}
    assert assigned_lanes(assignment(0, topic="another", version=version), TOPIC) == set()


def test_a_cut_assignment_has_no_lanes() -> None:
    whole = assignment(0, 1)
    for end in range(len(whole)):
        assert assigned_lanes(whole[:end], TOPIC) <= {0, 1}
    assert assigned_lanes(b"", TOPIC) == set()


def test_a_member_that_is_no_worker_is_an_incident() -> None:
    consumer = GroupMember("some-consumer", "/10.0.0.2", assignment(2))
    (found,) = foreign(FLOW, shown("f", OPEN, [member(1, 0, 1), consumer], {}))
    assert found.name == "foreign_group_member"
    assert "'some-consumer' at /10.0.0.2" in found.detail
