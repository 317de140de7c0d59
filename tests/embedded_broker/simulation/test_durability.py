"""What each fsync mode promises, as the checker of the durability workload counts it."""

from __future__ import annotations

from math import inf

import pytest

from embedded_broker.simulation.durability_workload import Ack, Promise, check
from embedded_broker.simulation.history import History, ViolationKind

P = ("lasting", 0)


def acked(offset: int, sent_s: float, acked_s: float) -> Ack:
    return Ack(b"%d" % offset, P, offset, sent_s, acked_s)


@pytest.mark.parametrize(
    ("lag_s", "cut_s", "ready_s", "lost"),
    [
        (0.0, 1.5, [], True),  # the power fails between the request and its response
        (0.0, 2.1, [], False),
        (1.0, 2.1, [], True),
        (1.0, 3.1, [], False),
        (1.0, 2.5, [2.4], False),  # a start has made it durable
        (inf, 9.0, [], True),
        (inf, 9.0, [3.0], False),
        (inf, 0.5, [], False),
    ],
)
def test_what_a_power_cut_may_take(lag_s: float, cut_s: float, ready_s: list[float], lost: bool) -> None:
    assert Promise(lag_s, [cut_s], ready_s).may_lose(acked(0, 1.0, 2.0)) is lost


def test_what_no_power_cut_may_take_is_a_lost_write() -> None:
    history = History()
    check(history, [acked(0, 1.0, 2.0)], {P: {}}, Promise(0.0, [3.0], []))
    assert [violation.kind for violation in history.violations] == [ViolationKind.LOST_WRITE]


@pytest.mark.parametrize(
    ("cuts_s", "kinds"),
    [([9.0], [ViolationKind.LOST_WRITE]), ([3.0, 9.0], [])],
)
def test_only_the_end_of_what_stood_there_may_go(cuts_s: list[float], kinds: list[ViolationKind]) -> None:
    history = History()
    acks = [acked(0, 1.0, 2.0), acked(1, 4.0, 5.0)]
    check(history, acks, {P: {1: b"1"}}, Promise(inf, cuts_s, []))
    assert [violation.kind for violation in history.violations] == kinds
