"""Many groups stand at the same offsets: the map is asked about each of these once, and each group gets its answer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from random import Random

import pytest

from replicator.group_sync.asked_once import answers_once
from replicator.group_sync.sync import TRANSLATE_S
from replicator.model.partition import Partition
from replicator.translation.answers import OffsetAnswer, OffsetToTranslate
from tests.replicator.group_sync.fakes import FakeMap, copy_of, place
from tests.replicator.group_sync.test_sync import OUT, A, B, Rig

pytestmark = pytest.mark.tier("default")


class Counted(FakeMap):
    """Takes down what it is asked."""

    def answers(self, asked: Collection[OffsetToTranslate]) -> Sequence[OffsetAnswer]:
        self.asked = [*getattr(self, "asked", ()), *asked]
        return super().answers(asked)


def test_groups_at_the_same_offset_share_an_answer_and_no_other_does() -> None:
    rig = Rig()
    rig.map = asked = Counted(rig.map.copied, rig.map.ends)
    rig.sync = rig.worker()
    stands = {"g": {A: 10, B: 10, OUT: 11}, "h": {A: 10, B: 20, OUT: 10}, "i": {A: 11, B: 10}}
    for group, offsets in stands.items():
        for at, offset in offsets.items():
            rig.at_source(offset, at, group)
    rig.rounds()
    different = {OffsetToTranslate(at, offset) for offsets in stands.values() for at, offset in offsets.items()}
    assert sorted(asked.asked) == sorted(different)
    assert {(group, at): rig.there(at, group) for group, offsets in stands.items() for at in offsets} == {
        (group, at): place(offset) for group, offsets in stands.items() for at, offset in offsets.items()
    }
    asked.asked.clear()
    rig.clock.s += TRANSLATE_S
    rig.rounds()
    assert sorted(asked.asked) == sorted(different)  # whether it still says so


@pytest.mark.parametrize("seed", range(20))
def test_answers_are_those_to_single_questions(seed: int) -> None:
    draw = Random(seed)
    ats = [Partition(topic, number) for topic in ("a", "b") for number in range(3)]
    live_map = FakeMap(dict.fromkeys(ats, 50), dict.fromkeys(ats, 60))
    live_map.read()
    wanted = [
        (draw.choice(("a", "b")), [(draw.randrange(3), draw.randrange(60)) for _ in range(draw.randrange(9))])
        for _ in range(draw.randrange(6))
    ]
    found = answers_once(live_map, wanted)
    for topic, offsets in wanted:
        for number, offset in offsets:
            (alone,) = live_map.answers([OffsetToTranslate(Partition(topic, number), offset)])
            assert found[topic][number, offset] == alone
            assert alone.at == copy_of(Partition(topic, number))
