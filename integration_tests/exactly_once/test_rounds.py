"""A flow that runs in rounds on an engine: continuously, beside new partitions, and in turns with the daemon."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import structlog

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.copying import Copying
from integration_tests.harness.jobs import Threads
from replicator import config
from replicator.jobs.continuous import Continuous


def continuous(copying: Copying) -> Continuous:
    loaded = config.load(copying.file.path)
    return Continuous(loaded.flows[copying.file.flow], loaded, structlog.get_logger())


@pytest.mark.tier("full")
def test_rounds_and_the_daemon_take_turns_while_the_source_is_written(make_copying: MakeCopying) -> None:
    copying = make_copying()
    with ThreadPoolExecutor(1) as pool:
        for _ in range(2):
            flow, engine = continuous(copying), Threads()
            running = pool.submit(flow.run, engine)
            with copying.writing():
                copying.wait_copied()
            flow.stop()
            assert running.result(60) == 0
            engine.close()
            worker = copying.running()
            with copying.writing():
                copying.wait_copied()
            assert worker.stop() == 0
    copying.finish(copying.running())


@pytest.mark.tier("full", kafka="long")
def test_start_latest_is_resolved_once_and_new_partitions_begin_at_earliest(make_copying: MakeCopying) -> None:
    copying = make_copying(start="latest", limits={"discovery_interval_ms": 300})
    copying.load.mixed(300)
    starts = [clients.stable_end(copying.source, copying.topic, number) for number in range(copying.partitions)]
    flow, engine = continuous(copying), Threads()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(flow.run, engine)
        copying.wait_positions()
        copying.load.mixed(100)
        copying.wait_positions()
        clients.grow_topic(copying.source, copying.topic, copying.partitions + 1)
        clients.put(clients.producer(copying.source), copying.topic, b"new", partition=copying.partitions)
        copying.partitions += 1
        clients.wait_value(copying.target, copying.copy, copying.partitions - 1, b"new")
        flow.stop()
        assert running.result(60) == 0
    engine.close()
    copying.load.finish()
    worker = copying.running()
    copying.wait_positions()
    assert worker.stop() == 0
    verdicts = copying.compare_from([*starts, 0])
    assert all(verdict.exact for verdict in verdicts.values()), verdicts
