"""Which lines of the client say that answers with records don't arrive."""

from __future__ import annotations

import pytest

from replicator.kafka.fetch_size import STEPS_MAX, FetchSize
from replicator.model.errors import Retriable
from replicator.planes.fetch_watch import LATE_S, FetchWatch

LATE = "REQTMOUT [c#consumer-1] [thrd:h:1/1]: h:1/1: Timed out FetchRequest in flight (after 60605ms, timeout #0)"
OTHER = "REQTMOUT [c#consumer-1] [thrd:h:1/1]: h:1/1: Timed out MetadataRequest in flight (after 60605ms, timeout #0)"
BROKEN = "FAIL [c#consumer-1] [thrd:h:1/1]: h:1/1: Disconnected: connection closed by peer (after 16ms in state UP)"
REFUSED = "FAIL [c#consumer-1] [thrd:h:1/1]: h:1/1: Connect to ipv4#h:1 failed: refused (after 0ms in state CONNECT)"


class Time:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_two_late_answers_make_it_less() -> None:
    now_s = Time()
    watch = FetchWatch("here", FetchSize(), now_s)
    watch.line(LATE)
    watch.line(OTHER)
    watch.check()
    now_s.now_s += LATE_S
    watch.line(LATE)
    watch.check()
    watch.arrived()
    watch.line(LATE)
    with pytest.raises(Retriable, match=r"less is asked for at once"):
        watch.check()


def test_connections_that_break_with_nothing_read_between_make_it_less() -> None:
    watch = FetchWatch("here", FetchSize())
    for line in (BROKEN, BROKEN, REFUSED, REFUSED):
        watch.line(line)
    watch.arrived()
    for line in (BROKEN, BROKEN):
        watch.line(line)
        watch.check()
    watch.line(BROKEN)
    with pytest.raises(Retriable, match=r"the connection breaks"):
        watch.check()


def test_with_the_least_the_reader_goes_on_as_it_is() -> None:
    size = FetchSize()
    for _ in range(STEPS_MAX):
        size.failed(size.step)
    watch = FetchWatch("here", size)
    watch.line(LATE)
    watch.line(LATE)
    watch.check()
