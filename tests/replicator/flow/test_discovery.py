"""What discovery finds of topics and generation, and what it never holds back."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import structlog
from structlog.testing import capture_logs

from replicator.flow.discovery import Discovered, Discovery, DiscoveryEnded, FlowNotes
from replicator.flow.group_watch import GroupWatch
from replicator.flow.topics import ControlPlane
from replicator.model.errors import Incident, NotAllowed, ReplicatorError, TakenOver, Unreachable
from replicator.state.generation import Generation, LaneAssignment
from tests.replicator.flow.fakes import FakePlane, drained, flow, run_before, setup_of, topic


def opened_one(control: Any) -> Generation:
    return cast(Generation, control.open)


@dataclass
class Group:
    """What a shared flow's discovery asks of the group: who in it is no worker."""

    wrong: list[Incident] = field(default_factory=list)
    leads: bool = True
    due: bool = False

    unfit: ReplicatorError | None = None

    def look(self) -> list[Incident]:
        return list(self.wrong)

    def make_topic(self) -> None:
        if self.unfit is not None:
            raise self.unfit


class DiscoveryRun:
    """One flow that has begun, and looks when it is told to."""

    def __init__(self, plane: FakePlane, group: GroupWatch | None = None) -> None:
        self.plane = plane
        setup = setup_of(plane)
        setup.begin()
        self.events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.asked = threading.Event()
        generation = opened_one(plane.state.control_topic)
        log = structlog.get_logger()
        self.notes = FlowNotes(log)
        made = cast(ControlPlane, plane)
        self.discovery = Discovery(setup, made, generation, self.notes, self.events, self.asked, log, group)

    def once(self) -> list[Any]:
        self.discovery.discover()
        return drained(self.events)


def started(settings: str = "", topics: str = '["^t.*"]', group: GroupWatch | None = None) -> DiscoveryRun:
    return DiscoveryRun(run_before(FakePlane(flow(settings, topics), {"t1": topic("t1")})), group)


def test_new_topics_are_found_and_made() -> None:
    made = started()
    made.plane.source["t2"] = topic("t2")
    (found,) = made.once()
    assert isinstance(found, Discovered)
    assert {at.topic for at in found.routing.routes} == {"t1", "t2"}
    assert made.plane.created == ["a.t1", "a.t2"]


def test_a_recreated_topic_is_found_beside_one_in_trouble() -> None:
    made = started()
    made.once()
    made.plane.source |= {"t1": topic("t1", topic_id="other"), "t2": topic("t2")}
    made.plane.refused["a.t2"] = Incident("refused_by_cluster", "by policy")
    (found,) = made.once()
    assert {(route.source.topic, route.source_topic_id) for route in found.routing.routes.values()} == {
        ("t1", "other"),
        ("t2", "id-t2"),
    }


@pytest.mark.parametrize("lanes", [1, 2])
def test_another_generation_ends_the_flow(lanes: int) -> None:
    made = started()
    control = made.plane.state.control_topic
    assert control is not None
    change = control.prepare(LaneAssignment(lanes), {}, 3)
    made.plane.state.control_topic = control.apply(change)
    made.discovery.discover()  # only being prepared: whoever prepares it may die before it fences the lanes
    for record in control.apply(change).finish(4):
        made.plane.state.control_topic = made.plane.state.control_topic.apply(record)
    with pytest.raises(TakenOver, match="has taken over from 1"):
        made.discovery.discover()


def test_a_lost_control_topic_ends_the_flow() -> None:
    made = started()
    made.plane.state.control_topic = None
    with pytest.raises(Incident, match="control_topic_lost"):
        made.discovery.discover()


def test_a_source_that_is_away_does_not_hide_that_the_flow_was_taken_over() -> None:
    made = started()
    made.plane.fails = Unreachable("away")
    with capture_logs() as logs:
        assert made.once() == []
    assert [entry["event"] for entry in logs] == ["discovery_failed"]
    made.plane.state.control_topic = None
    with pytest.raises(Incident, match="control_topic_lost"):
        made.discovery.discover()


