"""A broker that is cut off names a leader of before, whose log lacks what was written since: it isn't believed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from replicator.group_sync.newest_leaders import NewestLeaders
from replicator.group_sync.ports import SourceEnds
from replicator.groups.decision import GroupVerdict
from replicator.kafka.offset_questions import ListedOffset
from replicator.model.errors import Retriable
from replicator.model.names import ends_group
from replicator.model.partition import Partition
from replicator.state.transaction_notes import TransactionNotes
from tests.replicator.group_sync.fakes import FakeMap, copy_of, place
from tests.replicator.group_sync.test_source_ends import Asked
from tests.replicator.group_sync.test_sync import OUT, A, B, Rig
from tests.replicator.group_sync.test_transaction_looks import Looking

pytestmark = pytest.mark.tier("default")

FIRST, SECOND = b"0123456789abcdef", b"fedcba9876543210"
OLD = "of out.0. leader epoch 5 is told, but 6 was before"


@pytest.fixture
def asked() -> Iterator[Asked]:
    it = Asked()
    it.source.counts = it.target.counts = {"a": 2, "out": 1}
    yield it
    it.map.close()


def tell(asked: Asked, end: int, epoch: int, topic_id: bytes = FIRST, at: Partition = OUT) -> None:
    asked.source.logs[at] = ListedOffset(end, -1, epoch, topic_id)


class MapOfLeaders(FakeMap):
    """Ends are asked of the clusters."""

    def __init__(self, asked: Asked, copied: dict[Partition, int]) -> None:
        super().__init__(copied, {})
        self.asked = asked

    def source_ends(self) -> SourceEnds:
        """See `LiveMap`."""
        return self.asked.map.source_ends()

    def stable_ends(self, ats: Collection[Partition]) -> Mapping[Partition, int]:
        """See `LiveMap`."""
        return self.asked.map.stable_ends(ats)


def rig_of(asked: Asked, **groups: Any) -> Rig:
    rig = Rig(**groups)
    rig.map = MapOfLeaders(asked, {A: 100, B: 100, OUT: 100})
    rig.sync = rig.worker()
    return rig


def test_an_end_that_an_old_leader_tells_is_not_known(asked: Asked) -> None:
    tell(asked, 200, 6)
    assert asked.map.source_ends().ends[OUT] == 200
    tell(asked, 100, 5)
    found = asked.map.source_ends()
    assert (set(found.ends), set(found.noted), set(found.unknown)) == ({A, B}, {A, B}, {OUT})
    with pytest.raises(Retriable, match=OLD):
        raise found.unknown[OUT]
    assert asked.source.left == 1, "another broker is asked next"
    assert asked.map.stable_ends([A, OUT]) == {A: 10}
    with pytest.raises(Retriable, match=OLD):
        asked.map.ends_of([A, OUT])
    assert asked.source.left == 3
    tell(asked, 210, 6)
    assert asked.map.source_ends().ends[OUT] == asked.map.ends_of([OUT])[OUT] == 210
    assert asked.source.left == 3


def test_an_end_at_the_target_that_an_old_leader_tells_is_not_known(asked: Asked) -> None:
    asked.target.logs[OUT] = ListedOffset(200, -1, 6, FIRST)
    assert asked.map.target_ends([OUT]) == {OUT: 200}
    asked.target.logs[OUT] = ListedOffset(100, -1, 5, FIRST)
    with pytest.raises(Retriable, match=OLD):
        asked.map.target_ends([OUT])
    assert (asked.source.left, asked.target.left) == (0, 1)


def test_a_topic_that_was_created_again_begins_with_lower_epochs(asked: Asked) -> None:
    """Also where a broker has told of the one before meanwhile."""
    tell(asked, 200, 6)
    asked.map.source_ends()
    for topic_id, epoch, end in ((SECOND, 0, 3), (FIRST, 6, 200), (SECOND, 0, 4)):
        tell(asked, end, epoch, topic_id)
        assert asked.map.source_ends().ends[OUT] == end


def test_no_group_is_released_by_what_an_old_leader_tells(asked: Asked) -> None:
    rig = rig_of(asked, hold_with=["out"])
    tell(asked, 200, 6)
    rig.map.copied[OUT] = 200
    rig.at_source(10)
    rig.rounds(2)
    assert rig.there() == place(10)
    tell(asked, 100, 5)  # and the new leader has 300
    rig.at_source(50)
    rig.rounds(3)
    assert rig.there() == place(10)
    tell(asked, 300, 6)
    rig.rounds()
    assert (rig.there(), rig.verdict()) == (place(10), GroupVerdict.HELD)
    rig.map.copied[OUT] = 300
    rig.rounds(2)
    assert rig.there() == place(50)


def test_a_noted_end_and_its_time_stay_as_they_are(asked: Asked) -> None:
    rig = rig_of(asked)
    tell(asked, 200, 6)
    rig.rounds()
    group = ends_group("f")
    first = rig.target.values[group, copy_of(A)]
    tell(asked, 100, 5)
    rig.rounds()
    assert rig.target.values[group, copy_of(OUT)].offset == 200
    assert rig.target.values[group, copy_of(A)] == first
    tell(asked, 200, 6)
    rig.rounds()
    assert int(rig.target.values[group, copy_of(A)].metadata) > int(first.metadata)


class LookingAtLeaders(Looking):
    """Ends are asked of the cluster."""

    def __init__(self, asked: Asked) -> None:
        self.asked, self.epoch = asked, 6
        super().__init__()

    def _ends(self, ats: Collection[Partition]) -> Mapping[Partition, int]:
        for at, end in self.ends.items():
            tell(self.asked, end, self.epoch, at=at)
        return self.asked.map.ends_of(ats)


def test_no_transaction_is_forgotten_because_an_old_leader_ends_before_it(asked: Asked) -> None:
    it = LookingAtLeaders(asked)
    it.look()
    it.write()
    it.look()
    torn, looked_ms = it.noted(), TransactionNotes.read(it.kept).last.looked_ms
    assert len(torn) == 1
    ends, it.ends, it.epoch = it.ends, {A: 12, B: 15}, 5
    it.look()
    last = TransactionNotes.read(it.kept).last
    assert (it.noted(), last.looked_ms) == (torn, looked_ms)
    assert "leader epoch 5 is told" in last.problem
    it.ends, it.epoch = ends, 6
    it.look()
    last = TransactionNotes.read(it.kept).last
    assert (it.noted(), last.problem, last.looked_ms > looked_ms) == (torn, "", True)


class Copied(NamedTuple):
    """What is looked at of a `MappedPartition`."""

    source: Partition
    key: tuple[bytes, int]
    leader_epoch: int


def learned(leaders: NewestLeaders, epoch: int, topic_id: bytes = FIRST) -> set[Partition]:
    one: Any = Copied(OUT, (topic_id, 0), epoch)
    return set(leaders.learn([one]))


def test_what_a_position_was_reached_under_is_known(asked: Asked) -> None:
    tell(asked, 100, 5)
    asked.map.source_ends()
    leaders = asked.map._source_leaders
    assert learned(leaders, -1) == learned(leaders, 4) == learned(leaders, 5) == set()
    assert learned(leaders, 6) == {OUT}
    assert learned(leaders, 6) == set(), "it was said"
    assert set(asked.map.source_ends().unknown) == {OUT}
    assert learned(leaders, 2, SECOND) == set(), "of another topic nothing was told"


def test_an_end_of_which_positions_know_better_releases_and_notes_nothing() -> None:
    rig = Rig(hold_with=["out"])
    rig.map.known_better[OUT] = Retriable("an old leader")
    rig.at_source(10)
    rig.rounds()
    assert rig.there() is None
    assert (ends_group("f"), copy_of(OUT)) not in rig.target.values
    rig.map.known_better.clear()
    rig.rounds(2)
    assert rig.there() == place(10)
