"""A broker that ends though no test had it end is named: else a test would fail for what follows from it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from integration_tests.harness.embedded import EmbeddedBroker
from integration_tests.harness.processes import wait_until


def test_only_an_end_that_nobody_here_asked_for_is_unexpected(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path)
    assert not broker.unexpected_end()
    broker.start()
    try:
        assert not broker.unexpected_end()
        broker.kill()
        assert not broker.unexpected_end()
        broker.restart()
        os.kill(broker.pid, signal.SIGKILL)
        wait_until(lambda: not broker.alive(), "the broker has ended", broker.log_tail)
        assert f"the broker at {broker.bootstrap} was ended by SIGKILL" in broker.unexpected_end()
        broker.restart()
        assert not broker.unexpected_end()
    finally:
        broker.stop()