def test_an_outage_is_told_once_and_again_when_its_cause_changes() -> None:
    made = started()

    def told(*errors: ReplicatorError | None) -> list[str]:
        with capture_logs() as logs:
            for made.plane.fails in errors:
                made.once()
        return [entry["reason"] for entry in logs if entry["event"] == "discovery_failed"]

    one = Unreachable("cluster 'west', broker 10.0.0.1:9092: cannot connect: Connection refused")
    other = Unreachable("cluster 'west', broker 10.0.0.2:9092: no answer in time")
    refused = Unreachable("cluster 'west' refused the credentials: wrong password")
    denied = NotAllowed("cluster 'west': the user needs Describe on topics")
    assert told(one, other, one, Unreachable("cluster 'west': cannot list topics: no answer in time")) == [str(one)]
    assert told(refused, refused, denied, denied) == [str(refused), str(denied)]
    assert told(None, None) == []
    assert told(other, one) == [str(other)]
    assert told(Unreachable("cluster 'east', broker 10.0.0.9:9092: no answer in time")) != []


def test_what_no_lane_can_tell_is_told_once() -> None:
    made = started(topics="[t1, t2]")
    with capture_logs() as logs:
        made.once()
        made.once()
    (told,) = [entry for entry in logs if entry["event"] == "incident"]
    assert (told["name"], told["topic"]) == ("unknown_source_topic", "t2")
    assert told["advice"]
    made.plane.denied["t2"] = NotAllowed("needs Describe on topic 't2'")
    with capture_logs() as logs:
        made.once()
        made.once()
    (told,) = [entry for entry in logs if entry["event"] == "waiting"]
    assert (told["topic"], told["detail"]) == ("t2", "needs Describe on topic 't2'")


def test_the_thread_ends_the_flow_with_what_it_met_and_then_closes_its_connections() -> None:
    """Not before the flow has ended, which may ask by them who else is in the group."""
    made = started("limits: {discovery_interval_ms: 100}")
    made.plane.state.control_topic = None
    made.discovery.start()
    ended = made.events.get(timeout=10)
    assert isinstance(ended, DiscoveryEnded)
    assert isinstance(ended.error, Incident)
    assert not made.plane.closed
    made.asked.set()
    made.discovery._thread.join(10)
    assert made.plane.closed


def test_the_thread_ends_when_it_is_asked_to() -> None:
    made = started()
    made.discovery.start()
    made.asked.set()
    made.discovery._thread.join(10)
    assert made.plane.closed
    assert drained(made.events) == []


def test_a_flow_that_selects_no_topic_says_so_at_its_start_and_when_the_last_one_has_gone() -> None:
    with capture_logs() as logs:
        made = DiscoveryRun(run_before(FakePlane(flow("", '["^t.*"]'), {})))
        listing = made.plane.source.copy()
        made.once()
        made.once()
        made.plane.source["t1"] = topic("t1")
        made.once()
        made.plane.source = listing
        made.once()
    assert [entry["event"] for entry in logs].count("no_topic_selected") == 2


def test_what_else_is_wrong_is_told_once_and_stands_until_it_is_over() -> None:
    wrong = [Incident("foreign_group_member", "somebody")]
    made = started(group=cast(GroupWatch, Group(wrong)))
    with capture_logs() as logs:
        made.once()
        made.once()
    assert [entry["name"] for entry in logs if entry["event"] == "incident"] == ["foreign_group_member"]
    assert made.notes.incidents == {wrong[0]}
    wrong.clear()
    made.once()
    assert not made.notes.incidents


def test_a_lanes_topic_that_can_not_be_made_again_holds_nothing_up() -> None:
    """It was deleted while workers run, or created by somebody with other partitions."""
    group = Group(unfit=Incident("lanes_topic_unfit", "2 partitions"))
    made = started(group=cast(GroupWatch, group))
    with capture_logs() as logs:
        assert len(made.once()) == 1
        assert made.notes.incidents == {group.unfit}
        group.unfit = NotAllowed("cluster 'b': the user needs Create on topic '__eos.f.lanes.1'")
        assert len(made.once()) == len(made.once()) == 1
        assert not made.notes.incidents
        group.unfit = None
        made.once()
    told = [entry["reason"] for entry in logs if entry["event"] == "lanes_topic_not_made"]
    assert told == ["cluster 'b': the user needs Create on topic '__eos.f.lanes.1'"]
