"""Configs of existing target topics follow those of their source topics, and hold back nothing."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import replace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from replicator.flow.discovery import Discovered
from replicator.flow.group_watch import GroupWatch
from replicator.model.errors import Incident, NotAllowed, ReplicatorError, Unreachable
from tests.replicator.flow.fakes import topic
from tests.replicator.flow.test_discovery import DiscoveryRun, Group, started

DENIED = NotAllowed("cluster 'b': the user needs AlterConfigs on topic 'a.t1'")


def differing(settings: str = "topic_configs: {sync: true}", group: GroupWatch | None = None) -> DiscoveryRun:
    """A flow whose topics `t1` and `t2` were given another retention."""
    made = started(settings, group=group)
    made.plane.source["t2"] = topic("t2")
    made.once()
    for name in ("t1", "t2"):
        made.plane.source[name] = replace(made.plane.source[name], configs={"retention.ms": "9"})
        copy = made.plane.copy(name)
        made.plane.target[copy] = replace(made.plane.target[copy], configs={"retention.ms": "5", "segment.ms": "7"})
    return made


def configs(made: DiscoveryRun) -> list[str]:
    return [made.plane.target[made.plane.copy(name)].configs["retention.ms"] for name in ("t1", "t2")]


def told(made: DiscoveryRun) -> list[MutableMapping[str, Any]]:
    """What one discovery logs about configs; it is found out, too, where the topics go."""
    with capture_logs() as logs:
        (found,) = made.once()
    assert isinstance(found, Discovered)
    return [line for line in logs if str(line["event"]).startswith("topic_configs")]


def test_they_are_set_once_and_others_stay() -> None:
    made = differing()
    lines = told(made)
    assert [(line["event"], line["topic"], line["configs"]) for line in lines] == [
        ("topic_configs_set", "a.t1", "retention.ms: 5 → 9"),
        ("topic_configs_set", "a.t2", "retention.ms: 5 → 9"),
    ]
    assert configs(made) == ["9", "9"]
    assert made.plane.target["a.t1"].configs["segment.ms"] == "7"
    assert told(made) == []


def test_without_being_asked_for_nothing_is_set() -> None:
    made = differing("")
    assert told(made) == []
    assert configs(made) == ["5", "5"]


def test_one_that_is_refused_is_told_once_and_the_other_is_set() -> None:
    made = differing()
    made.plane.refused["a.t1"] = DENIED
    first, second = told(made)
    assert (first["event"], first["topic"], first["reason"]) == ("topic_configs_not_set", "a.t1", str(DENIED))
    assert (second["event"], second["topic"]) == ("topic_configs_set", "a.t2")
    assert told(made) == []
    made.plane.refused["a.t1"] = Incident("refused_by_cluster", "by policy")
    assert [line["event"] for line in told(made)] == ["topic_configs_not_set"]
    del made.plane.refused["a.t1"]
    assert [line["event"] for line in told(made)] == ["topic_configs_set"]
    assert configs(made) == ["9", "9"]


@pytest.mark.parametrize("error", [Unreachable("the controller is away"), DENIED])
def test_where_nothing_can_be_set_discovery_goes_on(error: ReplicatorError) -> None:
    made = differing()
    made.plane.unset = error
    assert [line["reason"] for line in told(made)] == [str(error)] * 2
    assert told(made) == []
    made.plane.unset = None
    assert [line["event"] for line in told(made)] == ["topic_configs_set"] * 2


def test_a_topic_of_which_the_source_hides_the_configs_is_left_alone() -> None:
    made = differing()
    made.plane.denied_configs["t1"] = NotAllowed("cluster 'a': the user needs DescribeConfigs on topic 't1'")
    assert [line["topic"] for line in told(made)] == ["a.t2"]
    assert configs(made) == ["5", "9"]


def test_of_the_workers_that_share_a_flow_one_sets_them() -> None:
    group = Group(leads=False)
    made = differing(group=cast(GroupWatch, group))
    made.once()
    assert configs(made) == ["5", "5"]
    group.leads = True
    made.once()
    assert configs(made) == ["9", "9"]
