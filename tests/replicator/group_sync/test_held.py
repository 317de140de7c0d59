"""Groups that wait for what their applications had written."""

from __future__ import annotations

import pytest

from replicator.groups.decision import GroupVerdict
from replicator.model.errors import NotAllowed
from replicator.model.names import ends_group
from replicator.model.partition import Partition
from tests.replicator.group_sync.fakes import copy_of, place
from tests.replicator.group_sync.test_sync import OUT, Rig

pytestmark = pytest.mark.tier("default")


def test_a_group_is_held_until_what_it_had_written_is_copied() -> None:
    rig = Rig(hold_with=["out"])
    rig.at_source(10)
    rig.map.ends[OUT] = 110
    rig.rounds()
    assert (rig.there(), rig.verdict()) == (None, GroupVerdict.HELD)
    rig.at_source(20)
    rig.map.ends[OUT] = 120  # written with what it has read since
    rig.map.copied[OUT] = 110
    rig.rounds()
    assert rig.there() == place(10), "not 20: what came of that isn't copied"
    rig.map.copied[OUT] = 120
    rig.rounds(2)
    assert rig.there() == place(20)
    assert rig.verdict() is GroupVerdict.IN_SYNC


def test_a_group_is_held_while_what_it_had_written_has_no_place_at_the_target() -> None:
    """Its topic could not be created there, or the partition is a new one."""
    rig = Rig(hold_with=["out"])
    del rig.map.copied[OUT]
    rig.map.not_there.add(OUT)
    rig.at_source(10)
    rig.rounds(5)
    assert (rig.there(), rig.verdict()) == (None, GroupVerdict.HELD)
    assert (ends_group("f"), copy_of(OUT)) not in rig.target.values
    rig.map.not_there.clear()
    rig.map.copied[OUT] = 100
    rig.rounds(2)
    assert rig.there() == place(10)


def test_a_group_is_held_while_it_is_not_known_where_what_it_had_written_ends() -> None:
    rig = Rig(hold_with=["out"])
    rig.at_source(10)
    rig.rounds()
    rig.map.unknown[OUT] = NotAllowed("no Describe on out")
    rig.at_source(20)
    for _ in range(5):
        assert "no Describe on out" in {str(it) for it in rig.sync.round().unanswered}
        rig.clock.s += 5
    assert (rig.there(), rig.verdict()) == (place(10), GroupVerdict.HELD)
    rig.map.unknown.clear()
    rig.rounds(2)
    assert rig.there() == place(20)


def test_why_nothing_is_translated_in_some_partitions_is_told_of_the_first_ones() -> None:
    rig = Rig()
    rig.map.silent = {Partition("silent", number): NotAllowed(f"{number} has no leader") for number in range(5)}
    rig.at_source(10)
    said = [str(it) for it in rig.sync.round().unanswered]
    assert said == [*(f"{number} has no leader" for number in range(3)), "nor is anything known of 2 more partitions"]
    assert rig.there() == place(10)
