"""The log of `run` as an operator reads it, at its default level: few lines, and what is needed is in them."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

import pytest

from cli import __version__
from integration_tests.conftest import MakeCopying
from integration_tests.harness.broker import BrokerHandle
from replicator.client_lines import LINES_MAX, WINDOW_S, cause_of

AS_IT_IS_BY_DEFAULT = ("--log-level", "info")
LINES_OF_A_START_AND_A_STOP = 12


@pytest.mark.tier("extended", kafka="full")
def test_a_run_is_told_in_few_lines(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=2)
    copying.load.plain(300)
    killed = copying.run("after_end_txn@1=kill", *AS_IT_IS_BY_DEFAULT)
    killed.wait_exit()
    copying.load.plain(300)
    worker = copying.run("", *AS_IT_IS_BY_DEFAULT)
    worker.wait_event("lane_started")
    for _ in range(10):
        copying.load.plain(10)
        copying.wait_positions()
    copying.finish(worker)
    first, *_, last = worker.events
    assert first["event"] == "started"
    assert first["version"] == __version__
    assert first["flows"] == {copying.name: "here -> there"}
    assert first["clusters"] == {"here": copying.source, "there": copying.target}
    assert last["event"] == "stopped"
    took_over = worker.seen("took_over")
    assert sum(event["partitions"] for event in took_over) == 2
    assert {f":{killed.pid}:" in event["owner"] for event in took_over} == {True}
    told = sum(event["records"] for event in worker.seen("summary"))
    assert copying.load.committed - 300 <= told <= copying.load.committed, "each record is told once"
    assert not worker.seen("committed")
    assert len(worker.events) <= LINES_OF_A_START_AND_A_STOP, worker.tail()
    assert worker.other_lines == []


@pytest.mark.tier("full")
@pytest.mark.parametrize("cluster", ["here", "there"])
def test_an_outage_is_told_in_few_lines(
    make_copying: MakeCopying, source: BrokerHandle, target: BrokerHandle, cluster: str
) -> None:
    copying = make_copying(partitions=2)
    copying.load.plain(100)
    worker = copying.run("", *AS_IT_IS_BY_DEFAULT)
    copying.wait_positions()
    handle = {"here": source, "there": target}[cluster]
    handle.kill()
    worker.wait_event("unreachable", cluster=cluster)
    handle.restart()
    recovered = worker.wait_event("recovered", cluster=cluster)
    assert recovered["unreachable_s"] >= 4
    copying.finish(worker)
    client = worker.seen("client")
    lines = Counter(cause_of(event["detail"]) for event in client)
    assert lines
    first, last = (datetime.fromisoformat(client[at]["timestamp"]) for at in (0, -1))
    minutes = 1 + int((last - first).total_seconds() / WINDOW_S)  # on a busy machine more than one
    assert max(lines.values()) <= (LINES_MAX + 1) * minutes, worker.tail(200)
    assert worker.other_lines == []
