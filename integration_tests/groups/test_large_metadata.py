"""A group whose offsets have much metadata is moved as any other, and holds up none."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.groups.test_group_sync import EVERY, all_there, commit_at_source, wait_offsets
from integration_tests.harness import clients
from replicator.config import Cluster, Properties
from replicator.groups.decision import OffsetToCommit
from replicator.groups.ownership import GroupOffset
from replicator.wire.group_questions import GroupQuestions
from replicator.wire.offset_fetch_groups import GroupValues

PARTITIONS, METADATA = 300, "m" * 4096


@pytest.mark.tier("long")
def test_a_group_with_much_metadata_is_moved_and_stops_no_other(
    make_copying: MakeCopying, unique: Callable[[str], str]
) -> None:
    """Its offsets are more than a batch of the coordinator's log takes, and so would its notes be."""
    large, small = unique("large"), unique("small")
    copying = make_copying(groups=EVERY, partitions=PARTITIONS)
    copying.load.mixed(600)
    commit_at_source(copying, small, OffsetToCommit(1, ""))
    for first in range(0, PARTITIONS, 100):  # as the group's consumers do: each for its own
        commit_at_source(copying, large, OffsetToCommit(1, METADATA), range(first, first + 100))
    worker = copying.running()
    copying.wait_copied()
    wait_offsets(copying, small, all_there)
    wait_offsets(copying, large, all_there)
    commit_at_source(copying, small, OffsetToCommit(0, ""))
    wait_offsets(copying, small, lambda found: found == [0] * PARTITIONS)
    assert worker.stop() == 0, worker.tail()
    assert worker.seen("groups_not_synced") == []
    cluster = Cluster(name="west", properties=Properties({"bootstrap.servers": copying.target}))
    with closing(GroupQuestions(cluster, "test")) as questions:
        found = questions.offsets({large: None}, clients.TIMEOUT_S, stable=True)[large]
        assert isinstance(found, GroupValues), found
        values = found.topics()[copying.copy].values()
        assert {value.metadata for value in values if isinstance(value, GroupOffset)} == {METADATA}
        assert len(values) == PARTITIONS
