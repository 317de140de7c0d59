"""`translate` where a log has lost its end: what was copied ends behind it, and all other offsets are translated."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import replicator
from integration_tests.conftest import MakeCopying
from integration_tests.groups.test_group_sync import EVERY, commit_at_source, wait_offsets
from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle, lose_end
from integration_tests.harness.copying import Copying
from integration_tests.harness.two_topics import numbered
from replicator.groups.decision import OffsetToCommit

FIRST, MORE = 5, 3


def copied(copying: Copying) -> None:
    """Write into both partitions twice, and wait for the copies."""
    for values in (numbered("first", FIRST), numbered("more", MORE)):
        for number in range(2):
            clients.put(clients.producer(copying.source), copying.topic, *values, partition=number)
        for number in range(2):
            clients.wait_value(copying.target, copying.copy, number, values[-1])


@pytest.mark.tier("long", kafka="long")
@pytest.mark.parametrize("reverse", [False, True])
def test_an_offset_behind_a_lost_end_keeps_no_other_from_its_translation(
    make_copying: MakeCopying, source: BrokerHandle, target: BrokerHandle, *, reverse: bool
) -> None:
    copying = make_copying(partitions=2)
    worker = copying.running()
    copied(copying)
    assert worker.stop() == 0, worker.tail()
    side, topic = (target, copying.copy) if reverse else (source, copying.topic)
    (lost,) = [it.offset() or 0 for it in clients.read(side.bootstrap, topic) if it.value() == b"more 0"]
    end = clients.stable_end(side.bootstrap, topic)
    lose_end(side, topic, lost)
    asked_for = [(topic, 0, lost), (topic, 0, end + 1), (topic, 1, 0), (topic, 1, end)]
    found = replicator.translate(copying.file.path, copying.file.flow, asked_for, reverse=reverse)
    assert [it.translated.notes for it in found] == [(), ("ahead",), (), ()]
    assert found[2].exact
    assert found[3].exact
    if reverse:
        assert found[0].offset == FIRST


@pytest.mark.tier("full", kafka="long")
def test_a_group_behind_the_end_that_the_target_has_lost_goes_on_at_its_end(
    make_copying: MakeCopying, target: BrokerHandle, unique: Callable[[str], str]
) -> None:
    """Also one that was synced before: at what stands there from then on are records of others."""
    copying, group = make_copying(partitions=2, groups=EVERY), unique("behind")
    worker = copying.running()
    copied(copying)
    commit_at_source(copying, group, OffsetToCommit(FIRST + 1, ""))
    (lost,) = [it.offset() or 0 for it in clients.read(copying.target, copying.copy) if it.value() == b"more 0"]
    wait_offsets(copying, group, lambda found: found[0] > lost)
    assert worker.stop() == 0, worker.tail()
    lose_end(target, copying.copy, lost)
    asked_for = [(copying.topic, 0, FIRST - 1), (copying.topic, 0, FIRST + 1), (copying.topic, 1, FIRST + 1)]
    found = replicator.translate(copying.file.path, copying.file.flow, asked_for)
    assert [it.translated.notes for it in found] == [(), ("lost",), ()]
    assert found[1].offset == clients.stable_end(target.bootstrap, copying.copy)
    worker = copying.running()
    worker.wait_event("incident", name="target_lost_data")
    stands = wait_offsets(copying, group, lambda offsets: offsets[0] == found[1].offset)
    assert stands[1] == found[2].offset
    assert worker.stop() == 4, worker.tail()


@pytest.mark.tier("full", kafka="long")
def test_back_to_a_source_that_has_lost_its_end_a_consumer_goes_on_at_its_end(
    make_copying: MakeCopying, source: BrokerHandle
) -> None:
    """What producers write there from then on isn't skipped."""
    copying = make_copying(partitions=2)
    worker = copying.running()
    copied(copying)
    assert worker.stop() == 0, worker.tail()
    (lost,) = [it.offset() or 0 for it in clients.read(source.bootstrap, copying.topic) if it.value() == b"more 0"]
    lose_end(source, copying.topic, lost)
    copies = {it.value(): it.offset() or 0 for it in clients.read(copying.target, copying.copy)}
    asked_for = [(copying.copy, 0, copies[it]) for it in (b"first 1", b"more 1")] + [(copying.copy, 1, 1)]
    found = replicator.translate(copying.file.path, copying.file.flow, asked_for, reverse=True)
    assert [it.translated.notes for it in found] == [(), ("lost",), ()]
    assert [it.offset for it in found] == [1, clients.stable_end(source.bootstrap, copying.topic), 1]
