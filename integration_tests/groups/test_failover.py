"""A flow that is failed over copies nothing, whoever starts it, until that is undone; what it lacks is said."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.groups.test_group_sync import EVERY, all_there, begun, wait_offsets
from integration_tests.harness import clients
from integration_tests.harness.copying import PARTITIONS, Copying
from integration_tests.harness.failing_over import asked, command, failover, started, wait_ends_noted
from integration_tests.harness.group_reading import consume
from integration_tests.harness.jobs import Threads, backfill
from replicator.model.errors import FlowFrozen
from replicator.model.names import cutovers_topic
from tests.budget import budget

NOWHERE = "127.0.0.1:9"


@pytest.mark.tier("full", kafka="long")
def test_nothing_is_copied_until_the_failover_is_undone(
    make_copying: MakeCopying, unique: Callable[[str], str], tmp_path: Path
) -> None:
    group = unique("failing")
    copying = make_copying(groups=EVERY)
    copying.load.mixed(300)
    begun(copying, group, 100)
    worker = copying.running()
    copying.wait_copied()
    wait_offsets(copying, group, all_there)
    code, rehearsed = failover(copying, "--rehearse")
    assert (code, rehearsed["rehearsed"], rehearsed["complete"]) == (0, True, True), rehearsed
    command(copying, "pause", "--flow", copying.name)
    time.sleep(3)  # what is under way is committed
    before = copying.wait_stable()
    copying.load.mixed(200)
    ends = [clients.stable_end(copying.source, copying.topic, number) for number in range(PARTITIONS)]
    wait_ends_noted(copying, ends)
    worker.kill()
    copying.file.log_in(NOWHERE)  # the source is gone
    copying.file.write(limits={"connect_timeout_ms": 2_000})
    out = tmp_path / "verdict.json"
    code, verdict = failover(copying, "--out", str(out))
    assert code == 1
    assert json.loads(out.read_text()) == verdict
    rows = verdict["partitions"]
    assert [row["position"] for row in rows] == before
    assert [row["not_copied_at_least"] for row in rows] == [end - at for end, at in zip(ends, before, strict=True)]
    synced = {it["group"]: it for it in verdict["groups"]}[group]
    assert (synced["partitions_synced"], synced["partitions_of_others"]) == (PARTITIONS, 0)
    copies = copying.target_ends()
    for options, changes in (
        ((), {}),
        (("--take-over",), {"lanes": 3}),
        (("--shared",), {}),
        ((), {"start": "latest"}),
    ):
        copying.file.write(**changes)
        again = copying.run("", *options)
        again.wait_event("positions_kept")
        assert again.seen("lane_started") == []
        again.kill()
    assert (copying.wait_stable(), copying.target_ends()) == (before, copies)
    code, second = failover(copying)
    assert (code, second["generation"], second["sha256"]) == (1, verdict["generation"], verdict["sha256"])
    copying.file.log_in(copying.source)
    copying.file.write(start="earliest", lanes=1, limits={"connect_timeout_ms": 20_000})
    again = copying.running_frozen()
    command(copying, "resume", "--flow", copying.name)
    code, undone = failover(copying, "--undo")
    assert (code, undone["generation"]) == (0, verdict["generation"] + 1)
    again.wait_event("failover_undone")
    copying.finish(again)
    assert failover(copying, "--undo")[1]["generation"] is None
    assert len(consume(copying.target, group, copying.copy, PARTITIONS)) > 0


@pytest.mark.tier("full", kafka="long")
@pytest.mark.parametrize("seed", range(budget(1, 20)))
def test_a_failover_under_load_that_is_killed_and_begun_again_skips_nothing(
    make_copying: MakeCopying, unique: Callable[[str], str], seed: int
) -> None:
    draw = random.Random(seed)
    group = unique("killed")
    copying = make_copying(groups=EVERY)
    copying.load.mixed(300)
    begun(copying, group, 100)
    worker = copying.running("", "--shared")
    with copying.writing(60):
        wait_offsets(copying, group, all_there)
        read = consume(copying.source, group, copying.topic, PARTITIONS, draw.randint(1, 300))
        assert read
        for _ in range(3):
            process = started(copying)
            time.sleep(draw.uniform(0.3, 2.5))
            process.kill()
            process.communicate()
        _, verdict = failover(copying)
    worker.wait_event("positions_kept")
    stands, copies = copying.wait_stable(), copying.target_ends()
    assert [row["position"] for row in verdict["partitions"]] == stands
    time.sleep(1)
    assert (copying.wait_stable(), copying.target_ends()) == (stands, copies)
    moved = consume(copying.target, group, copying.copy, PARTITIONS)
    left = consume(copying.source, group, copying.topic, PARTITIONS)
    copied = {key for number in range(PARTITIONS) for key in keys(copying, number, stands[number])}
    assert {key for key in left if key in copied} <= set(moved), "what was not consumed at the source, and is copied"
    failover(copying, "--undo")
    copying.finish(worker)


def keys(copying: Copying, number: int, end: int) -> list[bytes]:
    """Of the source's records below an offset."""
    found = clients.read(copying.source, copying.topic, number)
    return [bytes(it.key() or b"") for it in found if (it.offset() or 0) < end]


