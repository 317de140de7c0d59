"""Groups that are deleted at the source are deleted at the target if they are the flow's (`groups.deleted`)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.groups.test_group_sync import EVERY, all_there, begun, wait_exact, wait_offsets
from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.copying import Copying
from integration_tests.harness.group_reading import begin, deleted, offsets
from integration_tests.harness.guarded import USER, guard, login
from integration_tests.harness.processes import wait_until
from integration_tests.harness.secured import Secured


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


@pytest.mark.tier("long")
def test_an_offset_in_a_topic_that_the_flow_may_not_see_stays(
    source: BrokerHandle, secured: Secured, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    """Brokers leave it out where they are asked for a group's offsets."""
    group, hidden = unique("billing"), unique("hidden")
    clients.create_topic(secured.bootstrap, hidden, 1)
    clients.put(clients.producer(secured.bootstrap), hidden, *[b"x"] * 50)
    copying = Copying(
        source, secured, tmp_path, via=login(secured), partitions=1, groups={**EVERY, "deleted": "delete"}
    )
    with closing(copying):
        two = guard(secured, copying, "target").two
        secured.allow(USER, "GROUP", group, "DESCRIBE", "READ", "DELETE")
        secured.allow(USER, "GROUP", f"eos-replicate.{copying.name}", "DESCRIBE", "READ", prefix=True)
        two.put(two.first, [b"a %d" % number for number in range(100)])
        begin(copying.source, group, [(copying.topic, 0, 42)])
        worker = copying.running()
        wait_until(lambda: offsets(copying.target, group, copying.copy, 1)[0] > 0, "the group", worker.tail)
        begin(copying.target, group, [(hidden, 0, 30)])
        deleted(copying.source, group)
        wait_until(lambda: bool(worker.seen("group_deleted")), "the deletion", worker.tail)
        assert offsets(copying.target, group, copying.copy, 1) == [-1001]
        assert offsets(copying.target, group, hidden, 1) == [30]
        assert worker.stop() == 0, worker.tail()
