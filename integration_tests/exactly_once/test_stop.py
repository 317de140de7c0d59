"""SIGTERM: a clean end within a bounded time; a second one: an end at once."""

from __future__ import annotations

import signal

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.copying import Copying
from integration_tests.harness.proxy import Action, Proxy, Side


def test_a_stopped_worker_leaves_no_open_transaction(copying: Copying) -> None:
    worker = copying.running()
    with copying.writing():
        worker.wait_event("committed")
        assert worker.stop() == 0
    assert worker.seen("stopped")[-1]["exit_code"] == 0
    for partition, end in enumerate(copying.target_ends()):
        stable = clients.stable_end(copying.target, copying.copy, partition)
        assert stable == end, "an open transaction was left behind"
    copying.finish(copying.running())


@pytest.mark.tier("extended")
def test_a_second_signal_ends_it_at_once_and_costs_nothing(make_copying: MakeCopying, proxy: Proxy) -> None:
    copying = make_copying(via=proxy.bootstrap)
    worker = copying.running()
    stuck = proxy.rule("EndTxn", Side.REPLY, Action.HOLD, client=".lane")
    copying.load.mixed(200)
    stuck.wait_hit()
    worker.signal(signal.SIGTERM)
    assert worker.runs_on(0.7), "one request to stop, delivered twice within half a second, counts once"
    worker.signal(signal.SIGTERM)
    assert worker.wait_exit(5.0) == 128 + signal.SIGTERM
    proxy.clear()
    copying.finish(copying.running())


@pytest.mark.tier("extended")
def test_the_start_is_quick_to_stop_too(copying: Copying) -> None:
    worker = copying.run()
    worker.wait_event("generation_opened")
    assert worker.stop() == 0
    copying.load.mixed(50)
    copying.finish(copying.running())


def test_a_signal_is_heard_whichever_thread_it_is_delivered_to(copying: Copying) -> None:
    """The main thread waits for flows to end, and isn't woken by what another thread is sent."""
    worker = copying.running()
    worker.signal_another_thread(signal.SIGTERM)
    assert worker.wait_exit() == 0
    assert worker.seen("stopped")[-1]["exit_code"] == 0
