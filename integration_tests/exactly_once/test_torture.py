"""Schedules of faults drawn from a seed. EOS_TORTURE_SEEDS=11,12,13 runs these; the default is one short schedule."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.copying import Copying
from integration_tests.harness.proxy import Action, Proxy, Side
from integration_tests.harness.replicator import Replicator

pytestmark = pytest.mark.tier(kafka="long")
SEEDS = [int(text) for text in os.environ.get("EOS_TORTURE_SEEDS", "7").split(",")]
FAULTS = 10
LIMITS = {"request_timeout_ms": 2_000, "transaction_timeout_ms": 4_000}
STEPS = ("before_send", "before_flush", "before_offsets", "before_end_txn", "after_end_txn")
APIS = ("AddPartitionsToTxn", "Produce", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn")

Fault = Callable[[Replicator], Replicator]


class Torture:
    """One flow behind a proxy, and the faults that can befall it. Each fault returns the worker that runs after it."""

    def __init__(self, copying: Copying, proxy: Proxy, target: BrokerHandle, seed: int) -> None:
        self._copying, self._proxy, self._target = copying, proxy, target
        self._random = random.Random(seed)
        self.history: list[str] = []

    def strike(self, worker: Replicator) -> Replicator:
        """Draw a fault and let it happen; a commit afterwards proves that the flow goes on."""
        faults: tuple[Fault, ...] = (
            self._kill,
            self._kill_at_a_step,
            self._take_over,
            self._sleep_and_be_replaced,
            self._lose_a_message,
            self._cut_connections,
            self._kill_the_target,
            self._stop_and_start,
        )
        after = self._random.choices(faults, weights=(3, 4, 2, 1, 5, 2, 1, 1))[0](worker)
        after.wait_event("committed", after=after.mark())
        return after

    def _told(self, text: str) -> None:
        self.history.append(text)
        print(f"fault {len(self.history)}: {text}")

    def _kill(self, worker: Replicator) -> Replicator:
        self._told("SIGKILL")
        worker.kill()
        return self._copying.running()

    def _kill_at_a_step(self, worker: Replicator) -> Replicator:
        step, number = self._random.choice(STEPS), self._random.randint(1, 4)
        self._told(f"SIGKILL at {step} {number}")
        worker.kill()
        doomed = self._copying.run(f"{step}@{number}=kill")
        assert doomed.wait_exit() == -signal.SIGKILL, doomed.tail()
        return self._copying.running()

    def _take_over(self, worker: Replicator) -> Replicator:
        self._told("takeover")
        successor = self._copying.running()
        assert worker.wait_exit() == 5, worker.tail()
        return successor

    def _sleep_and_be_replaced(self, worker: Replicator) -> Replicator:
        self._told("SIGSTOP, successor, SIGCONT")
        worker.suspend()
        successor = self._copying.running()
        successor.wait_event("committed")
        worker.resume()
        assert worker.wait_exit() == 5, worker.tail()
        return successor

    def _lose_a_message(self, worker: Replicator) -> Replicator:
        api, side = self._random.choice(APIS), self._random.choice(list(Side))
        action, number = self._random.choice((Action.DROP, Action.CUT)), self._random.randint(1, 3)
        self._told(f"{action.name} {api} {side.name} {number}")
        self._proxy.rule(api, side, action, nth=number, client=".lane").wait_hit()
        return worker

    def _cut_connections(self, worker: Replicator) -> Replicator:
        self._told("all connections cut")
        self._proxy.cut_all()
        return worker

    def _kill_the_target(self, worker: Replicator) -> Replicator:
        self._told("target killed")
        self._target.kill()
        self._target.restart()
        return worker

    def _stop_and_start(self, worker: Replicator) -> Replicator:
        self._told("SIGTERM")
        assert worker.stop() == 0, worker.tail()
        return self._copying.running()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_any_schedule_of_faults_loses_and_doubles_nothing(
    make_copying: MakeCopying, proxy: Proxy, target: BrokerHandle, seed: int
) -> None:
    print(f"EOS_TORTURE_SEEDS={seed}")
    copying = make_copying(via=proxy.bootstrap, limits=LIMITS, seed=seed)
    torture = Torture(copying, proxy, target, seed)
    with copying.writing():
        worker = copying.running()
        worker.wait_event("committed")
        for _ in range(FAULTS):
            worker = torture.strike(worker)
    copying.finish(worker)
