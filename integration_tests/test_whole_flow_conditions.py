"""What keeps a whole flow from copying is told while it lasts, and no longer: a dead cluster, a failover."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness.broker import BrokerHandle, free_port
from integration_tests.harness.copying import Copying
from integration_tests.harness.failing_over import failover
from integration_tests.harness.observed import Observed
from integration_tests.harness.processes import wait_until
from integration_tests.harness.replicator import Replicator
from integration_tests.test_status_for_scripts import check
from tests.running.users_packages import users_packages

TOLD_S_MAX = 8.0
"""After 4 s without an answer, on a busy machine."""
pytestmark = pytest.mark.tier("long", kafka="long")


def observed(copying: Copying) -> Observed:
    """Have its process listen, and ask it from then on."""
    address = f"127.0.0.1:{free_port()}"
    copying.file.listen(address)
    return Observed(address)


def unreachable(asked: Observed, copying: Copying, cluster: str) -> float | None:
    """The metric."""
    return asked.value("eos_flow_cluster_unreachable", flow=copying.name, cluster=cluster)


def kept_by(copying: Copying, command: str) -> int | None:
    """The process that keeps the positions, as a command says."""
    found = copying.asked(command)[1]["kept_by"]
    return None if found is None else int(found["owner"].split(":")[1])


def copied(copying: Copying) -> tuple[Observed, Replicator]:
    """A worker that shares the flow, listens, is ready, and has copied all that there was."""
    asked = observed(copying)
    copying.load.mixed(50)
    worker = copying.running("", "--shared")
    copying.wait_copied()
    asked.wait("it is ready", lambda it: it.ready()[0])
    return asked, worker


@pytest.mark.parametrize("which", ["source", "target"])
def test_a_dead_cluster_is_told_within_seconds_with_nothing_to_copy(
    make_copying: MakeCopying, source: BrokerHandle, target: BrokerHandle, which: str
) -> None:
    copying = make_copying()
    asked, worker = copied(copying)
    flow = copying.asked("status")[1]
    cluster, broker = flow[which], {"source": source, "target": target}[which]
    assert unreachable(asked, copying, cluster) == 0
    broker.kill()
    try:
        killed_s = time.monotonic()
        asked.wait("it is told", lambda it: it.ready()[1][copying.name].get("unreachable") == [cluster])
        assert time.monotonic() < killed_s + TOLD_S_MAX
        assert not asked.ready()[0]
        assert unreachable(asked, copying, cluster) == 1
        counts = {it: asked.value("eos_flow_partitions", flow=copying.name, state=it) for it in ("copying", "waiting")}
        assert counts == {"copying": 0, "waiting": 3}
        assert f"No broker of {cluster} has answered since" in asked.get("/")[1]
    finally:
        broker.restart()
    asked.wait("it is ready again", lambda it: it.ready()[0])
    assert unreachable(asked, copying, cluster) == 0
    copying.load.mixed(50)
    copying.finish(worker)


@pytest.mark.parametrize("option", ["--standalone", "--shared"])
@pytest.mark.parametrize("which", ["source", "target"])
def test_a_cluster_that_is_dead_when_the_flow_starts_is_told_as_in_the_log(
    make_copying: MakeCopying, source: BrokerHandle, target: BrokerHandle, which: str, option: str
) -> None:
    copying = make_copying(limits={"connect_timeout_ms": 120_000})
    asked = observed(copying)
    copying.load.mixed(50)
    cluster, broker = {"source": ("here", source), "target": ("there", target)}[which]
    broker.kill()
    try:
        worker = copying.run("", option)
        worker.wait_event("unreachable", cluster=cluster)
        assert unreachable(asked, copying, cluster) == 1
        assert asked.ready()[1][copying.name].get("unreachable") == [cluster]
        assert f"No broker of {cluster} has answered since" in asked.get("/")[1]
        [shown] = json.loads(asked.get("/flows")[1])["flows"]
        assert list(shown["unreachable_since_ms"]) == [cluster]
    finally:
        broker.restart()
    worker.wait_event("recovered", cluster=cluster)
    asked.wait("it is ready", lambda it: it.ready()[0])
    assert unreachable(asked, copying, cluster) == 0
    copying.finish(worker)


def test_a_flow_that_is_failed_over_is_not_ready_until_that_is_undone(make_copying: MakeCopying) -> None:
    copying = make_copying()
    asked, worker = copied(copying)
    assert check(copying.file.path) == (0, "")
    assert failover(copying, "--by", "ann")[1]["generation"] is not None
    worker.wait_event("failed_over", by="ann")
    ready, said = asked.ready()
    assert not ready
    assert "failover --undo" in said[copying.name]["failed_over"]
    assert ", by ann, at 2" in said[copying.name]["failed_over"]
    assert ", by ann, at 2" in asked.get("/")[1]
    worker.wait_event("positions_kept")
    wait_until(
        lambda: kept_by(copying, "status") == kept_by(copying, "workers") == worker.pid, "it is shown", worker.tail
    )
    assert any(", by ann, at 2" in note for note in copying.asked("status")[1]["notes"])
    assert asked.value("eos_flow_failed_over", flow=copying.name) == 1
    assert asked.value("eos_flow_lag_records", flow=copying.name) is None
    states = {"state": "failed_over", "flow": copying.name}
    assert asked.value("eos_flow_partitions", **states) == 3
    code, wrong = check(copying.file.path)
    assert code == 1
    assert f"flow {copying.name} was failed over: nothing is copied" in wrong
    assert {row["state"] for row in copying.asked("status")[1]["partitions"]} == {"failed_over"}
    code, planned = copying.asked("plan")
    assert (code, "failover --undo" in str(planned["findings"])) == (0, True)
    words = ["set", "--partition", f"{copying.topic}:0", "--offset", "1", "--why", "x", "--yes-i-mean", copying.name]
    refused = subprocess.run(
        [sys.executable, "-m", "cli.main", "position", *words, "-c", str(copying.file.path)],
        capture_output=True,
        text=True,
        env=users_packages(),
        timeout=60,
        check=False,
    )
    assert (refused.returncode, "nothing is copied until eos-replicate failover --undo" in refused.stderr) == (5, True)
    assert "--take-over" not in refused.stderr
    assert failover(copying, "--undo")[1]["generation"] is not None
    worker.wait_event("failover_undone")
    assert copying.asked("status")[1]["kept_by"] is None
    asked.wait("it is ready again", lambda it: it.ready()[0])
    assert asked.value("eos_flow_failed_over", flow=copying.name) == 0
    assert asked.value("eos_flow_partitions", **states) == 0
    copying.load.mixed(50)
    copying.finish(worker)


def test_a_flow_that_is_failed_over_keeps_a_process_going_for_the_others(
    make_copying: MakeCopying, source: BrokerHandle
) -> None:
    """Started while the source is away: the other flow ends by that, and is started again once it is back."""
    frozen, other = make_copying(), make_copying()
    frozen.file.include(other.file)
    asked = observed(frozen)
    frozen.load.mixed(50)
    other.load.mixed(50)
    worker = frozen.run("", "--shared")
    frozen.wait_copied()
    other.wait_copied()
    assert failover(frozen, "--flow", frozen.name)[1]["generation"] is not None
    assert worker.stop() == 0
    source.kill()
    try:
        worker = frozen.run("", "--shared")
        worker.wait_event("failed_over", flow=frozen.name)
        worker.wait_event("flow_ended", flow=other.name)
        assert asked.value("eos_flow_lag_records", flow=other.name) is None
    finally:
        source.restart()
    worker.wait_event("flow_started_again", flow=other.name)
    other.load.mixed(50)
    other.wait_copied()
    [shown] = [it for it in frozen.said("status")[1]["flows"] if it["flow"] == other.name]
    assert (shown["ended"], [bool(each["since"]) for each in shown["run_by"]]) == (None, [True])
    assert worker.stop() == 0


def test_a_failover_and_its_undoing_are_told_while_the_source_is_dead(
    make_copying: MakeCopying, source: BrokerHandle
) -> None:
    """The source is away from before the failover until after it is undone: the worker says so all the time, takes the
    failover up without it, and goes on when it is back."""
    patience_ms = 12_000
    copying = make_copying(limits={"connect_timeout_ms": patience_ms})
    asked, worker = copied(copying)
    cluster = copying.asked("status")[1]["source"]
    source.kill()
    try:
        worker.wait_event("unreachable", cluster=cluster)
        away_s = time.monotonic()
        for _ in range(2):  # also of a worker that was waiting for the source
            mark = worker.mark()
            assert failover(copying)[1]["generation"] is not None
            done_s = time.monotonic()
            worker.wait_event("failed_over", after=mark)
            assert time.monotonic() < done_s + TOLD_S_MAX < done_s + patience_ms / 1000
            assert "failover --undo" in asked.ready()[1][copying.name]["failed_over"]
            assert unreachable(asked, copying, cluster) == 1
            assert failover(copying, "--undo")[1]["generation"] is not None
            worker.wait_event("failover_undone", after=mark)
            again = worker.wait_event("unreachable", after=mark, cluster=cluster, timeout_s=TOLD_S_MAX)
            assert again["unreachable_s"] >= time.monotonic() - away_s - TOLD_S_MAX, "since it was killed"
            assert asked.ready()[1][copying.name]["unreachable"] == [cluster]
        assert worker.runs_on(patience_ms / 1000 + 4)
        assert not asked.ready()[0]
        assert unreachable(asked, copying, cluster) == 1
        assert len(worker.seen("unreachable")) == 3, "once, and once more each time that the failover was undone"
    finally:
        source.restart()
    worker.wait_event("recovered", cluster=cluster)
    asked.wait("it is ready again", lambda it: it.ready()[0])
    assert unreachable(asked, copying, cluster) == 0
    copying.load.mixed(50)
    copying.finish(worker)