@pytest.mark.tier("long", kafka="long")
@pytest.mark.parametrize("seed", range(budget(1, 3)))
def test_workers_that_are_killed_while_the_flow_is_failed_over_copy_nothing_and_keep_the_positions(
    make_copying: MakeCopying, seed: int
) -> None:
    draw = random.Random(seed)
    copying = make_copying(limits={"recommit_interval_ms": 1_000, "discovery_interval_ms": 200})
    copying.load.mixed(300)
    worker = copying.running("", "--shared")
    copying.wait_copied()
    copying.wait_positions()
    failover(copying)
    worker.kill()
    copying.load.mixed(200)
    stands, copies = copying.wait_stable(), copying.target_ends()
    assert -1001 not in stands, "each partition has a position"
    kept = 0
    for _ in range(20):
        again = copying.run("", *draw.choice([(), ("--shared",), ("--take-over",)]))
        if draw.random() < 0.5:  # while it commits them, or else at any moment of its start
            again.wait_event("positions_kept")
        time.sleep(draw.uniform(0.0, 3.0))
        again.kill()
        kept += bool(again.seen("positions_kept"))
        assert again.seen("lane_started") == []
        assert (copying.wait_stable(), copying.target_ends()) == (stands, copies)
    assert kept >= 5
    again = copying.running_frozen()
    again.wait_event("positions_kept")
    failover(copying, "--undo")
    copying.finish(again)


@pytest.mark.tier("long", kafka="long")
def test_a_backfill_and_a_failover_refuse_each_other(make_copying: MakeCopying) -> None:
    copying = make_copying()
    copying.load.mixed(2_000)
    stuck, go_on = threading.Event(), threading.Event()

    def failpoint(step: str) -> None:
        if step == "before_offsets":
            stuck.set()
            assert go_on.wait(120)

    engine = Threads(failpoint)
    job, _ = backfill(copying, offsets_max=300)
    job.check()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(job.run, engine)
        assert stuck.wait(60)
        began_s = time.monotonic()
        done = asked(copying)
        assert done.returncode == 5
        assert "a backfill has it (generation 1, by " in done.stderr
        assert time.monotonic() - began_s < 12, "it is refused at once"
        assert failover(copying, "--rehearse")[1]["generation"] is None
        assert cutovers_topic(copying.name) not in clients.topics(copying.target), "nothing was changed"
        go_on.set()
        assert all(outcome.done for outcome in running.result(120).partitions.values())
    failover(copying)
    copying.load.mixed(100)
    refused, _ = backfill(copying, take_over=True)
    with pytest.raises(FlowFrozen, match="failed over"):
        refused.check()
    engine.close()
    failover(copying, "--undo")
    copying.finish(copying.running())
