"""A repair of partitions that were compared by the offset map and of others that were compared by content is one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.commands import reconcile_map_repair
from integration_tests.harness.broker import BrokerHandle
from integration_tests.proof.mapped_logs import MappedFlow
from integration_tests.proof.test_repair import damaged, harm, read, rows
from integration_tests.spark.conftest import Command
from replicator.jobs.repair_by_map import RepairByMap

pytestmark = pytest.mark.tier("long", kafka="long")
ACTS = ("lost", "lost_block")


def test_both_are_repaired_in_one_generation(
    command: Command,
    source: BrokerHandle,
    target: BrokerHandle,
    tmp_path: Path,
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between two repairs another worker could take the flow, and the second one would be refused."""
    flow = damaged(MappedFlow(source, target, tmp_path, unique("both"), range(12), ACTS))
    repaired, kinds = reconcile_map_repair.run_repair, list[list[bool]]()

    def noting(loaded: Any, of: Any, requests: Any, *more: Any, **options: Any) -> Any:
        kinds.append([isinstance(request, RepairByMap) for request in requests])
        return repaired(loaded, of, requests, *more, **options)

    monkeypatch.setattr(reconcile_map_repair, "run_repair", noting)
    code, said = command(flow, "--repair", "apply", "--json")
    assert code == 1, said
    assert kinds == [[True, False]]
    report, _ = json.JSONDecoder().raw_decode(said)  # behind it is what stderr has
    found, after = rows(report), read(flow)
    wrong = [text for number, truth in enumerate(flow.truths) for text in harm(truth, after[number], found.get(number))]
    assert not wrong
    assert sum(row["copied"] or 0 for row in found.values()) > 0
