"""A stop takes no longer than ten seconds by default, whatever is down, and finishes what can be finished."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.copying import Copying
from integration_tests.harness.proxy import Action, Proxy, Side
from integration_tests.harness.replicator import DEFAULT, Replicator
from integration_tests.harness.two_topics import TwoTopics

STOPPED, UNREACHABLE = 0, 3
STOP_S = 10.0
EXIT_S = 8.0  # Python, and closing clients, on a busy machine; half a minute is what an unbounded stop takes
# The defaults that a stop could be held up by; discovery at short intervals keeps asking the cluster that is down.
USUAL = {
    "stop_timeout_ms": DEFAULT,
    "request_timeout_ms": DEFAULT,
    "connect_timeout_ms": DEFAULT,
    "transaction_timeout_ms": DEFAULT,
}
LATER = pytest.mark.tier("full", kafka="long")
HOW = pytest.mark.parametrize("how", ["killed", "suspended"])


@contextmanager
def away(broker: BrokerHandle, how: str) -> Iterator[None]:
    """The broker is dead, or accepts connections and answers nothing."""
    if how == "killed":
        broker.kill()
    else:
        broker.suspend()
    try:
        yield
    finally:
        if how == "killed":
            broker.restart()
        else:
            broker.resume()


def stop(worker: Replicator, number: signal.Signals = signal.SIGTERM) -> int:
    """Ask it to stop; the exit code, if it came in time."""
    began = time.monotonic()
    worker.signal(number)
    code = worker.wait_exit()
    took_s = time.monotonic() - began
    print(f"stopped with {code} after {took_s:.1f} s")
    assert took_s < STOP_S + EXIT_S, f"{took_s:.1f} s\n{worker.tail()}"
    return code


def go_on(copying: Copying) -> None:
    """Whatever the stop has left behind, the next start copies exactly what is missing."""
    copying.load.mixed(50)
    copying.finish(copying.running())


@pytest.mark.parametrize("how", ["killed", "suspended"])
@pytest.mark.tier("full")
@pytest.mark.parametrize(
    "noticed",
    [pytest.param(False, id="at once"), pytest.param(True, id="once it is noticed", marks=pytest.mark.tier("long"))],
)
def test_the_source_is_away(make_copying: MakeCopying, source: BrokerHandle, how: str, noticed: bool) -> None:
    """All that was read is committed, and the positions are released: the target doesn't need the source for that."""
    two = TwoTopics(make_copying(partitions=2, limits=USUAL))
    worker = two.running()
    with away(source, how):
        if noticed:
            worker.wait_event("discovery_failed", timeout_s=60.0)
        code = stop(worker)
    clients.settle(two.source, two.first, 2)
    assert code == STOPPED, worker.tail()
    assert two.owners() == {None}, "nobody runs it, and positions have an owner"
    worker = two.flow.running()
    two.assert_second_goes_on()
    two.assert_stops(worker, STOPPED)


@pytest.mark.tier("full", kafka="long")
@HOW
def test_the_source_is_away_and_a_lane_starts_again(
    make_copying: MakeCopying, source: BrokerHandle, proxy: Proxy, how: str
) -> None:
    """The outcome of a commit is unknown, so the lane begins anew, and its questions to the source are not answered."""
    limits = {**USUAL, "recommit_interval_ms": 1_000}
    two = TwoTopics(make_copying(partitions=2, via=proxy.bootstrap, limits=limits))
    worker = two.running()
    with away(source, how):
        lost = proxy.rule("EndTxn", Side.REPLY, Action.CUT, client=".lane")
        lost.wait_hit()
        assert worker.runs_on(2.0), "it is on its way to the source"
        assert stop(worker) in (STOPPED, UNREACHABLE)
    clients.settle(two.source, two.first, 2)
    worker = two.flow.running()
    two.assert_second_goes_on()
    two.assert_stops(worker, STOPPED)


@LATER
@HOW
@pytest.mark.parametrize("writing", [False, True], ids=["idle", "in a transaction"])
def test_the_target_is_away(make_copying: MakeCopying, target: BrokerHandle, how: str, writing: bool) -> None:
    copying = make_copying(limits=USUAL)
    copying.load.mixed(100)
    worker = copying.running()
    copying.wait_copied()
    copying.wait_positions()
    with away(target, how):
        if writing:
            copying.load.mixed(100)
            assert worker.runs_on(1.0), "it reads them and begins a transaction"
        assert stop(worker) in (STOPPED, UNREACHABLE)
    go_on(copying)


@pytest.mark.tier("full")
def test_both_are_away(make_copying: MakeCopying, source: BrokerHandle, target: BrokerHandle) -> None:
    copying = make_copying(limits=USUAL)
    copying.load.mixed(100)
    worker = copying.running()
    copying.wait_copied()
    with away(source, "suspended"), away(target, "suspended"):
        assert worker.runs_on(2.0)
        assert stop(worker) in (STOPPED, UNREACHABLE)
    go_on(copying)


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.tier("full"))],
    ids=lambda each: each.name,
)
def test_each_signal_that_asks_for_an_end_is_a_clean_stop(make_copying: MakeCopying, number: signal.Signals) -> None:
    two = TwoTopics(make_copying(limits=USUAL))
    with two.flow.writing():
        worker = two.flow.running()
        worker.wait_event("committed")
        assert stop(worker, number) == STOPPED, worker.tail()
    assert worker.seen("stopped")[-1]["exit_code"] == STOPPED
    assert two.owners() == {None}
    for partition, end in enumerate(two.flow.target_ends()):
        assert clients.stable_end(two.target, two.flow.copy, partition) == end, "an open transaction was left behind"
    two.flow.finish(two.flow.running())
