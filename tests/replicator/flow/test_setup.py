"""Listing, first start, target topics and routes of a flow, on clusters made of dictionaries."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replicator.kafka.topic_questions import TopicInfo
from replicator.model.errors import Incident, NotAllowed, ReplicatorError, Retriable, Unreachable
from replicator.model.origins import Origin
from replicator.model.partition import LogEnds, Partition
from replicator.state.claims import Claim, Claims
from replicator.state.control import keeping
from replicator.state.control_topic import Control
from replicator.state.own_file import own_file
from tests.replicator.flow.fakes import (
    CLAIMS,
    CONTROL,
    FakePlane,
    claim,
    config,
    flow,
    opened,
    run_before,
    setup_of,
    topic,
)

DENIED = NotAllowed("cluster 'a': the user needs Describe on topic 't1'")


def plane(*names: str, settings: str = "", topics: str = '["^t.*"]') -> FakePlane:
    return FakePlane(flow(settings, topics), {name: topic(name) for name in names or ("t1", "t2")})


def states(made: FakePlane) -> dict[str, str]:
    """What keeps each partition back, by source partition; nothing for those that are copied."""
    setup = setup_of(made)
    routes = setup.routes(setup.begin()).routes
    return {str(at): route.stopped.name if route.stopped else route.waiting for at, route in routes.items()}


def test_a_new_flow_makes_its_control_topic_first() -> None:
    made = plane()
    setup_of(made).begin()
    assert made.created == [CONTROL, CLAIMS]


def test_the_control_topic_is_asked_for_last_before_a_first_start() -> None:
    made = plane()
    setup_of(made).begin()
    assert made.state.asked[-1] == "control"
    assert set(made.state.asked[:-1]) == {"control", "claims", "positions"}


@pytest.mark.parametrize("control", [None, Control()])
@pytest.mark.parametrize(("claimed", "positions"), [(True, False), (False, True)])
def test_a_lost_control_topic_is_not_made_again(control: Control | None, claimed: bool, positions: bool) -> None:
    made = plane()
    made.state.control_topic, made.positions = control, positions
    made.state.claims_topic = Claims({Partition("a.t1", 0): claim("t1")} if claimed else {}, ())
    with pytest.raises(Incident, match="control_topic_lost"):
        setup_of(made).begin()
    assert made.created == [], "nothing is created"


def test_an_empty_control_topic_of_a_new_flow_is_used() -> None:
    made = plane()
    made.state.control_topic = Control()
    made.target[CONTROL] = TopicInfo(CONTROL, "c", 1, {"cleanup.policy": "compact"})
    setup_of(made).begin()
    assert made.created == [CLAIMS]


def test_a_control_topic_that_somebody_else_made_is_refused() -> None:
    made = plane()
    made.state.control_topic = Control()
    made.target[CONTROL] = TopicInfo(CONTROL, "c", 1, {"cleanup.policy": "delete"})
    with pytest.raises(Incident, match="control_topic_unfit"):
        setup_of(made).begin()


def test_the_claims_topic_of_a_flow_that_has_run_is_not_made_again() -> None:
    made = run_before(plane())
    made.state.claims_topic = None
    with pytest.raises(Incident, match="claims_topic_lost"):
        setup_of(made).begin()
    assert CLAIMS not in made.created


def test_the_claims_topic_grows_with_the_lanes() -> None:
    made = run_before(plane(settings="lanes: 3"))
    made.target[CLAIMS] = TopicInfo(CLAIMS, "m", 1, {"cleanup.policy": "compact"})
    setup_of(made).begin()
    assert made.target[CLAIMS].partitions == 3


def test_a_new_flow_does_not_start_without_a_topic_that_it_names() -> None:
    made = plane("t1", topics="[t1, t2]")
    with pytest.raises(Incident, match="unknown_source_topic"):
        setup_of(made).begin()
    assert made.created == []
    made = run_before(plane("t1", topics="[t1, t2]"))
    listing = setup_of(made).begin()
    assert [(it.name, it.topic) for it in listing.missing] == [("unknown_source_topic", "t2")]
    assert list(listing.topics) == ["t1"], "the others go on"


@pytest.mark.parametrize("does", ["report", "keep"])
def test_a_named_topic_that_was_copied_and_is_gone_is_left_to_its_lanes(does: str) -> None:
    made = run_before(plane("t1", topics="[t1, t2, t3]", settings=f"deleted_topics: {does}"), claim("t2"))
    listing = setup_of(made).begin()
    assert [it.topic for it in listing.missing] == ["t3"], "which was never there"
    made = run_before(plane("t1", topics="[t1, t2, t3]"), claim("t2"))
    assert [it.topic for it in setup_of(made).begin().missing] == ["t2", "t3"]


def test_target_topics_are_made_and_routes_carry_their_ids() -> None:
    made = plane()
    setup = setup_of(made)
    routing = setup.routes(setup.begin())
    assert made.created == [CONTROL, CLAIMS, "a.t1", "a.t2"]
    assert len(routing.routes) == 4
    route = routing.routes[Partition("t2", 1)]
    assert (route.target, route.target_topic_id, route.stopped, route.waiting) == (("a.t2", 1), "id-a.t2", None, "")


def test_many_topics_take_few_requests() -> None:
    made = plane(*(f"t{number}" for number in range(500)))
    setup = setup_of(made)
    listing = setup.begin()
    before = made.requests
    assert len(setup.routes(listing).routes) == 1000
    assert made.requests - before <= 3


def test_one_topic_never_hides_another() -> None:
    made = run_before(plane("t1", "t2", "t3", "t4", "t5", "t6"), claim("t2"))
    made.target["a.t1"] = topic("a.t1", 1)
    made.target["a.t3"] = topic("a.t3", message_timestamp_type="LogAppendTime")
    made.denied_configs["t4"] = DENIED
    made.refused["a.t5"] = Incident("refused_by_cluster", "INVALID_REPLICATION_FACTOR")
    assert states(made) == {
        **dict.fromkeys(("t1[0]", "t1[1]"), "target_topic_too_small"),
        **dict.fromkeys(("t2[0]", "t2[1]"), "target_topic_deleted"),
        **dict.fromkeys(("t3[0]", "t3[1]"), "target_rewrites_timestamps"),
        **dict.fromkeys(("t4[0]", "t4[1]"), str(DENIED)),
        **dict.fromkeys(("t5[0]", "t5[1]"), "refused_by_cluster"),
        **dict.fromkeys(("t6[0]", "t6[1]"), ""),
    }
    assert made.created == ["a.t6"]


def test_a_target_name_that_is_too_long_stops_its_topic_alone() -> None:
    """At the first start too, where the target is asked for positions in all target topics."""
    long = f"t{'x' * 247}"
    made = plane("t1", long)
    assert {name[:2]: why for name, why in states(made).items()} == {"t1": "", "tx": "target_topic_name_invalid"}
    assert made.created == [CONTROL, CLAIMS, "a.t1"]


def test_a_right_to_create_that_is_missing_makes_the_topic_wait() -> None:
    made = plane()
    made.refused["a.t1"] = NotAllowed("needs Create on topic 'a.t1'")
    found = states(made)
    assert (found["t1[0]"], found["t2[0]"]) == ("needs Create on topic 'a.t1'", "")


def test_a_right_to_grow_that_is_missing_holds_back_the_new_partitions_only() -> None:
    made = run_before(plane("t1"), claim("t1"))
    made.target["a.t1"] = topic("a.t1", 1)
    made.refused["a.t1"] = NotAllowed("needs Alter")
    assert states(made) == {"t1[0]": "", "t1[1]": "needs Alter"}


def test_a_topic_of_the_flow_grows() -> None:
    made = run_before(plane("t1"), claim("t1"))
    made.target["a.t1"] = topic("a.t1", 1)
    assert states(made) == {"t1[0]": "", "t1[1]": ""}
    assert made.grown == ["a.t1"]


def grown_before_its_claim(made: FakePlane) -> FakePlane:
    """The flow was opened and its topic made; before it was claimed the source got a third partition."""
    run_before(made)
    made.target["a.t1"] = topic("a.t1", 2)
    made.source["t1"] = topic("t1", 3)
    return made


def test_a_topic_that_was_never_claimed_grows_with_its_source() -> None:
    made = grown_before_its_claim(plane("t1"))
    assert states(made) == dict.fromkeys(("t1[0]", "t1[1]", "t1[2]"), "")
    assert made.grown == ["a.t1"]


def test_a_topic_that_was_found_while_the_flow_ran_and_never_claimed_grows_with_its_source() -> None:
    made = plane("t1")
    setup = setup_of(made)
    setup.routes(setup.begin())
    for partitions in (2, 3):
        made.source["t2"] = topic("t2", partitions)
        routes = setup.routes(setup.listing()).routes
        assert {route.stopped for route in routes.values()} == {None}
    assert made.grown == ["a.t2"]


@pytest.mark.parametrize(
    ("end", "state"),
    [
        (LogEnds("id-a.t1", 0, 0, 1), "target_topic_too_small"),
        (LogEnds("id-a.t1", 7, 7, 7), "target_topic_too_small"),
        (Retriable("a.t1[1] has no leader"), "whether 'a.t1' may grow isn't known: a.t1[1] has no leader"),
    ],
)
def test_a_topic_that_anybody_has_written_to_does_not_grow_without_a_claim(
    end: LogEnds | ReplicatorError, state: str
) -> None:
    made = grown_before_its_claim(plane("t1"))
    made.target_logs.known[Partition("a.t1", 1)] = end
    assert states(made) == dict.fromkeys(("t1[0]", "t1[1]", "t1[2]"), state)
    assert made.grown == []


def test_a_topic_that_was_too_small_when_the_flow_found_it_does_not_grow() -> None:
    made = plane("t1")
    made.target["a.t1"] = topic("a.t1", 1)
    setup = setup_of(made)
    for listing in (setup.begin(), setup.listing()):
        stopped = [route.stopped for route in setup.routes(listing).routes.values()]
        assert [it and it.name for it in stopped] == ["target_topic_too_small"] * 2
    assert made.target_logs.asked == [], "nothing that it could answer would matter"


def test_a_topic_that_may_not_be_seen_any_more_waits_and_is_not_taken_for_deleted() -> None:
    made = run_before(plane("t1", "t2"))
    setup = setup_of(made)
    before = setup.routes(setup.begin()).routes
    made.denied["t1"] = DENIED
    now = setup.routes(setup.listing()).routes
    assert now.keys() == before.keys()
    assert {route.waiting for at, route in now.items() if at.topic == "t1"} == {str(DENIED)}
    assert {route.waiting for at, route in now.items() if at.topic == "t2"} == {""}
    del made.denied["t1"]
    assert setup.routes(setup.listing()).routes == before


def test_a_topic_that_may_not_be_seen_at_the_start_is_known_by_its_claims() -> None:
    made = run_before(plane("t1", "t2"), claim("t1"), claim("t1", 1))
    made.target |= {"a.t1": topic("a.t1"), "a.t2": topic("a.t2")}
    made.denied["t1"] = DENIED
    assert states(made) == {"t1[0]": str(DENIED), "t1[1]": str(DENIED), "t2[0]": "", "t2[1]": ""}


def test_a_topic_is_known_by_claims_that_the_beginning_could_not_see_yet() -> None:
    made = run_before(plane("t1", "t2"))
    made.target |= {"a.t1": topic("a.t1"), "a.t2": topic("a.t2")}
    made.denied["t1"] = DENIED
    setup = setup_of(made)
    assert {at.topic for at in setup.routes(setup.begin()).routes} == {"t2"}
    run_before(made, claim("t1"))  # the transaction that hid it has ended
    setup.settle_claims()
    routes = setup.routes(setup.listing()).routes
    assert {str(at): route.waiting for at, route in routes.items() if at.topic == "t1"} == {"t1[0]": str(DENIED)}


def test_a_topic_that_is_deleted_has_no_routes() -> None:
    made = run_before(plane("t1", "t2"))
    setup = setup_of(made)
    setup.routes(setup.begin())
    del made.source["t1"]
    assert {at.topic for at in setup.routes(setup.listing()).routes} == {"t2"}


def test_a_conflict_stops_its_topics_only() -> None:
    more = '  g: {source: a, target: b, topics: ["^.+2"], rename: "a.{topic}"}'
    whole = config("rename: 'a.{topic}'", more=more)
    made = run_before(FakePlane(whole.flows["g"], {"t2": topic("t2"), "u2": topic("u2")}))
    setup = setup_of(made, whole)
    setup._cluster_ids = {"a": "ca", "b": "cb"}
    listing = setup.listing()
    assert list(listing.conflicts) == ["t2"]
    assert "as flow 'f' would" in listing.conflicts["t2"].detail
    routes = setup.routes(listing).routes
    assert {at.topic: route.stopped and route.stopped.name for at, route in routes.items()} == {
        "t2": "flows_in_conflict",
        "u2": None,
    }
    assert made.created == ["a.u2"]


def test_sizes_are_those_of_the_targets_that_are_copied_to() -> None:
    made = plane("t1", "t2", "t3")
    made.target["a.t2"] = topic("a.t2", max_message_bytes="5000")
    made.target["a.t3"] = topic("a.t3", max_message_bytes="10", message_timestamp_type="LogAppendTime")
    setup = setup_of(made)
    routing = setup.routes(setup.begin())
    assert routing.sizes(routing.routes.values()) == [5000, 1048588]


def test_a_generation_that_is_not_open_ends_the_flow() -> None:
    made = run_before(plane())
    setup = setup_of(made)
    setup.begin()
    assert made.state.control_topic is not None
    open_ = made.state.control_topic.open
    assert open_ is not None
    setup.check_generation(1, open_.assignment)
    made.state.control_topic = None
    with pytest.raises(Incident, match="control_topic_lost"):
        setup.check_generation(1, open_.assignment)


@pytest.mark.parametrize("error", [Unreachable("away"), Retriable("no leader")])
def test_what_may_pass_is_raised_once_somebody_asks_to_stop(error: Exception) -> None:
    made = plane()
    made.fails = error  # type: ignore[assignment]
    with pytest.raises(Unreachable, match=str(error)):
        setup_of(made).begin()


def test_the_control_topic_read_at_the_start_is_not_read_again_for_the_generation() -> None:
    made = run_before(plane())
    setup = setup_of(made)
    listing = setup.begin()
    asked = len(made.state.asked)
    generation, changed = setup.change(
        lambda changer: changer.ensure(keeping(lambda _: 1), listing.partitions, lambda found: None)
    )
    assert (generation, changed) == (opened(1, listing.partitions, own_file(made.flow)).open, False)
    assert len(made.state.asked) == asked


def foreign(name: str, topic_id: str = "") -> Claims:
    """Claims of another flow, on the source, of a topic that it copies from this flow's target."""
    at = Partition(name, 0)
    claim_ = Claim(at, at, "s", topic_id or f"id-{name}", 0, 0, 1, "another", 1, "cb")
    return Claims({at: claim_}, ())


