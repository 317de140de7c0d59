"""The map's index over histories: what follows from it and from the blocks that are left is what followed from all
blocks, whoever consolidates, dies, wakes up late, and whoever reads meanwhile."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace

import pytest

from replicator.flow import map_consolidation
from replicator.offset_map import consolidate, directory
from replicator.offset_map.compare import compare
from replicator.offset_map.fold import PlacedSection, fold, reached
from replicator.offset_map.page import TimedSection, digest_of_all
from replicator.offset_map.section import GROUPED_DIGEST, NO_DIGEST, MapSection
from tests.budget import budget
from tests.model.map_consequences import check_beginning, check_to_source, check_to_target
from tests.model.map_histories import NAMES, drawn_world, read_plainly
from tests.model.map_index import Died, Gone, MapLogs, Process, ShutOut, read_all
from tests.model.map_oracle import check_fold, check_verdicts
from tests.model.map_repair import evidence_of, rows_of
from tests.model.map_world import MapWorld

PARTS, SEEDS = budget(2, 40), budget(4, 20)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages and directories of a few sections."""
    monkeypatch.setattr(consolidate, "PAGE_BYTES", 300)
    monkeypatch.setattr(consolidate, "CHECKPOINT_RECORDS", 4)
    monkeypatch.setattr(map_consolidation, "PARTITION_BYTES_MAX", 150)
    monkeypatch.setattr(consolidate, "USELESS_BYTES_MIN", 200)
    monkeypatch.setattr(consolidate, "REWRITE_BYTES", 150)
    monkeypatch.setattr(directory, "PAGES_TOGETHER", 2)


def logs_of(world: MapWorld, drawn: random.Random) -> MapLogs:
    logs = MapLogs(drawn)
    logs.write_blocks(sorted(world.sections, key=lambda placed: placed[:3]))
    return logs


def consolidated(logs: MapLogs, drawn: random.Random, *, prunes: bool) -> None:
    """Processes one after the other, and beside one another, until all is in the index; some die at any step."""
    alive = [Process(logs)]
    while True:
        logs.reveal(drawn.randrange(0, 6))
        if drawn.random() < 0.15:
            alive.append(Process(logs, drawn.randrange(12) if drawn.random() < 0.5 else None))
        one = drawn.choice(alive[-2:])
        if drawn.random() < 0.1 and len(alive) > 1:  # the other one goes on while this one is in the middle
            other = drawn.choice([it for it in alive if it is not one])
            one.meanwhile = lambda one=one, other=other: _go_on(one, other, drawn)  # type: ignore[misc]
        if prunes and drawn.random() < 0.3:
            one.consolidation._pruned_s = -1e9
        try:
            one.consolidation.round(all_of_it=drawn.random() < 0.8)
        except Died:
            alive.remove(one)
            alive = alive or [Process(logs)]
        except (ShutOut, Gone):
            pass
        one.meanwhile = lambda: None
        if not logs.order and drawn.random() < 0.2:
            return


def _go_on(one: Process, other: Process, drawn: random.Random) -> None:
    if drawn.random() < 0.3:
        one.meanwhile = lambda: None
        with suppress(Died, ShutOut, Gone):
            other.consolidation.round(all_of_it=True)


def bare(one: TimedSection) -> TimedSection:
    """Without the digest, which pages have of several sections."""
    section = one.section
    kind = NO_DIGEST if section.digest_kind == NO_DIGEST else GROUPED_DIGEST
    return one._replace(section=replace(section, digest_kind=kind, digest=b"" if kind == NO_DIGEST else bytes(16)))


def check(seed: int, name: str, *, prunes: bool) -> None:
    world, drawn = drawn_world(seed, name), random.Random(seed)
    logs = logs_of(world, drawn)
    keys = sorted({(one.section.source_topic_id, one.section.partition) for one in world.sections})
    if prunes:
        logs.log_starts = {(world.source.topic_id, 0): world.target.start}
    consolidated(logs, drawn, prunes=prunes)
    reader = Process(logs)
    meanwhile = lambda: _go_on(reader, reader, drawn)  # noqa: E731
    found = read_all(logs, keys, meanwhile if drawn.random() < 0.5 else lambda: None)
    placed = placed_again(world, found)
    if not prunes:
        raw = logs_of(world, random.Random(seed))
        raw.reveal(len(raw.order))
        expected = read_all(raw, keys)
        assert {key: [bare(one) for one in of] for key, of in found.items()} == {
            key: [bare(one) for one in of] for key, of in expected.items()
        }, "sections"
        again = read_all(logs, keys)
        for key in keys:
            check_digests([one.section for one in expected[key]], [one.section for one in again[key]])
    check_consequences(world, placed, drawn)


def check_digests(blocks: list[MapSection], read: list[MapSection]) -> None:
    """Each digest of several sections is that of theirs, in their order."""
    groups: list[tuple[bytes, list[bytes]]] = []
    for was, now in zip(blocks, read, strict=True):
        if now.digest_kind != GROUPED_DIGEST:
            assert was.digest == now.digest
            continue
        if not groups or groups[-1][0] != now.digest:
            groups.append((now.digest, []))
        groups[-1][1].append(was.digest)
    for digest, digests in groups:
        assert digest == digest_of_all(digests), "a digest of other sections"


def placed_again(world: MapWorld, found: dict[tuple[bytes, int], list[TimedSection]]) -> list[PlacedSection]:
    """The sections at their places in the order of all, under the claims under which they were written."""
    ordered = sorted(world.sections, key=lambda one: one[:3])
    placed: list[PlacedSection] = []
    for key, sections in found.items():
        were = [one for one in ordered if (one.section.source_topic_id, one.section.partition) == key]
        at = 0
        for one in sections:
            at += one.section.transactions
            last = were[at - 1]
            assert one.generation == last.generation
            placed.append(last._replace(section=one.section))
        assert at == len(were), f"{at} sections of {len(were)}"
    return sorted(placed, key=lambda one: one[:3])


def check_consequences(world: MapWorld, placed: list[PlacedSection], drawn: random.Random) -> None:
    end = world.target.end
    stable = drawn.choice((end, end if world.compacted_target else drawn.choice(world.ends())))
    plain = read_plainly(world, reached(stable, end))
    mapped = fold(placed, world.source.topic_id, world.target.topic_id, reached(stable, end))
    check_fold(world, mapped, plain)
    source, target = rows_of(world, stable)
    found = compare(mapped, source, target, lambda: evidence_of(world))
    if not world.map_wrong:
        check_verdicts(world, mapped, plain, found)
    check_to_target(world, mapped, plain)
    check_to_source(world, mapped, plain)
    check_beginning(mapped)


@pytest.mark.tier("extended")
@pytest.mark.parametrize("prunes", [False, True])
@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_is_lost_by_consolidating(part: int, prunes: bool) -> None:
    for seed in range(part * SEEDS, (part + 1) * SEEDS):
        for name in NAMES:
            try:
                check(seed, name, prunes=prunes)
            except Exception as error:
                raise AssertionError(f"{name}, seed {seed}: {error!r}") from error


def check_all(name: str, seeds: int, *, prunes: bool) -> None:
    """As above, of one class."""
    for seed in range(seeds):
        check(seed, name, prunes=prunes)
