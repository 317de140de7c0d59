"""The flow's map topic: made once, checked, and never a reason not to copy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from replicator.flow.offsets_topic import map_topic_of
from replicator.kafka.topic_questions import TopicInfo
from replicator.model.errors import Incident, NotAllowed, ReplicatorError
from replicator.offset_map.topic import CONFIGS
from tests.replicator.flow.fakes import MAP, FakePlane, flow, setup_of, topic

GOOD = TopicInfo(MAP, "m", 16, {**CONFIGS, "max.message.bytes": "1048588"})


def plane(settings: str = "", found: TopicInfo | None = None) -> FakePlane:
    made = FakePlane(flow(settings), {"t1": topic("t1")})
    if found is not None:
        made.target[MAP] = found
    return made


def begun(made: FakePlane) -> tuple[bool, list[str]]:
    """Whether lanes write the map, and what is logged about it."""
    setup = setup_of(made)
    with capture_logs() as logs:
        setup.begin()
    return bool(setup.map_topic_id), [str(line.get("name", line["event"])) for line in logs]


def test_it_is_made_with_sixteen_partitions_that_lose_nothing() -> None:
    made = plane()
    assert begun(made) == (True, [])
    assert (made.target[MAP].partitions, made.target[MAP].configs) == (16, CONFIGS)
    spec = map_topic_of(flow("topic_configs: {replication_factor: 3}"))
    assert spec is not None
    assert spec.replication_factor == 3


def test_one_that_is_there_is_used() -> None:
    assert begun(plane(found=GOOD)) == (True, [])


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
def test_weaker_delivery_modes_have_none(delivery: str) -> None:
    made = plane(f"delivery: {delivery}")
    assert begun(made) == (False, [])
    assert MAP not in made.target


@pytest.mark.parametrize(
    "found",
    [
        replace(GOOD, partitions=1),
        replace(GOOD, partitions=32),
        replace(GOOD, configs={**GOOD.configs, "cleanup.policy": "compact"}),
        replace(GOOD, configs={**GOOD.configs, "retention.ms": "604800000"}),
        replace(GOOD, configs={**GOOD.configs, "retention.bytes": "1073741824"}),
        replace(GOOD, configs={**GOOD.configs, "max.message.bytes": "100000"}),
    ],
)
def test_one_that_would_lose_blocks_or_refuse_them_is_not_written(found: TopicInfo) -> None:
    assert begun(plane(found=found)) == (False, ["map_topic_unfit"])


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (NotAllowed("cluster 'b': the user needs Create on topic"), "map_not_written"),
        (Incident("refused_by_cluster", "a policy"), "refused_by_cluster"),
    ],
)
def test_where_it_is_not_to_be_made_the_flow_starts_all_the_same(refusal: ReplicatorError, told: str) -> None:
    made = plane()
    made.refused[MAP] = refusal
    assert begun(made) == (False, [told])


def test_one_that_was_deleted_is_made_again_when_topics_are_listed_and_what_is_wrong_is_told_once() -> None:
    made = plane()
    setup = setup_of(made)
    with capture_logs() as logs:
        setup.begin()
        del made.target[MAP]
        setup.look_after_map()
        assert made.target[MAP].partitions == 16
        made.target[MAP] = replace(GOOD, partitions=1)
        for _ in range(3):
            setup.look_after_map()
        assert setup.map_topic_id == ""
        made.target[MAP] = GOOD
        setup.look_after_map()
        assert setup.map_topic_id == "m"
        made.target[MAP] = replace(GOOD, partitions=1)
        setup.look_after_map()
    assert [line["name"] for line in logs] == ["map_topic_unfit"] * 2


def test_without_the_right_to_see_it_the_flow_starts_all_the_same() -> None:
    made = plane()
    made.denied[MAP] = NotAllowed("cluster 'b': the user needs Describe on topic")
    assert begun(made) == (False, ["map_not_written"])
