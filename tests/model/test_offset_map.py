"""The offset map over histories: folded, compared, translated, repaired, and judged by what was really done."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from replicator.offset_map.compare import compare
from replicator.offset_map.fold import reached
from replicator.offset_map.repair_rule import records_to_copy
from replicator.offset_map.varints import OFFSET_MAX
from replicator.offset_map.verdicts import MapVerdict
from tests.budget import budget
from tests.model.map_consequences import check_beginning, check_repair, check_to_source, check_to_target
from tests.model.map_histories import NAMES, drawn_world, read_plainly
from tests.model.map_oracle import check_compacted, check_counts, check_fold, check_verdicts
from tests.model.map_repair import evidence_of, mapped_of, rows_of

PARTS, SEEDS = budget(4, 360), budget(4, 10)
"""SEEDS of each class in each part."""


def check(seed: int, name: str, *, evidence_first: bool = False) -> None:
    """Everything that one history must show. `evidence_first`: log starts are read before the rows."""
    world = drawn_world(seed, name)
    drawn = random.Random(seed)
    end = world.target.end
    stable = drawn.choice((end, end, end if world.compacted_target else drawn.choice(world.ends())))
    plain = read_plainly(world, reached(stable, end))
    mapped = mapped_of(world, reached(stable, end), drawn if drawn.random() < 0.4 else None)
    check_fold(world, mapped, plain)
    known = evidence_of(world)
    source, target = rows_of(world, stable)
    here = source()
    if drawn.random() < 0.2:  # retention goes on while the sides are read
        world.target.start = max(world.target.start, drawn.randrange(stable + 1))
    there = target()
    found = compare(mapped, lambda: here, lambda: there, lambda: known if evidence_first else evidence_of(world))
    check_counts(mapped, lambda: here, lambda: there, found)
    check_compacted(world, mapped, found)
    if not world.map_wrong:
        check_verdicts(world, mapped, plain, found)
    check_to_target(world, mapped, plain)
    check_to_source(world, mapped, plain)
    check_beginning(mapped)
    check_repair(world, drawn)


@pytest.mark.parametrize("part", range(PARTS))
def test_no_verdict_is_wrong_nothing_is_skipped_and_no_repair_does_harm(part: int) -> None:
    for seed in range(part * SEEDS, (part + 1) * SEEDS):
        for name in NAMES:
            try:
                check(seed, name)
            except AssertionError as error:
                raise AssertionError(f"{name}, seed {seed}: {error}") from error


@pytest.mark.tier("default")
def test_the_histories_show_every_verdict_and_every_doubt() -> None:
    counts: Counter[str] = Counter()
    for seed in range(40):
        for name in NAMES:
            world = drawn_world(seed, name)
            source, target = rows_of(world, world.target.end)
            found = compare(mapped_of(world, OFFSET_MAX), source, target, lambda world=world: evidence_of(world))  # type: ignore[misc]
            counts.update(set(found.counts) | set(found.doubts) | {one.why for one in found.findings})
            counts["by content"] += found.same_by_content > 0
            counts["repaired"] += bool(records_to_copy(found).copied)
            counts["standing"] += "standing" in records_to_copy(found).left.values()
            counts["superseded"] += "superseded" in records_to_copy(found).left.values()
    whys, doubts = ("retention", "compaction", "truncation", "unknown"), ("displaced", "unclaimed", "source_unknown")
    expected = (*MapVerdict, *whys, *doubts, "by content", "repaired", "standing", "superseded")
    assert {what: counts[what] for what in expected if counts[what] < 2} == {}
