"""A topic goes while a comparison on Spark is under way: it is named, and the others are compared all the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.two_topics import TwoTopics
from integration_tests.spark.conftest import Command
from replicator.spark.reconcile.by_map import compare

pytestmark = pytest.mark.tier("full", kafka="long")

IMPATIENT = {"request_timeout_ms": 2_000, "connect_timeout_ms": 2_000}
"""Spark asks three times, each so long, for a topic that is not there."""


def source_deleted(two: TwoTopics) -> str:
    """The topic that is named."""
    clients.delete_topic(two.source, two.first)
    return two.first


def copy_deleted(two: TwoTopics) -> str:
    """The topic that is named."""
    clients.delete_topic(two.target, two.copy_of(two.first))
    return two.copy_of(two.first)


@pytest.mark.parametrize(
    ("go", "how"),
    [
        pytest.param(source_deleted, (), id="source deleted, by the map"),
        pytest.param(copy_deleted, ("--from", "2020-01-01T00:00:00Z"), id="copy deleted, by content"),
    ],
)
def test_what_goes_while_it_is_compared_keeps_nothing_else_from_being_compared(
    go: Callable[[TwoTopics], str],
    how: tuple[str, ...],
    make_copying: MakeCopying,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    two = TwoTopics(make_copying(partitions=1, limits=IMPATIENT))
    two.assert_stops(two.running(10), 0)
    compared, gone = compare.compare_by_map, list[str]()

    def after_it_went(*arguments: Any, **named: Any) -> Any:
        if not gone:
            gone.append(go(two))
        return compared(*arguments, **named)

    monkeypatch.setattr("replicator.spark.reconcile.reconcile.compare_by_map", after_it_went)
    code, said = command(two.flow, "--json", *how)
    assert code == 4, said
    report, _ = json.JSONDecoder().raw_decode(said[said.index("{\n") :])
    assert report["verdict"] == "unproven"
    assert [(it["name"], it["topic"], it["partition"]) for it in report["not_compared"]] == [("topic_gone", *gone, 0)]
    (row,) = report["partitions"]
    assert (row["source"]["topic"], row["verdicts"]) == (two.second, {"same": 10})
