"""A producer that has lost the position group's coordinator is found out, and not one whose connection was idle."""

from __future__ import annotations

from typing import Any

import pytest

from replicator.kafka.coordinator_connection import ACTIVE_S, CoordinatorConnection

ONE, TWO = "10.0.0.1:9092/1", "sasl_ssl://10.0.0.2:9092/2"
BROKE = "FAIL [lane#producer-1] [thrd:{0}]: {0}: Disconnected: connection closed by peer (after 1731ms in state UP)"


class Now:
    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture
def connection(now: Now) -> CoordinatorConnection:
    """Its coordinator is broker 1, which has just taken positions."""
    made = CoordinatorConnection(now)
    made.statistics(brokers(one=broker(0), two=broker(0)))
    made.statistics(brokers(one=broker(3), two=broker(0)))
    made.on_committed()
    return made


def broker(commits: int, wakeups: int = 10, state: str = "UP") -> dict[str, Any]:
    return {"state": state, "wakeups": wakeups, "req": {"Produce": 7, "TxnOffsetCommit": commits}}


def brokers(*, one: dict[str, Any], two: dict[str, Any]) -> dict[str, Any]:
    return {ONE: one, TWO: two, "TxnCoordinator": {"state": "UP", "wakeups": 900, "req": {}}}


def test_a_connection_that_breaks_under_load_was_lost(connection: CoordinatorConnection) -> None:
    connection.line(BROKE.format(ONE))
    assert connection.lost.startswith(f"{ONE}: Disconnected: connection closed by peer")


def test_one_that_breaks_when_nothing_comes_may_have_been_idle(connection: CoordinatorConnection, now: Now) -> None:
    now.s += ACTIVE_S
    connection.line(BROKE.format(ONE))
    assert connection.lost == ""


@pytest.mark.parametrize(
    "line", [BROKE.format(TWO), BROKE.format("TxnCoordinator"), f"GETPID [x] [thrd:main]: {ONE}: "]
)
def test_other_lines_tell_nothing_of_the_coordinator(connection: CoordinatorConnection, line: str) -> None:
    connection.line(line)
    assert connection.lost == ""


def test_a_coordinator_that_has_moved_is_the_one_that_takes_positions_now(connection: CoordinatorConnection) -> None:
    connection.statistics(brokers(one=broker(3), two=broker(1)))
    connection.line(BROKE.format(ONE))
    assert connection.lost == ""
    connection.line(BROKE.format(TWO))
    assert connection.lost.startswith(TWO)


def test_a_thread_that_spins_without_connection_is_that_of_a_broker_that_has_left(
    connection: CoordinatorConnection, now: Now
) -> None:
    now.s += 3_600.0
    connection.statistics(brokers(one=broker(3, 20, "INIT"), two=broker(0)))
    assert connection.lost == ""
    connection.statistics(brokers(one=broker(3, 145, "INIT"), two=broker(0)))
    assert connection.lost == f"{ONE}: it has left the cluster"


def test_a_connection_that_nobody_needs_is_no_loss(connection: CoordinatorConnection) -> None:
    for wakeups in (12, 13, 15):
        connection.statistics(brokers(one=broker(3, wakeups, "INIT"), two=broker(0, 10_000 * wakeups, "INIT")))
    assert connection.lost == ""


def test_before_the_first_positions_there_is_no_coordinator(now: Now) -> None:
    made = CoordinatorConnection(now)
    made.line(BROKE.format(ONE))
    made.statistics(brokers(one=broker(0, 0, "INIT"), two=broker(0)))
    made.statistics(brokers(one=broker(0, 500, "INIT"), two=broker(0)))
    assert made.lost == ""
