"""Group sync of a flow of which topics were failed over: groups there belong to who consumes at the target."""

from __future__ import annotations

import pytest

from replicator.model.errors import Fenced, FlowFrozen
from replicator.model.names import ends_group
from tests.replicator.group_sync.fakes import copy_of, place
from tests.replicator.group_sync.test_sync import OUT, A, Rig

pytestmark = pytest.mark.tier("default")


def test_groups_are_left_alone_in_topics_that_were_failed_over_and_don_t_wait_for_them() -> None:
    rig = Rig(hold_with=["out"])
    rig.at_source(10)
    rig.at_source(10, OUT)
    rig.sync.round()
    assert rig.target.values["g", copy_of(A)].offset == place(10)
    rig.map.failed_over = {"out"}
    rig.map.ends[OUT] = 200  # nothing of it is copied any more
    rig.at_source(20)
    rig.at_source(20, OUT)
    rig.sync = rig.worker()  # the generation is another one
    for _ in range(3):
        rig.clock.s += 5
        rig.sync.round()
    assert rig.target.values["g", copy_of(A)].offset == place(20), "it would be held for ever"
    assert rig.target.values["g", copy_of(OUT)].offset == place(10)
    assert rig.target.values[ends_group("f"), copy_of(OUT)].offset == 200, "what isn't copied is bounded by that"


def test_a_worker_that_wakes_up_after_a_failover_moves_no_group() -> None:
    """The failover has fenced it; it fences in its turn, and goes on if nothing else keeps it from that."""
    rig = Rig()
    rig.at_source(10)
    rig.sync.round()
    rig.worker()._notes.begin()  # as a failover does before its verdict
    rig.map.frozen = True
    rig.at_source(20)
    with pytest.raises(Fenced):
        rig.sync.round()
    for _ in range(3):
        rig.clock.s += 5
        with pytest.raises(FlowFrozen):
            rig.sync.round()
    assert rig.there() == place(10)
    assert rig.target.values[ends_group("f"), copy_of(A)].offset == 100
    rig.map.frozen = False
    rig.sync.round()
    assert rig.there() == place(20), "the failover is undone"
