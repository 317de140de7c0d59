"""Fault injection, for tests of clients: requests of an API are delayed, held, dropped or failed.

`Server` asks `Broker.faults` around every request if it is set, which only `embedded_broker.testing` does.

Invariants
- A request with a fault at `Side.REQUEST` has no effect unless it proceeds. At `Side.REPLY` it was handled completely,
  and its effects are on disk, before `on_hit` is called.
- Responses of a connection keep their order: those after a delayed one wait, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.registry import APIS, Api
from embedded_broker.net.server import CloseConnection
from embedded_broker.testing.error_answers import error_answer
from embedded_broker.wire import schema
from embedded_broker.wire.responses import Answer, Fields, Later


class Action(StrEnum):
    """What happens to a request, or to its response."""

    DELAY = "delay"  # it proceeds after `delay_ms`
    HOLD = "hold"  # it proceeds when it is released
    DROP = "drop"  # the connection is closed instead of an answer
    FAIL = "fail"  # it is answered with `error`


class Side(StrEnum):
    """When a fault takes effect."""

    REQUEST = "request"  # before the request is handled
    REPLY = "reply"  # after the request was handled, before the response is sent


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """The `nth` request of one API from now on, and the `times - 1` after it."""

    api: str
    """In Kafka's spelling (`EndTxn`) or in snake case."""
    action: str
    side: str = Side.REQUEST
    nth: int = 1
    times: int | None = 1
    """None: all from the nth on."""
    delay_ms: int = 0
    error: str | int = 0
    """Kafka's name or number of an error; for `Action.FAIL`."""
    client: str = ""
    """Only requests whose client id contains this."""


@dataclass(slots=True, eq=False)
class _Fault:
    spec: FaultSpec
    key: int
    action: Action
    side: Side
    error: ErrorCode
    on_hit: Callable[[], None]
    matched: int = 0
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def matches(self, key: int, client_id: str) -> bool:
        """Count a request; returns whether the fault applies to it."""
        if key != self.key or self.spec.client not in client_id:
            return False
        self.matched += 1
        past = self.matched - self.spec.nth
        return past >= 0 and (self.spec.times is None or past < self.spec.times)


class Faults:
    """All faults of one broker, by number. Called on the event loop only."""

    def __init__(self) -> None:
        self._faults: dict[int, _Fault] = {}

    def add(self, number: int, spec: FaultSpec, on_hit: Callable[[], None]) -> None:
        """Inject a fault; `on_hit` is called for each request it affects. Faults apply in the order of their numbers.

        Raises ValueError for an API or an error that doesn't exist, and for counts below one.
        """
        if spec.nth < 1 or (spec.times is not None and spec.times < 1) or spec.delay_ms < 0:
            raise ValueError("nth and times count from 1, and a delay isn't negative")
        action, side = Action(spec.action), Side(spec.side)
        error = _error(spec.error)
        if (action is Action.FAIL) != (error is not ErrorCode.none):
            raise ValueError(f"{action} with error {error.name}")
        self._faults[number] = _Fault(spec, _key(spec.api), action, side, error, on_hit)

    def release(self, number: int) -> None:
        """Let the requests that a fault holds, now or later, proceed."""
        if number in self._faults:
            self._faults[number].released.set()

    def remove(self, numbers: Iterable[int] | None = None) -> None:
        """Remove faults, all by default; requests that they hold proceed."""
        for number in list(self._faults) if numbers is None else numbers:
            self.release(number)
            self._faults.pop(number, None)

    async def around(
        self, api: Api, client_id: str, request: Any, version: int, handle: Callable[[], Awaitable[Answer]]
    ) -> Answer:
        """Handle one request with its faults applied. Raises CloseConnection to close the connection."""
        matching = [fault for fault in self._faults.values() if fault.matches(api.key, client_id)]
        if not matching:
            return await handle()

        async def apply(side: Side) -> Fields | None:
            """Apply the faults of one side; returns the response if one of them fails the request."""
            failed: Fields | None = None
            for fault in matching:
                if fault.side is side and failed is None:
                    failed = await _apply(fault, api, request, version)
            return failed

        failed = await apply(Side.REQUEST)
        if failed is not None and getattr(request, "acks", None) == 0:
            raise CloseConnection(f"a fault has failed {api.name}, and nobody waits for an answer")
        answer = failed if failed is not None else await handle()
        if answer is None:
            await apply(Side.REPLY)  # only a drop makes a difference
            return None
        return Later(_out(answer, lambda: apply(Side.REPLY)))


async def _out(answer: Fields | Later, apply_reply_faults: Callable[[], Awaitable[Fields | None]]) -> Fields:
    fields = await answer.answer if isinstance(answer, Later) else answer
    failed = await apply_reply_faults()
    return fields if failed is None else failed


async def _apply(fault: _Fault, api: Api, request: Any, version: int) -> Mapping[str, Any] | None:
    fault.on_hit()
    if fault.action is Action.DELAY:
        await asyncio.sleep(fault.spec.delay_ms / 1000)
    elif fault.action is Action.HOLD:
        await fault.released.wait()
    elif fault.action is Action.DROP:
        raise CloseConnection(f"a fault has dropped this {fault.side} of {api.name}")
    else:
        return error_answer(api.name, version, request, fault.error)
    return None


def _key(name: str) -> int:
    """Return the API's key. Raises ValueError."""
    plain = name.replace("_", "").lower()
    for api in APIS.values():
        if api.name.replace("_", "") == plain:
            return api.key
    raise ValueError(f"the broker has no API {name!r}")


def _error(given: str | int) -> ErrorCode:
    try:
        return schema.error(given.lower() if isinstance(given, str) else given)
    except (KeyError, ValueError):
        raise ValueError(f"Kafka has no error {given!r}") from None
