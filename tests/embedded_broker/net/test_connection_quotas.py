"""How fast connections may come, and how many of one address there may be."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embedded_broker.metadata.dynamic_configs import ConnectionLimits
from embedded_broker.net import connection_quotas
from embedded_broker.net.connection_quotas import ConnectionQuotas, Turn
from tests.embedded_broker.served import Client, Served, serving

UNLIMITED = ConnectionLimits(100_000, 100_000, {}, None)


def _quotas(limits: ConnectionLimits = UNLIMITED, **rates: float) -> ConnectionQuotas:
    return ConnectionQuotas(lambda: limits, lambda address: rates.get(address), 100_000)


def test_connections_beyond_the_rate_wait_in_turn() -> None:
    quotas = _quotas(UNLIMITED._replace(rate=2))
    turns = [quotas.take("a", 100.0) for _ in range(23)]
    assert [turn.wait_s for turn in turns] == [0.0] * 20 + [0.5, 1.0, 1.5]
    assert not any(turn.refusal for turn in turns)
    assert quotas.take("a", 112.0).wait_s == 0.0


def test_not_more_than_a_queue_of_connections_wait() -> None:
    quotas = _quotas(UNLIMITED._replace(rate=1))
    turns = [quotas.take("a", 0.0) for _ in range(62)]
    assert [bool(turn.refusal) for turn in turns] == [False] * 60 + [True] * 2
    assert quotas.of("a") == 60
    assert not quotas.take("a", 1.0).refusal, "one more has had its turn"


def test_an_address_is_held_to_its_rate_and_others_are_not() -> None:
    quotas = _quotas(a=2.0)
    turns = [quotas.take("a", 0.0) for _ in range(21)]
    assert [turn.refusal for turn in turns[:20]] == [""] * 20
    assert (turns[20].refusal, turns[20].wait_s) == ("more than 2 connections come from its address in a second", 0.5)
    assert quotas.of("a") == 21, "it is there until it is closed"
    assert quotas.take("b", 0.0).refusal == ""
    assert [quotas.take("a", 0.5).refusal == "" for _ in range(2)] == [True, False]


def test_addresses_that_come_slowly_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_quotas, "ADDRESSES_MAX", 10)
    quotas = ConnectionQuotas(lambda: UNLIMITED, lambda _: 1.0, 100_000)
    for number in range(100):
        quotas.take(f"{number}", float(number))
    assert len(quotas._due_s_of) <= 11


def test_some_addresses_have_numbers_of_their_own() -> None:
    quotas = _quotas(UNLIMITED._replace(per_ip=1, overrides={"b": 2, "c": 0}))
    assert [[quotas.take(each, 0.0).refusal == "" for _ in range(3)] for each in "abc"] == [
        [True, False, False],
        [True, True, False],
        [False, False, False],
    ]
    quotas.gone("b")
    assert quotas.take("b", 0.0).refusal == ""


async def _taken_s(served: Served) -> float | None:
    """How long a new connection waits for its first answer; None: it is closed instead."""
    began_s = time.monotonic()
    client = Client(*await asyncio.open_connection("127.0.0.1", served.broker.port))
    try:
        assert (await client.call("api_versions", 0)).error_code == 0
        return time.monotonic() - began_s
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    finally:
        client.writer.close()


def _reads_though_paused(transport: Any, fd: int, callback: Callable[[], None]) -> None:
    """What asyncio of Python 3.11.2 does: for it `pause_reading` in `connection_made` comes too early."""
    if not transport._closing:
        transport._loop._add_reader(fd, callback)


@pytest.mark.parametrize("old", [False, True], ids=["this asyncio", "asyncio of Python 3.11.2"])
def test_a_connection_that_waits_is_served_in_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    """However slow the machine is: none is answered before its turn, and all are."""
    if old:
        monkeypatch.setattr("asyncio.selector_events._SelectorTransport._add_reader", _reads_though_paused)
    due_s: list[float] = []
    take = ConnectionQuotas.take

    def noted(quotas: ConnectionQuotas, address: str, now_s: float) -> Turn:
        turn = take(quotas, address, now_s)
        due_s.append(time.monotonic() + turn.wait_s)
        return turn

    async def main() -> None:
        async with serving(tmp_path, connection_creation_rate_max=4) as served:
            monkeypatch.setattr(connection_quotas, "BURST_S", 0.0)
            monkeypatch.setattr(ConnectionQuotas, "take", noted)
            began_s = time.monotonic()
            took = await asyncio.gather(*(_taken_s(served) for _ in range(3)))
            assert None not in took
            assert time.monotonic() >= max(due_s)
            assert max(due_s) > began_s + 0.2, "the last one had to wait"

    asyncio.run(main())


@pytest.mark.tier("default")
def test_a_connection_above_its_addresss_rate_is_closed_after_a_moment(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            client = await served.client()
            quota = {"entity": [{"entity_type": "ip", "entity_name": "127.0.0.1"}],
                     "ops": [{"key": "connection_creation_rate", "value": 1.0, "remove": False}]}  # fmt: skip
            answer = await client.call("alter_client_quotas", 1, entries=[quota], validate_only=False)
            assert answer.entries[0].error_code == 0
            took = await asyncio.gather(*(_taken_s(served) for _ in range(12)))
            assert took.count(None) == 2
            quota["ops"][0]["remove"] = True  # type: ignore[index]
            await client.call("alter_client_quotas", 1, entries=[quota], validate_only=False)
            assert await _taken_s(served) is not None

    asyncio.run(main())
