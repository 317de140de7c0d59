"""`translate` by the map's index: the same answers as by the blocks that it was made of, from few of its pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.consolidating import consolidate, starts
from integration_tests.proof.mapped_lane import DAMAGE
from integration_tests.proof.mapped_logs import MappedFlow
from replicator.model.partition import Partition
from replicator.offset_map import consolidate as consolidating
from replicator.translation.answers import OffsetAnswer, OffsetToTranslate
from replicator.translation.translate import translator

AT_ONCE = 8
CASES = {"clean": (), "damaged": (*DAMAGE, "repaired", "lost_block")}


def all_answers(flow: MappedFlow, ends: list[int], copy_ends: list[int]) -> list[list[OffsetAnswer]]:
    there, back = translator(flow.flow, "source"), translator(flow.flow, "target")
    return [
        it.answers([OffsetToTranslate(Partition(topic, number), at) for at in range(end + 3)])
        for it, topic, of in ((there, flow.topic, ends), (back, flow.copy, copy_ends))
        for number, end in enumerate(of)
    ]


@pytest.mark.tier("full")
@pytest.mark.parametrize("case", ["clean", "damaged"])
def test_every_offset_has_the_answer_that_the_blocks_gave(
    case: str,
    source: BrokerHandle,
    target: BrokerHandle,
    tmp_path: Path,
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consolidating, "PAGE_BYTES", 60)
    flow = MappedFlow(source, target, tmp_path, unique("indexed"), range(AT_ONCE), CASES[case], transactions=20)
    ends = [clients.stable_end(source.bootstrap, flow.topic, number) for number in range(AT_ONCE)]
    copy_ends = [clients.stable_end(target.bootstrap, flow.copy, number) for number in range(AT_ONCE)]
    by_blocks = all_answers(flow, ends, copy_ends)
    assert consolidate(flow.flow) >= 1
    assert starts(flow.flow) > 0
    assert all_answers(flow, ends, copy_ends) == by_blocks
    if case == "clean":
        assert any(len(it.pages) > 2 for it in translator(flow.flow, "source").mapped_partitions())
