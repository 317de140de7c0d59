"""Where partitions without a position begin, and what a task takes to another process."""

from __future__ import annotations

import pickle

import pytest

from replicator.jobs.partition_state import (
    PartitionOffsets,
    existing_targets,
    first_offsets,
    offsets_at,
    owners,
    read_offsets,
)
from replicator.jobs.range_copy import RangeTask, in_bulk
from replicator.kafka import offset_reader
from replicator.kafka.topic_questions import TopicInfo
from replicator.lane.facts import offsets_of_time
from replicator.model.checkpoint import NOBODY, Evidence, Position, Stored, Unreadable
from replicator.model.errors import NotAllowed, Unreachable
from replicator.model.partition import Committed, LogEnds, Partition
from replicator.state import starts
from replicator.state.control_topic import Control
from replicator.state.generation import Generation, Phase
from tests.replicator.jobs.test_range_policy import AT, plan, ranged
from tests.replicator.lane.fakes.cluster import FakeCluster
from tests.replicator.lane.fakes.world import World

LATER = Partition("t", 1)
OPENED = Control({1: Generation(1, Phase.OPEN, 1, partitions={"t": 1})})


def cluster(*at_ms: int) -> FakeCluster:
    made = FakeCluster("west")
    made.create("t", 2)
    for when in at_ms:
        made.log(AT).put("r", at_ms=when)
    return made


@pytest.mark.parametrize(
    ("start", "begins"),
    [("earliest", {AT: 2, LATER: 0}), ("latest", {AT: 6, LATER: 0}), ("1970-01-01T00:00:00.004Z", {AT: 4, LATER: 0})],
)
def test_start_holds_for_the_partitions_of_the_first_listing(start: str, begins: dict[Partition, int]) -> None:
    source = cluster(*range(6))
    offsets = {AT: PartitionOffsets(2, 6), LATER: PartitionOffsets(0, 3)}
    assert first_offsets(World(start).flow, offsets, OPENED, source) == begins
    assert first_offsets(World(start).flow, {AT: PartitionOffsets(2, 6, position=3)}, OPENED, source) == {}


@pytest.mark.parametrize("start", ["latest", "1970-01-01T00:00:00.004Z"])
def test_a_start_that_was_stored_when_the_flow_was_opened_is_not_resolved_again(start: str) -> None:
    source = cluster(*range(6))
    records = starts.encode({"t": starts.TopicStarts("id", (3, None))})
    first = Generation(1, Phase.OPEN, 1, partitions={"t": 2}, start_records=1)
    control = Control({1: first}, dict(records))
    offsets = {AT: PartitionOffsets(2, 6, topic_id="id"), LATER: PartitionOffsets(0, 3, topic_id="id")}
    assert first_offsets(World(start).flow, offsets, control, source) == {AT: 3, LATER: 0}
    recreated = {AT: PartitionOffsets(0, 6, topic_id="another")}
    assert first_offsets(World(start).flow, recreated, control, source) == {AT: 0}


def test_a_record_that_comes_while_a_time_is_resolved_is_never_left_out() -> None:
    """Its time is asked for after the end was read: whether it is found or not, it stands at or behind the begin."""
    source = cluster(1, 2, 3)
    ends = {AT: 3}
    assert offsets_of_time(source, ends, 10) == {AT: 3}, "none yet: the record that comes next is copied"
    source.log(AT).put("r", at_ms=5)
    source.log(AT).put("r", at_ms=11)
    assert offsets_of_time(source, ends, 10) == {AT: 4}, "a found offset is used as it is"


def test_a_time_that_cannot_be_resolved_is_an_error() -> None:
    source = cluster(1)
    source.denied["t"] = {"Describe"}
    with pytest.raises(NotAllowed):
        offsets_at(source, [AT], 1, {AT: PartitionOffsets(0, 1)})


