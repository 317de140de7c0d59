"""Flows whose offset map is consolidated, once or while they run: all that reads the map finds what it had."""

from __future__ import annotations

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.consolidating import (
    consolidate,
    consolidating,
    consolidation,
    starts,
    wait_deleted,
)
from integration_tests.harness.copying import Copying
from integration_tests.proof.test_beside_a_flow import asked, assert_proven, map_incidents
from replicator import config
from replicator.config import Flow
from replicator.flow import map_consolidation, map_index_writer
from replicator.model.errors import Fenced
from replicator.model.partition import Partition
from replicator.offset_map import consolidate as pages
from replicator.translation.answers import OffsetAnswer, OffsetToTranslate
from replicator.translation.translate import translator


def flow_of(copying: Copying) -> Flow:
    return config.load(copying.file.path).flows[copying.file.flow]


@pytest.mark.tier("full")
def test_a_flow_goes_on_after_its_blocks_were_deleted(make_copying: MakeCopying) -> None:
    copying = make_copying(lanes=2)
    worker = copying.running()
    copying.load.mixed(400)
    worker.wait_event("committed")
    assert worker.stop() == 0
    flow = flow_of(copying)
    assert consolidate(flow) >= 1
    assert starts(flow) > 0
    assert map_incidents(copying) == []
    worker = copying.running()
    copying.load.mixed(400)
    copying.finish(worker)
    assert worker.seen("incident") == []
    assert map_incidents(copying) == []
    assert_proven(copying)
    assert consolidate(flow) >= 1
    assert_proven(copying)


@pytest.mark.tier("extended", kafka="full")
def test_a_process_that_was_overtaken_writes_and_deletes_nothing(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=2)
    worker = copying.running()
    copying.load.mixed(200)
    worker.wait_event("committed")
    assert worker.stop() == 0
    flow = flow_of(copying)
    with consolidation(flow) as overtaken:
        overtaken.round()
        assert consolidate(flow) >= 1
        gone = starts(flow)
        worker = copying.running()
        copying.load.mixed(200)
        worker.wait_event("committed")
        with pytest.raises(Fenced):
            overtaken.round(all_of_it=True)
        assert starts(flow) == gone
        overtaken.round(all_of_it=True)  # begins anew, behind what the other one has done
    copying.finish(worker)
    consolidate(flow)
    assert_proven(copying)


@pytest.mark.tier("full")
def test_blocks_are_deleted_under_those_who_read_them(
    make_copying: MakeCopying, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_consolidation, "BLOCKS_MAX", 1)
    monkeypatch.setattr(map_index_writer, "LOOK_S", 0.05)
    monkeypatch.setattr(pages, "PAGE_BYTES", 500)
    monkeypatch.setattr(pages, "USELESS_BYTES_MIN", 2_000)
    monkeypatch.setattr(pages, "CHECKPOINT_RECORDS", 6)
    copying = make_copying(partitions=4, lanes=2)
    worker = copying.running()
    flow, gone = flow_of(copying), 0
    with copying.writing(), consolidating(flow):
        for lanes in (3, 1):
            worker.wait_event("committed")
            gone = wait_deleted(flow, gone)
            for command in (["reconcile", "--local"], ["verify"]):
                code, found, said = asked(copying, *command)
                assert (code, found.get("verdict")) in ((0, "agrees"), (0, "stands")), (found, said)
            copying.file.write(lanes=lanes)
            successor = copying.run()
            assert worker.wait_exit() == 5, worker.tail()
            worker = successor
        worker.wait_event("committed")
        wait_deleted(flow, gone)
    copying.finish(worker)
    assert map_incidents(copying) == []
    assert_proven(copying)
    consolidate(flow)
    assert_proven(copying)


@pytest.mark.tier("full")
def test_copies_that_retention_has_taken_stay_known(make_copying: MakeCopying, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE_BYTES", 60)
    monkeypatch.setattr(map_consolidation, "PRUNE_S", 0.0)
    copying = make_copying(partitions=2)
    worker = copying.running()
    for _ in range(6):
        seen = worker.mark()
        copying.load.mixed(60)
        worker.wait_event("committed", after=seen)
    copying.finish(worker)
    flow = flow_of(copying)
    consolidate(flow)
    code, whole, said = asked(copying, "verify")
    assert code == 0, said
    for number in range(2):
        end = clients.stable_end(copying.target, copying.copy, number)
        clients.delete_records(copying.target, copying.copy, number, end - 5)
    answers = translated(copying)
    consolidate(flow)
    assert translated(copying) == answers
    code, found, said = asked(copying, "verify")
    assert (code, found["verdict"]) == (0, "stands"), (found, said)
    figures = ("sections", "copies")
    assert [[one[name] for name in figures] for one in found["partitions"]] == [
        [one[name] for name in figures] for one in whole["partitions"]
    ]
    assert all(one["expired"] > 0 for one in found["partitions"])
    code, found, said = asked(copying, "reconcile", "--local")
    assert (code, found["verdict"]) == (0, "no_difference"), (found, said)


def translated(copying: Copying) -> list[OffsetAnswer]:
    flow = flow_of(copying)
    at = [Partition(copying.topic, number) for number in range(copying.partitions)]
    asked_for = [OffsetToTranslate(one, n) for one in at for n in range(0, 200, 3)]
    return translator(flow, "source").answers(asked_for)
