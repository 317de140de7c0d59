"""Groups that are deleted at the source are deleted at the target if they are the flow's (`groups.deleted`)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.groups.test_group_sync import ASK_S, EVERY, all_there, begun, wait_exact, wait_offsets
from integration_tests.harness.group_reading import begin, offsets
from integration_tests.harness.processes import wait_until
from replicator.config import Cluster, Properties
from replicator.wire.any_groups import AnyGroups


def deleted(bootstrap: str, *groups: str) -> None:
    """Delete groups as an administrator does."""
    cluster = Cluster(name="any", properties=Properties({"bootstrap.servers": bootstrap}))
    with closing(AnyGroups(cluster, "test")) as questions:
        assert questions.delete(groups, ASK_S) == dict.fromkeys(groups, 0)


@pytest.mark.tier("long")
def test_only_what_is_the_flows_goes_with_the_group(make_copying: MakeCopying, unique: Callable[[str], str]) -> None:
    gone, reset = unique("gone"), unique("reset")
    copying = make_copying(groups={**EVERY, "deleted": "delete"})
    copying.load.mixed(300)
    for group in (gone, reset):
        begun(copying, group, 100)
    worker = copying.running()
    copying.wait_copied()
    for group in (gone, reset):
        wait_exact(copying, group)
    there = wait_offsets(copying, reset, all_there)
    begin(copying.target, reset, [(copying.copy, 0, there[0] + 1)])
    deleted(copying.source, gone, reset)
    wait_until(lambda: bool(worker.seen("group_deleted")), "the deletion", worker.tail)
    wait_until(lambda: bool(worker.seen("deleted_group_kept")), "why the other one is kept", worker.tail)
    assert offsets(copying.target, gone, copying.copy, copying.partitions) == [-1001] * copying.partitions
    assert offsets(copying.target, reset, copying.copy, copying.partitions) == [there[0] + 1, *there[1:]]
    (kept,) = worker.seen("deleted_group_kept")
    assert (kept["group"], kept["reason"]) == (reset, f"somebody else has committed its offset in {copying.copy}-0")
    assert [it["group"] for it in worker.seen("group_deleted")] == [gone]
    assert worker.stop() == 0, worker.tail()
