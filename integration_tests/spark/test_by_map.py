"""By the offset map Spark says what `reconcile --local` says, of whatever was done to logs and map."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from integration_tests.harness.broker import BrokerHandle
from integration_tests.proof.mapped_lane import DAMAGE, MAP_ERRORS
from integration_tests.proof.mapped_logs import MappedFlow
from integration_tests.proof.test_local import Silent, cleaned, taken_of
from integration_tests.proof.test_repair import asked, damaged, harm, read, rows
from integration_tests.spark.conftest import Command
from integration_tests.spark.seeded_logs import CLEANABLE
from replicator.proof import verdicts
from replicator.proof.local import LocalResult, reconcile_local
from replicator.proof.outcome import DIFFERS, Mode, Outcome, PartitionOutcome
from replicator.proof.outcome_json import as_json
from replicator.spark.reconcile.by_map import compare
from replicator.spark.reconcile.reconcile import Reconciled, reconcile
from tests.budget import budget

AT_ONCE = 12
CASES: dict[str, Sequence[str]] = {
    "clean": (),
    "damage": DAMAGE,
    "repaired": (*DAMAGE, "repaired"),
    "map": (*DAMAGE, *MAP_ERRORS, "repaired"),
}
OWN = {"chunks", "chunks_differing", "records_opened"}
"""Keys of a partition that tell how it was compared."""


def plain(outcome: PartitionOutcome, whole: Outcome) -> dict[str, Any]:
    """A partition as report.json has it."""
    (found,) = as_json(replace(whole, partitions=(outcome,)))["partitions"]
    return {name: value for name, value in found.items() if name not in OWN}


def both(flow: MappedFlow, spark: SparkSession, mode: Mode) -> tuple[LocalResult, Reconciled]:
    taken = taken_of(flow)
    return reconcile_local(flow.flow, taken, Silent()), reconcile(spark, flow.flow, taken, mode, lambda *_: None)


def assert_alike(flow: MappedFlow, spark: SparkSession, mode: Mode = "full") -> int:
    """How many partitions were compared by the map."""
    local, found = both(flow, spark, mode)
    there = {one.source: one for one in found.outcome.partitions}
    assert len(there) == len(local.outcome.partitions)
    wrong, by_map = [], 0
    for one in local.outcome.partitions:
        other = there[one.source]
        if other.by_content:
            assert "not covered by the offset map" in other.by_content
            assert one.verdict != "agrees"
            continue
        by_map += 1
        expected, said = plain(one, local.outcome), plain(other, found.outcome)
        seed = flow.seeds[one.source.partition]
        wrong += [
            f"seed {seed}: {name}: {said[name]}, --local {expected[name]}"
            for name in expected
            if said[name] != expected[name]
        ]
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong[:20])
    assert found.outcome.notes == local.outcome.notes
    return by_map


@pytest.mark.tier("full")
@pytest.mark.parametrize("part", range(budget(1, 10)))
@pytest.mark.parametrize("case", CASES)
def test_spark_says_what_local_says(
    case: str,
    part: int,
    spark: SparkSession,
    source: BrokerHandle,
    target: BrokerHandle,
    tmp_path: Path,
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compare, "CHUNK_BITS_MIN", (2, 5, 12)[part % 3])
    monkeypatch.setattr(compare, "WHOLE_MAX", 0)
    seeds = range(part * AT_ONCE, (part + 1) * AT_ONCE)
    flow = MappedFlow(source, target, tmp_path, unique("alike"), seeds, CASES[case])
    assert assert_alike(flow, spark) >= (AT_ONCE if case != "map" else 1)
    for number, truth in enumerate(flow.truths):  # then retention on one side or on both
        draw = random.Random(flow.seeds[number])
        ends = [draw.choice((0, draw.randrange(max(1, end)))) for end in (truth.position, truth.next_target)]
        flow.cut(number, source=ends[0], target=ends[1])
    assert_alike(flow, spark, "deep")
    monkeypatch.undo()
    assert_alike(flow, spark)  # the same pairs are small by default, and judged as a whole


@pytest.mark.tier("long")
def test_so_it_does_of_long_partitions_and_of_what_a_cleaner_took(
    spark: SparkSession,
    source: BrokerHandle,
    target: BrokerHandle,
    tmp_path: Path,
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compare, "WHOLE_MAX", 0)
    acts = ("keyed", *DAMAGE, "repaired")
    flow = MappedFlow(source, target, tmp_path, unique("alike"), range(2), acts, configs=CLEANABLE, transactions=120)
    assert assert_alike(flow, spark) == 2
    cleaned(flow)
    assert assert_alike(flow, spark) == 2


@pytest.mark.tier("long")
def test_the_quick_pass_says_how_many_records_are_in_chunks_that_differ(
    spark: SparkSession,
    source: BrokerHandle,
    target: BrokerHandle,
    tmp_path: Path,
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compare, "CHUNK_BITS_MIN", 2)
    flow = MappedFlow(source, target, tmp_path, unique("quick"), range(6), DAMAGE)
    local, found = both(flow, spark, "quick")
    for one, other in zip(local.outcome.partitions, found.outcome.partitions, strict=True):
        assert other.verdicts.keys() <= {verdicts.SAME, DIFFERS}
        assert bool(other.differences) == (one.verdicts != {verdicts.SAME: one.same})
        assert one.same - 4 * one.differences <= other.same <= one.same


@pytest.mark.tier("long")
def test_a_repair_goes_by_the_map(
    command: Command, source: BrokerHandle, target: BrokerHandle, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    flow = damaged(MappedFlow(source, target, tmp_path, unique("again"), range(AT_ONCE), (*DAMAGE, "lost_block")))
    code, said = command(flow, "--repair", "apply", "--out", str(tmp_path / "report"))
    assert code in (1, 4), said
    found, after = rows(json.loads((tmp_path / "report" / "report.json").read_text())), read(flow)
    wrong = [
        f"seed {flow.seeds[number]} ({truth.acts}): {text}"
        for number, truth in enumerate(flow.truths)
        for text in harm(truth, after[number], found.get(number))
    ]
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong[:20])
    assert any(row["copied"] for row in found.values())
    _, report = asked(flow, "--repair", "plan")
    assert not any(row["to_copy"] for number, row in rows(report).items() if not flow.truths[number].unmapped)
