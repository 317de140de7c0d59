"""Group sync of a flow of which topics were failed over: groups there belong to who consumes at the target."""

from __future__ import annotations

import pytest

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