def test_a_topic_that_comes_from_the_target_is_stopped_before_anything_is_made_for_it() -> None:
    made = plane()
    made.source_claims.claims["g"] = foreign("t1")
    assert states(made) == {
        **dict.fromkeys(("t1[0]", "t1[1]"), "flows_in_conflict"),
        **dict.fromkeys(("t2[0]", "t2[1]"), ""),
    }
    assert made.created == [CONTROL, CLAIMS, "a.t2"]


def test_a_topic_that_another_flow_begins_to_write_is_found_at_the_next_discovery() -> None:
    made = run_before(plane(), claim("t1"))
    made.target["a.t1"] = topic("a.t1")
    setup = setup_of(made)
    assert setup.routes(setup.begin()).routes[Partition("t1", 0)].stopped is None
    made.source_claims.claims["g"] = foreign("t1")
    stopped = setup.routes(setup.listing()).routes[Partition("t1", 0)].stopped
    assert stopped is not None
    assert stopped.name == "flows_in_conflict"
    made.source_claims.claims["g"] = foreign("t1", "before")
    assert setup.routes(setup.listing()).routes[Partition("t1", 0)].stopped is None, "it was created again since"


def test_routes_carry_where_a_topic_comes_from() -> None:
    made = plane()
    found = foreign("t1")
    at = Partition("t1", 0)
    made.source_claims.claims["g"] = Claims({at: replace(found.claims[at], source_cluster="cz")}, ())
    setup = setup_of(made)
    routes = setup.routes(setup.begin()).routes
    assert {at.topic: route.origins for at, route in routes.items()} == {
        "t1": {Origin("cz", "t1", "g")},
        "t2": frozenset(),
    }


def test_while_claims_cannot_be_read_what_is_not_copied_yet_waits() -> None:
    made = run_before(plane(), claim("t1"))
    made.target["a.t1"] = topic("a.t1")
    made.source_claims.unread["__eos.g.claims"] = Retriable("no leader")
    found = states(made)
    assert found["t1[0]"] == ""
    assert "no leader" in found["t2[0]"]
    assert "a.t2" not in made.created


def test_claims_that_may_not_be_read_stop_nothing() -> None:
    made = plane()
    made.source_claims.unread["__eos.f.claims"] = NotAllowed("needs Describe")
    assert set(states(made).values()) == {""}
