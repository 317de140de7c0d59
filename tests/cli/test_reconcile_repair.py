"""What `reconcile --repair` says on the terminal and in the report."""

from __future__ import annotations

import io
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from rich.console import Console

from cli.commands import reconcile_map_repair
from cli.commands.reconcile_map_repair import RepairsBefore
from cli.commands.reconcile_repair import Repairing, show
from cli.stopping import Stopping
from replicator import config
from replicator.config import Flow
from replicator.jobs import repair_plan
from replicator.jobs.repair import RepairedPartition, RepairSummary
from replicator.jobs.repair_plan import PlannedPartition
from replicator.jobs.repair_spans import Damage, Missing
from replicator.model.partition import Partition
from replicator.proof.outcome import Outcome
from replicator.proof.pairs import Pair
from replicator.proof.snapshot import Snapshot
from replicator.spark.reconcile.by_map.compared_pairs import ComparedPair
from tests.cli.test_reconcile import FILE
from tests.replicator.spark.reconcile.sample_outcomes import outcome, partition

AT = Partition("t", 0)
FOUND = outcome(partition(verdicts={"same": 5, "missing": 4, "extra": 1}))
SPANS = (Missing(3, 5, 2), Missing(7, 9, 2))
TAKEN = Snapshot((Pair(source=AT, target=AT, source_range=(0, 10), target_range=(0, 7)),), (), 0)
Planned = Callable[..., dict[Partition, PlannedPartition]]


def plan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: Planned) -> Outcome:
    """What a plan makes of the outcome when both sides answer so."""
    monkeypatch.setattr(repair_plan, "planned", answer)
    (tmp_path / "flows.yaml").write_text(FILE)
    loaded = config.load(tmp_path / "flows.yaml")
    repairing = Repairing(loaded, loaded.flows["f"], "plan", False)
    repairing._found = {AT: SPANS}
    with Stopping() as stopping:
        return repairing.finish(FOUND, TAKEN, stopping, lambda _: None)


def test_a_plan_says_what_both_sides_have_answered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Mapping[Partition, Damage]] = []

    def answer(flow: Flow, damage: Mapping[Partition, Damage], *_: object) -> dict[Partition, PlannedPartition]:
        asked.append(damage)
        return {AT: PlannedPartition(1, 2, 1, ((8, 9),))}

    found = plan(monkeypatch, tmp_path, answer)
    assert asked == [{AT: Damage(SPANS, 10, 7)}]
    assert found.repair is not None
    (row,) = found.repair["partitions"]
    assert (row["to_copy"], row["standing"], row["superseded"], row["copied"]) == (1, 2, 1, None)
    assert row["superseded_spans"] == [{"first": 8, "end": 9}]
    said = io.StringIO()
    show(Console(file=said, width=300), found.repair)
    assert said.getvalue().splitlines()[:4] == [
        "repair: t[0]: 4 records missing, 1 to be copied again (source offsets 3-4, 7-8)",
        "repair: t[0]: 2 not to be copied, they are on the target by now",
        "repair: t[0]: 1 not to be copied, superseded by a later record of their key (source offsets 8-8)",
        "repair: t[0]: 1 extra: can't be repaired",
    ]


def test_a_plan_that_was_stopped_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def stopped(_: Flow, damage: object, asked: threading.Event, say: object) -> dict[Partition, PlannedPartition]:
        asked.set()
        return {}

    with pytest.raises(KeyboardInterrupt):
        plan(monkeypatch, tmp_path, stopped)


@pytest.mark.parametrize(("kept", "asked"), [(True, 1), (False, 0)])
def test_what_nothing_is_missing_of_is_handed_over_if_a_repair_has_kept_it(
    kept: bool, asked: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "flows.yaml").write_text(FILE)
    loaded = config.load(tmp_path / "flows.yaml")
    refused = PlannedPartition(refused=Counter({"who knows": 1}))
    repairing = Repairing(loaded, loaded.flows["f"], "apply", False)
    repairing._before = RepairsBefore(kept=kept)
    compared = outcome(partition(verdicts={"same": 9, "unproven": 1}))
    repairing._compared = {AT: ComparedPair(compared.partitions[0], [], refused)}
    calls = list[Sequence[object]]()

    def run(loaded: object, flow: object, requests: Sequence[object], *_: object, **__: object) -> RepairSummary:
        calls.append(requests)
        return RepairSummary(5, 1.0, False, {})

    monkeypatch.setattr(reconcile_map_repair, "run_repair", run)
    with Stopping() as stopping:
        found = repairing.finish(compared, TAKEN, stopping, lambda _: None)
    assert calls == [[]] * asked
    assert found.repair is not None
    assert found.repair["partitions"][0]["refused"] == "1 not copied: who knows"


@pytest.mark.parametrize(("stopped", "handed_over", "code"), [(True, True, 130), (False, True, 0), (False, False, 4)])
def test_a_repair_that_was_stopped_or_keeps_the_flow_does_not_exit_as_one_that_is_done(
    stopped: bool, handed_over: bool, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "flows.yaml").write_text(FILE)
    loaded = config.load(tmp_path / "flows.yaml")
    repairing = Repairing(loaded, loaded.flows["f"], "apply", False)
    repairing._found = {AT: SPANS}
    summary = RepairSummary(5, 1.0, stopped, {AT: RepairedPartition(2, 0)}, handed_over)
    monkeypatch.setattr(reconcile_map_repair, "run_repair", lambda *_, **__: summary)
    with Stopping() as stopping:
        found = repairing.finish(FOUND, TAKEN, stopping, lambda _: None)
    assert found.repair is not None
    assert found.repair["partitions"][0]["copied"] == 2
    assert repairing.code == code
