"""SIGTERM while a cluster is away or slow: the process leaves within `limits.stop_timeout_ms` and costs nothing."""

from __future__ import annotations

import time

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.copying import Copying
from integration_tests.harness.proxy import Action, Proxy, Side
from integration_tests.harness.replicator import Replicator
from replicator.model import checkpoint
from replicator.model.checkpoint import NOBODY

STOPPED, UNREACHABLE = 0, 3
STOP_S = 4.0
LIMITS = {"stop_timeout_ms": int(STOP_S * 1_000)}  # below the request time-out: no request may be waited for
SLOW = {**LIMITS, "request_timeout_ms": 20_000}
UNDISTURBED = {**LIMITS, "discovery_interval_ms": 60_000}
EXIT_S = 10.0  # Python, and closing clients, on a busy machine


def stop(worker: Replicator) -> int:
    """SIGTERM; the exit code, if it came in time."""
    begin = time.monotonic()
    code = worker.stop()
    took_s = time.monotonic() - begin
    assert took_s < STOP_S + EXIT_S, f"{took_s:.1f} s\n{worker.tail()}"
    return code


def go_on(copying: Copying) -> None:
    """Whatever the stop has left behind, the next start copies exactly what is missing."""
    copying.load.mixed(50)
    copying.finish(copying.running())


@pytest.mark.parametrize(
    "restarting",
    [
        pytest.param(False, id="in a transaction", marks=pytest.mark.tier("full", kafka="long")),
        pytest.param(True, id="in a restart", marks=pytest.mark.tier("full", kafka="long")),
    ],
)
def test_the_target_is_down(make_copying: MakeCopying, target: BrokerHandle, restarting: bool) -> None:
    """The lane stands in a call that takes longer than a stop may, and is given up."""
    copying = make_copying(limits={**UNDISTURBED, **({"transaction_timeout_ms": 2_000} if restarting else {})})
    worker = copying.running()
    with copying.writing():
        worker.wait_event("committed")
        mark = worker.mark()
        target.kill()
        if restarting:
            worker.wait_event("restarted", after=mark)
            assert worker.runs_on(1.0), "it tries to fence"
        else:  # between two transactions it has nothing to give up
            worker.wait_event("unreachable", after=mark, cluster="there")
        assert stop(worker) == UNREACHABLE
    target.restart()
    go_on(copying)


@pytest.mark.tier("full", kafka="long")
def test_the_source_is_down(make_copying: MakeCopying, source: BrokerHandle) -> None:
    copying = make_copying(limits=LIMITS)
    copying.load.mixed(200)
    worker = copying.running()
    copying.wait_copied()
    mark = worker.mark()  # it is told once
    source.kill()
    worker.wait_event("discovery_failed", after=mark)
    assert stop(worker) == STOPPED, "all that was read is committed"
    assert not worker.seen("not_released"), worker.tail()
    assert owners(copying) == [NOBODY] * copying.partitions
    source.restart()
    go_on(copying)


@pytest.mark.tier("full", kafka="long")
@pytest.mark.parametrize("frozen", [False, True], ids=["down", "frozen"])
def test_the_source_is_away_and_nobody_has_noticed(
    make_copying: MakeCopying, source: BrokerHandle, frozen: bool
) -> None:
    """The ids of its topics can't be asked for: all positions are released as they stand all the same."""
    copying = make_copying(limits=UNDISTURBED)
    copying.load.mixed(200)
    worker = copying.running()
    copying.wait_copied()
    copying.wait_positions()
    (source.suspend if frozen else source.kill)()
    assert stop(worker) == STOPPED, "all that was read is committed"
    assert not worker.seen("not_released"), worker.tail()
    assert owners(copying) == [NOBODY] * copying.partitions
    (source.resume if frozen else source.restart)()
    go_on(copying)


def owners(copying: Copying) -> list[str]:
    """Who runs each partition, as the positions say."""
    found = [
        clients.committed(copying.target, copying.group, copying.copy, number) for number in range(copying.partitions)
    ]
    return [checkpoint.decode(each.metadata or "").owner for each in found]


@pytest.mark.tier("full", kafka="long")
def test_a_transaction_that_was_given_up_is_told(make_copying: MakeCopying, target: BrokerHandle) -> None:
    """Exit code 0 means that everything is committed; here a transaction is lost and will be copied again."""
    copying = make_copying(limits={**UNDISTURBED, "transaction_timeout_ms": 2_000})
    worker = copying.running()
    with copying.writing():
        worker.wait_event("committed")
        target.kill()
        assert stop(worker) == UNREACHABLE
    target.restart()
    go_on(copying)


@pytest.mark.tier("long")
def test_the_target_is_down_and_topics_are_being_listed(make_copying: MakeCopying, target: BrokerHandle) -> None:
    copying = make_copying(limits={**SLOW, "discovery_interval_ms": 100})
    worker = copying.running()
    copying.load.mixed(100)
    copying.wait_copied()
    mark = worker.mark()  # it is told once
    target.kill()
    worker.wait_event("discovery_failed", after=mark)
    assert worker.runs_on(1.0), "the next listing has begun"
    assert stop(worker) in (STOPPED, UNREACHABLE)
    target.restart()
    go_on(copying)


@pytest.mark.tier("full", kafka="long")
@pytest.mark.parametrize("side", ["source", "target"])
def test_a_cluster_is_down_at_the_start(
    make_copying: MakeCopying, source: BrokerHandle, target: BrokerHandle, side: str
) -> None:
    copying = make_copying(limits=LIMITS)
    down = source if side == "source" else target
    down.kill()
    worker = copying.run()
    worker.wait_stoppable()
    assert worker.runs_on(2.0), worker.tail()  # its connect time-out is far away
    assert stop(worker) in (STOPPED, UNREACHABLE)
    down.restart()
    go_on(copying)


@pytest.mark.tier("full")
def test_a_topic_is_being_created(make_copying: MakeCopying, proxy: Proxy) -> None:
    copying = make_copying(via=proxy.bootstrap, limits=SLOW)
    copying.file.write(topics=[f"^{copying.name}\\..*"])
    worker = copying.running()
    stuck = proxy.rule("CreateTopics", Side.REQUEST, Action.HOLD)
    clients.create_topic(copying.source, f"{copying.name}.second")
    stuck.wait_hit()
    copying.load.mixed(100)
    copying.wait_copied()
    assert stop(worker) in (STOPPED, UNREACHABLE)
    proxy.clear()
    go_on(copying)


def test_the_first_listing_is_slow(make_copying: MakeCopying, proxy: Proxy) -> None:
    copying = make_copying(via=proxy.bootstrap, limits=SLOW)
    stuck = proxy.rule("CreateTopics", Side.REQUEST, Action.HOLD)
    worker = copying.run()
    stuck.wait_hit()
    assert stop(worker) in (STOPPED, UNREACHABLE)
    proxy.clear()
    go_on(copying)
