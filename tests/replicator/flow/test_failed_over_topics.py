"""Target topics of what was failed over are left as they are: consumers and producers have them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replicator.flow.listing import config_changes
from replicator.flow.occupied import check_topics
from replicator.flow.topic_rules import ListedTopic
from replicator.model.errors import FlowFrozen
from replicator.model.partition import Partition
from tests.replicator.flow.fakes import FakePlane, claim, flow, run_before, setup_of, topic

SYNC = "topic_configs: {sync: true}"
FAILED_OVER = {"t1": 2, "t2": 2}


def plane() -> FakePlane:
    """Of `t1` the copy is too small, of `t2` there is none, `t3` is copied."""
    made = FakePlane(flow(SYNC), {name: topic(name, 3) for name in ("t1", "t2", "t3")})
    made.target = {"a.t1": topic("a.t1", 2), "a.t3": topic("a.t3", 2)}
    return run_before(made, claim("t1"), claim("t3"))


def test_they_are_neither_made_nor_grown_and_their_partitions_wait() -> None:
    made = plane()
    setup = setup_of(made)
    listing = setup.begin()
    control = made.state.control_topic
    assert control is not None
    assert control.open is not None
    setup.take_generation(replace(control.open, failed_over=FAILED_OVER))
    before = list(made.created)
    routes = setup.routes(listing).routes
    assert (made.created, made.grown) == (before, ["a.t3"])
    for name in ("t1", "t2"):
        assert {routes[Partition(name, number)].waiting for number in range(3)} == {
            f"topic {name} was failed over (generation 2): nothing of it is copied until failover --undo --topics"
        }
    assert not routes[Partition("t3", 2)].waiting
    setup.take_generation(control.open)
    setup.routes(listing)
    assert set(made.created) - set(before) == {"a.t2"}
    assert sorted(made.grown) == ["a.t1", "a.t3"]


def test_no_configs_are_set_there() -> None:
    made = plane()
    listing = setup_of(made).begin()
    there = {
        name: ListedTopic(replace(info, configs={**info.configs, "cleanup.policy": "compact"}))
        for name, info in made.target.items()
        if name.startswith("a.")
    }
    assert {it.topic for it in config_changes(made.flow, listing, there)} == {"a.t1", "a.t3"}
    assert {it.topic for it in config_changes(made.flow, listing, there, FAILED_OVER)} == {"a.t3"}


def test_what_would_move_them_is_refused_with_the_reason() -> None:
    check_topics(flow(), FAILED_OVER, ["t3"])
    with pytest.raises(FlowFrozen, match=r"flow f: topic t2 was failed over \(generation 2\)") as refused:
        check_topics(flow(), FAILED_OVER, ["t3", "t2"])
    assert refused.value.exit_code == 5
