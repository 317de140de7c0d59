"""Each rule of the offset map is needed: with one left out, the oracle finds a history that goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from replicator.offset_map import compare, places, repair_rule, target_claims, translate
from replicator.offset_map.fold import PartitionFold, PlacedSection
from replicator.offset_map.last_claims import last_claims
from replicator.offset_map.mapped import PartitionMap, Said
from replicator.offset_map.repair_rule import RepairChoice
from replicator.offset_map.run_index import RunIndex
from replicator.offset_map.section import MapSection
from replicator.offset_map.target_claims import TargetClaims
from replicator.offset_map.varints import OFFSET_MAX
from replicator.offset_map.verdicts import ComparedRecord, MapComparison
from tests.model.test_offset_map import check

SEEDS = 1_500
Patch = Callable[[pytest.MonkeyPatch], None]
Again = compare._ReadAgain


def nothing(*_: object, **__: object) -> None:
    return None


def no_left_overs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(compare, "match_by_content", nothing)


def first_claim_wins(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(target_claims, "last_claims", lambda claims: last_claims(claims[::-1]))


def key_asked_at_the_target(patch: pytest.MonkeyPatch) -> None:
    """A record is superseded if the target has one of its key behind its place, instead of the source a later one."""
    read = Again.target

    def target(again: Any, mapped: PartitionMap, rows: Iterable[ComparedRecord]) -> None:
        rows = list(rows)
        again.last_of_key = {row.key: OFFSET_MAX for row in rows if row.key is not None}
        read(again, mapped, rows)

    patch.setattr(Again, "target", target)


def first_record_at_or_above(patch: pytest.MonkeyPatch) -> None:
    """Instead of the smallest place of all records at or above the offset."""

    def smallest_place(index: RunIndex, offset: int) -> int | None:
        return next((run.place + max(0, offset - run.first) for run in index if run.end > offset), None)

    patch.setattr(RunIndex, "smallest_place", smallest_place)


def nothing_read_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RunIndex, "below_at_or_behind", lambda index, offset, place: 0)


def nothing_is_voided(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TargetClaims, "void", lambda claims, first: ())


def truncated_claims_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionFold, "_truncate", nothing)


def adopted_looks_truncated(patch: pytest.MonkeyPatch) -> None:
    """Whatever goes on below the position was cut there."""
    patch.setattr(MapSection, "count_before", OFFSET_MAX)


def adopted_below_the_beginning_is_not_compared(patch: pytest.MonkeyPatch) -> None:
    finished = PartitionFold.finished

    def patched(folding: PartitionFold, stable: int = OFFSET_MAX) -> PartitionMap:
        found = finished(folding, stable)
        return replace(found, begin=found.begun)

    patch.setattr(PartitionFold, "finished", patched)


def begun_below_before_it_is_reached(patch: pytest.MonkeyPatch) -> None:
    finished = PartitionFold.finished

    def patched(folding: PartitionFold, stable: int = OFFSET_MAX) -> PartitionMap:
        return replace(finished(folding, stable), begin=finished(folding).begin)

    patch.setattr(PartitionFold, "finished", patched)


def breaks_are_guessed_over(patch: pytest.MonkeyPatch) -> None:
    go_on = PartitionFold._go_on

    def patched(folding: PartitionFold, section: MapSection) -> None:
        go_on(folding, section)
        folding._unmapped.clear()

    patch.setattr(PartitionFold, "_go_on", patched)


def other_targets_claim(patch: pytest.MonkeyPatch) -> None:
    add = PartitionFold.add

    def patched(folding: PartitionFold, placed: PlacedSection) -> None:
        add(folding, placed._replace(target_topic_id=folding._target_topic_id))

    patch.setattr(PartitionFold, "add", patched)


def other_sources_are_compared(patch: pytest.MonkeyPatch) -> None:
    add = PartitionFold.add

    def patched(folding: PartitionFold, placed: PlacedSection) -> None:
        section = replace(placed.section, source_topic_id=folding._source_topic_id)
        add(folding, placed._replace(section=section))

    patch.setattr(PartitionFold, "add", patched)


def others_of_the_flow_are_compared(patch: pytest.MonkeyPatch) -> None:
    compared = places.is_compared

    def patched(mapped: PartitionMap, offset: int) -> bool:
        return compared(mapped, offset) or offset in mapped.others

    patch.setattr(places, "is_compared", patched)
    patch.setattr(compare, "is_compared", patched)


def stable_offset_ignored(patch: pytest.MonkeyPatch) -> None:
    finished = PartitionFold.finished
    patch.setattr(PartitionFold, "finished", lambda folding, stable=0: finished(folding))


def pruned_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    said = PartitionMap.said

    def patched(mapped: PartitionMap, offset: int) -> Said:
        found = said(mapped, offset)
        return "" if found == "expired" else found

    patch.setattr(PartitionMap, "said", patched)


def compaction_explains_everything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(compare, "may_be_compacted", lambda row, again: True)


def tombstones_may_always_go(patch: pytest.MonkeyPatch) -> None:
    asked = compare.may_be_compacted
    patch.setattr(compare, "may_be_compacted", lambda row, again: row.tombstone or asked(row, again))


def compaction_explains_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(compare, "may_be_compacted", lambda row, again: False)


def earlier_records_of_a_key_are_copied(patch: pytest.MonkeyPatch) -> None:
    asked = repair_rule.is_superseded
    patch.setattr(repair_rule, "is_superseded", lambda offset, digest, _, *there: asked(offset, digest, None, *there))


def what_others_wrote_of_a_key_is_buried(patch: pytest.MonkeyPatch) -> None:
    asked = repair_rule.is_superseded
    patch.setattr(repair_rule, "is_superseded", lambda offset, digest, here, *_: asked(offset, digest, here, None, -1))


def what_is_not_compared_is_ignored(patch: pytest.MonkeyPatch) -> None:
    chosen = repair_rule.records_to_copy

    def patched(found: MapComparison, also: Sequence[Any] = ()) -> RepairChoice:
        return chosen(replace(found, not_compared={}), also)

    patch.setattr("tests.model.map_consequences.records_to_copy", patched)


def only_claimed_records_are_copied(patch: pytest.MonkeyPatch) -> None:
    """A record that was skipped has no claim."""
    chosen = repair_rule.records_to_copy

    def patched(found: MapComparison, also: Sequence[Any] = ()) -> RepairChoice:
        claimed = [one for one in found.findings if one.target is not None]
        return chosen(replace(found, findings=claimed), also)

    patch.setattr("tests.model.map_consequences.records_to_copy", patched)


def unmapped_is_no_bound(patch: pytest.MonkeyPatch) -> None:
    to_target = translate.to_target

    def patched(mapped: PartitionMap, offset: int, **known: Any) -> Any:
        return to_target(replace(mapped, unmapped=[]), offset, **known)

    patch.setattr("tests.model.map_consequences.to_target", patched)


RULES: Sequence[tuple[Patch, str]] = (
    (no_left_overs, "copier swaps"),
    (first_claim_wins, "all"),
    (key_asked_at_the_target, "compacted and damaged"),
    (first_record_at_or_above, "repaired"),
    (nothing_read_again, "repaired"),
    (nothing_is_voided, "target truncated"),
    (truncated_claims_stay, "source truncated"),
    (adopted_looks_truncated, "adopted"),
    (adopted_below_the_beginning_is_not_compared, "adopted"),
    (begun_below_before_it_is_reached, "adopted"),
    (breaks_are_guessed_over, "map off"),
    (unmapped_is_no_bound, "map off"),
    (other_targets_claim, "target created again"),
    (other_sources_are_compared, "source created again"),
    (others_of_the_flow_are_compared, "source created again"),
    (stable_offset_ignored, "plain"),
    (pruned_is_forgotten, "target retention"),
    (compaction_explains_everything, "others write, compacted"),
    (tombstones_may_always_go, "others write, compacted"),
    (compaction_explains_nothing, "target compacted"),
    (earlier_records_of_a_key_are_copied, "compacted and damaged"),
    (what_others_wrote_of_a_key_is_buried, "compacted and damaged"),
    (what_is_not_compared_is_ignored, "all"),
    (only_claimed_records_are_copied, "copier skips"),
)


@pytest.mark.tier("full")
@pytest.mark.parametrize(("left_out", "name"), RULES, ids=lambda value: getattr(value, "__name__", None))
def test_each_rule_is_needed(left_out: Patch, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    left_out(monkeypatch)
    with pytest.raises(AssertionError):
        check_all(name)


@pytest.mark.tier("full")
def test_log_starts_are_read_after_the_rows() -> None:
    with pytest.raises(AssertionError):
        check_all("target retention", evidence_first=True)


def check_all(name: str, *, evidence_first: bool = False) -> None:
    for seed in range(SEEDS):
        check(seed, name, evidence_first=evidence_first)
