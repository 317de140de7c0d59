"""What a repair's report has of each partition."""

from __future__ import annotations

from dataclasses import dataclass, field

from replicator.model.errors import Incident
from replicator.model.partition import Partition, Span
from replicator.proof.repair_report import RepairFacts, repair_report
from tests.replicator.spark.reconcile.sample_outcomes import outcome, partition

AT = Partition("t", 0)


@dataclass
class Done:
    copied: int = 0
    standing: int = 0
    superseded: int = 0
    superseded_at: list[Span] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)
    incident: Incident | None = None


def row(facts: RepairFacts, **verdicts: int) -> dict[str, object] | None:
    found = repair_report(outcome(partition(verdicts=verdicts)), facts)["partitions"]
    return found[0] if found else None


def test_what_lacks_nothing_may_have_more_or_stand_in_another_order() -> None:
    assert partition().lacks_nothing
    assert partition(verdicts={"same": 9, "doubled": 1, "extra": 1, "reordered": 1}, chunks_differing=1).lacks_nothing
    for verdict in ("missing", "altered", "differs", "unproven"):
        assert not partition(verdicts={"same": 9, verdict: 1}, chunks_differing=1).lacks_nothing
    assert not partition(chunks_differing=1).lacks_nothing


def test_what_was_done_and_what_would_be_are_told_apart() -> None:
    missing = {AT: [(3, 5, 2), (7, 9, 2)]}
    asked = Done(2, 1, 1, [(8, 9)], {"who knows": 3})
    plan, done = row(RepairFacts(missing, {AT: asked})), row(RepairFacts(missing, {AT: asked}, 7, {AT: 4}))
    assert plan is not None
    assert done is not None
    assert (plan["to_copy"], plan["copied"], plan["copied_before"]) == (2, None, None)
    assert (done["to_copy"], done["copied"], done["copied_before"]) == (None, 2, 4)
    for one in (plan, done):
        assert (one["missing"], one["standing"], one["superseded"]) == (4, 1, 1)
        assert one["superseded_spans"] == [{"first": 8, "end": 9}]
        assert one["refused"] == "3 not copied: who knows"


def test_a_partition_has_a_row_where_something_is_to_be_said() -> None:
    assert row(RepairFacts({}), same=4, expired=1) is None
    stays = row(RepairFacts({}), same=4, altered=1)
    assert stays is not None
    assert stays["stays"] == {"altered": 1}
    assert row(RepairFacts({}, {AT: Done(refused={"who knows": 1})}), unproven=1) is not None
    guessed = row(RepairFacts({AT: [(1, 2, 1)]}, refused={AT: "guessed"}), missing=1)
    assert guessed is not None
    assert (guessed["refused"], guessed["to_copy"]) == ("guessed", None)
