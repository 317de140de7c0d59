"""Retention removes all that a comparison by the map on Spark is about to read: no task has a row of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.two_topics import TwoTopics
from integration_tests.spark.conftest import Command
from replicator.spark.reconcile.by_map import compare

pytestmark = pytest.mark.tier("long", kafka="long")


def test_what_retention_removes_before_tasks_read_it_is_no_difference(
    make_copying: MakeCopying, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = TwoTopics(make_copying(partitions=1))
    two.assert_stops(two.running(10), 0)
    compared = compare.compare_by_map

    def cut_first(*arguments: Any, **how: Any) -> Any:
        clients.delete_records(two.source, two.first, 0, clients.stable_end(two.source, two.first))
        copy = two.copy_of(two.first)
        clients.delete_records(two.target, copy, 0, clients.stable_end(two.target, copy))
        return compared(*arguments, **how)

    monkeypatch.setattr("replicator.spark.reconcile.reconcile.compare_by_map", cut_first)
    code, said = command(two.flow, "--json")
    assert code == 0, said
    report, _ = json.JSONDecoder().raw_decode(said)  # behind it is what stderr has
    (row,) = [it for it in report["partitions"] if it["source"]["topic"] == two.first]
    assert (row["by_content"], row["source_records"]) == (None, 0)
