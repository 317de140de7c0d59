"""Where a repair's copies stand, by its entries in the claims topic."""

from __future__ import annotations

from dataclasses import replace

from replicator.model.partition import Partition
from replicator.proof.copied_again import CopiedRun, copied_from, runs
from replicator.state.claims import Repair

AT, OTHER = Partition("t.copy", 0), Partition("t.copy", 1)
REPAIR = Repair(AT, Partition("t", 0), ((10, 12), (15, 18)), 700, 2, 99, "id", "target-id")
IDS = "id", "target-id"


def test_each_copy_is_known_by_its_target_offset() -> None:
    earlier = replace(REPAIR, runs=((3, 4),), first_target=600)
    found = runs([REPAIR, earlier], AT, IDS, 0)
    assert found == (CopiedRun(600, 3, 1), CopiedRun(700, 10, 2), CopiedRun(702, 15, 3))
    places = {offset: copied_from(found, offset) for offset in (599, 600, 601, 699, 700, 701, 702, 704, 705)}
    assert {offset: at for offset, at in places.items() if at is not None} == {
        600: 3,
        700: 10,
        701: 11,
        702: 15,
        704: 17,
    }


def test_an_entry_about_other_topics_or_about_a_log_before_this_one_says_nothing() -> None:
    assert runs([REPAIR], OTHER, IDS, 0) == ()
    assert runs([REPAIR], AT, ("id", "made-again"), 0) == ()
    assert runs([REPAIR], AT, ("made-again", "target-id"), 0) == ()
    assert runs([replace(REPAIR, source_topic_id="", target_topic_id="")], AT, ("", ""), 0) == ()
    assert runs([REPAIR], AT, IDS, 702) == (CopiedRun(702, 15, 3),)
