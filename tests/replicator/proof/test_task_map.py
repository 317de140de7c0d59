"""How much of the offset map a task reads: what fits into its worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from replicator.model.partition import Partition
from replicator.offset_map.section import topic_id_text
from replicator.proof import task_map
from replicator.proof.map_place import MapPlace
from replicator.proof.map_reader import MapRead
from replicator.proof.pairs import pair_of
from replicator.proof.task_map import KEPT_BLOCKS_MAX, MapFacts, map_of
from tests.replicator.proof.test_pairs import FACTS, FLOW

SOURCE_ID, TARGET_ID = (topic_id_text(bytes(15) + bytes([number])) for number in (1, 2))
ONE, TWO = (
    replace(pair_of(FLOW, FACTS), source=Partition("t", number), source_id=SOURCE_ID, target_id=TARGET_ID)
    for number in range(2)
)


@pytest.mark.parametrize(
    ("blocks", "index", "asked"),
    [
        (10, None, {0, 1}),
        (KEPT_BLOCKS_MAX + 1, None, {1}),
        (10, ("__eos.f.offsets-index", "I"), {1}),  # a page may have any number of blocks
    ],
)
def test_the_map_of_all_partitions_is_read_only_where_it_is_small(
    monkeypatch: pytest.MonkeyPatch, blocks: int, index: tuple[str, str] | None, asked: set[int]
) -> None:
    read = list[set[int]]()

    def sections(flow: object, place: MapPlace, wanted: Mapping[tuple[str, int], object]) -> MapRead:
        read.append({number for _, number in wanted})
        return MapRead()

    monkeypatch.setattr(task_map, "read_sections", sections)
    place = MapPlace("__eos.f.offsets", "M", {0: (0, blocks)}, index=index)
    pairs = {pair.source: pair for pair in (ONE, TWO)}
    facts = MapFacts(f"{blocks} {index}", FLOW, place, pairs, {ONE.target: 0})
    assert map_of(facts, TWO.source).pair == TWO
    map_of(facts, TWO.source)
    assert read == [asked]
