"""Signals that come before anybody listens: noted, unless they are ignored, and taken once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from cli.stopping import Stopping
from replicator.flow import early_signals

pytestmark = pytest.mark.tier("unit")


@pytest.fixture(autouse=True)
def _handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)}
    monkeypatch.setattr(early_signals, "has_terminal", lambda: False)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    early_signals.taken()


def test_each_is_taken_once_and_what_asks_for_a_stop_last() -> None:
    early_signals.listen()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGTERM):
        os.kill(os.getpid(), number)
    assert early_signals.taken() == [signal.SIGHUP, signal.SIGTERM]
    assert early_signals.taken() == []


def test_what_is_ignored_stays_so() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    early_signals.listen()
    assert [signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGINT)] == [signal.SIG_IGN] * 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_job_whose_stop_was_asked_for_before_it_listened_does_not_begin(number: signal.Signals) -> None:
    early_signals.listen()
    noting = signal.getsignal(number)
    os.kill(os.getpid(), number)
    with pytest.raises(KeyboardInterrupt), Stopping():
        raise AssertionError("it has begun")
    assert signal.getsignal(number) is noting
    with Stopping():
        pass