def test_nothing_that_can_be_read_of_any_partition_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a round, or a generation, would begin without knowing anything of any partition."""
    monkeypatch.setattr(offset_reader, "positions", lambda flow, targets, *, stable: dict.fromkeys(targets))
    source = cluster(1)
    for at in (AT, LATER):
        source.log(at).unreachable = True
    with pytest.raises(Unreachable):
        read_offsets(World().flow, source, {AT: Partition("t.copy", 0), LATER: None}, stable=False)


@pytest.mark.parametrize(("epoch", "old"), [(3, True), (2, False), (-1, False)])
def test_an_end_below_the_position_counts_only_where_no_old_leader_tells_it(
    epoch: int, old: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = cluster(1, 2)
    topic_id = source.topics["t"].topic_id
    source.by_old_leaders[AT] = LogEnds(topic_id, 0, 2, 2, leader_epoch=2)
    evidence = Evidence(
        generation=1,
        owner="",
        source_topic="t",
        source_cluster="",
        source_topic_id=topic_id,
        target_topic_id="",
        leader_epoch=epoch,
    )
    to = Partition("t.copy", 0)
    monkeypatch.setattr(offset_reader, "positions", lambda flow, targets, *, stable: {to: Position(6, evidence)})
    read = read_offsets(World().flow, source, {AT: to}, stable=False)
    assert isinstance(read.errors.get(AT), Unreachable) is old
    assert (AT in read.found and read.found[AT].cut) is not old
    assert (source.by_old_leaders == {}) is old, "another broker is asked from then on"


@pytest.mark.parametrize(("grown", "foreign", "cut"), [(5, False, False), (0, False, True), (0, True, False)])
def test_an_end_below_a_position_that_a_worker_has_committed_since_is_asked_for_again(
    grown: int, foreign: bool, cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What somebody else has committed there says nothing of the source."""
    source, to = cluster(1, 2), Partition("t.copy", 0)
    topic_id = source.topics["t"].topic_id
    evidence = Evidence(
        generation=1, owner="", source_topic="t", source_cluster="", source_topic_id=topic_id, target_topic_id=""
    )
    stands = Unreadable(Committed(6, ""), "position_unreadable", "a consumer's") if foreign else Position(6, evidence)

    def positions(flow: object, targets: object, *, stable: bool) -> dict[Partition, Stored]:
        for _ in range(grown):
            source.log(AT).put("copied meanwhile")
        return {to: stands}

    monkeypatch.setattr(offset_reader, "positions", positions)
    read = read_offsets(World().flow, source, {AT: to}, stable=False)
    assert read.all()[AT].cut is cut


def test_partitions_that_the_target_lacks_have_no_target() -> None:
    flow = World().flow
    sources = {"t": TopicInfo("t", "1", 2, {}), "u": TopicInfo("u", "2", 1, {})}
    found = existing_targets(flow, sources, {"t.copy": TopicInfo("t.copy", "3", 1, {})})
    assert found == {AT: Partition("t.copy", 0), LATER: None, Partition("u", 0): None}


def test_owners_are_those_that_have_not_released_their_positions() -> None:
    evidence = {
        AT: _owned("a", 2),
        LATER: _owned(NOBODY, 2),
        Partition("u", 0): _owned("b", 1),
        Partition("u", 1): None,
    }
    assert owners(evidence, 2) == {"a": [AT]}


def _owned(owner: str, generation: int) -> Evidence:
    return Evidence(
        generation=generation, owner=owner, source_topic="t", source_cluster="", source_topic_id="", target_topic_id=""
    )


def test_a_task_goes_to_another_process_and_copies_in_bulk() -> None:
    task = RangeTask(plan(ranged()), AT, 0, 10)
    sent: RangeTask = pickle.loads(pickle.dumps(task))
    assert (sent, sent.target) == (task, Partition("t.copy", 0))
    assert in_bulk(sent.plan.flow).commit.records_max > sent.plan.flow.commit.records_max
