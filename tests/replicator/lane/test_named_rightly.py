"""An incident has the name of what has happened, and is told once."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest

from replicator.lane.ports import LogEndsByPartition
from replicator.model.errors import Incident, Retriable, TopicMissing
from replicator.model.partition import Partition
from replicator.planes.contract import PollResult
from tests.replicator.lane.fakes.loads import ALL, A, B, U, filled, numbered
from tests.replicator.lane.fakes.plane import FakePlane
from tests.replicator.lane.fakes.world import World


def test_offsets_of_a_new_topic_beside_the_old_id_are_no_lost_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker that was asked for ids is behind; one that is asked afterwards is not."""
    for offsets in ((50, 60), (0, 3)):  # below the new log's start, above its end
        world = World()
        filled(world)
        world.run()
        old, ask = world.source.topics["t"].topic_id, world.source.ask_log_ends
        world.source.delete("t")
        world.source.create("t", 2)
        for log in world.source.topics["t"].logs:
            log.start = offsets[0]
            log.put(*numbered("new", offsets[1] - offsets[0]))

        def behind(asked: Collection[Partition], ask: Any = ask, old: str = old) -> Callable[[], LogEndsByPartition]:
            answers = ask(asked)
            return lambda: {at: log._replace(topic_id=old) if at.topic == "t" else log for at, log in answers().items()}

        monkeypatch.setattr(world.source, "ask_log_ends", behind)
        world.run("another")
        assert {event["name"] for event in world.told("incident")} == {"source_topic_recreated"}


@pytest.mark.parametrize("before", [1, 8, 20])
def test_a_target_topic_that_was_created_again_under_the_lane_is_nothing_else(before: int) -> None:
    """The aborted records that the new topic gets aren't those that the position covers."""
    world = World()
    filled(world, before)

    def again() -> None:
        world.target.delete("t.copy")
        world.target.create("t.copy", 2)
        for at in ALL:
            world.source.log(at).put(*numbered("more", 10))

    world.on.append(("plane.poll", lambda: world.on.append(("step.after_end_txn", again))))
    world.run()
    assert {(e["topic"], e["name"]) for e in world.told("incident")} == {("t", "target_topic_recreated")}
    assert len(world.told("incident")) == 2
    assert world.incidents() == dict.fromkeys((A, B), "target_topic_recreated")
    assert world.position(U) == before + 10


def test_a_cut_that_the_client_reports_stops_a_partition_that_can_not_be_judged_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client looks for it once in a session: what waited would be read on behind the cut."""
    world, poll = World(), FakePlane.poll
    filled(world, 6)
    world.run()

    def cut(plane: FakePlane, records_max: int, timeout_s: float) -> PollResult:
        found = poll(plane, records_max, timeout_s)
        if not world.source.down:
            found.failed[A] = Incident("source_truncated", "by its epoch", topic="t", partition=0)
            world.source.down = True
        return found

    monkeypatch.setattr(FakePlane, "poll", cut)
    world.run("another")
    assert world.incidents() == {A: "source_truncated"}


def test_an_incident_is_told_once_however_its_facts_grow() -> None:
    world = World()
    filled(world, 6)
    world.run()
    world.source.topics["t"].logs[0].truncate(3)

    def grow() -> None:
        world.source.topics["t"].logs[0].put("more")
        raise Retriable("the lane starts over")

    for _ in range(2):
        world.on.append(("plane.poll", grow))
    world.run("another")
    assert len(world.told("restarted")) == 2
    assert len([e for e in world.told("incident") if e["partition"] == 0]) == 1


def test_a_topic_of_the_flow_that_is_missing_at_the_target_is_no_missing_source_topic() -> None:
    world = World()
    filled(world, 3)

    def missing() -> None:
        world.on.append(("state.claims", missing))
        raise TopicMissing("cluster 'west': cannot read __eos.f.claims[0]: UNKNOWN_TOPIC_OR_PART")

    world.on.append(("state.claims", missing))
    world.run()
    assert {event["reason"] for event in world.told("waiting")} == {"no_answer"}
