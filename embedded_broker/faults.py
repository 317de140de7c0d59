"""Faults on purpose, for tests of clients: requests of an API are delayed, held, dropped or failed.

A broker has none of this unless `Broker.faults` is set, which only `embedded_broker.testing` does.

Invariants
- What is stopped on its way in (`Side.REQUEST`) has no effect. What is stopped on its way out (`Side.REPLY`) has all of
  it, on disk, before `on_hit` is called.
- Answers of a connection keep their order: what waits behind a delayed one waits, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.registry import APIS, Answer, Api, Fields, Later
from embedded_broker.error_answers import error_answer
from embedded_broker.server import Refused
from embedded_broker.wire import schema


class Action(StrEnum):
    """What happens to a request, or to its answer."""

    DELAY = "delay"  # it goes on after `delay_ms`
    HOLD = "hold"  # it goes on when it is released
    DROP = "drop"  # the connection is closed instead of an answer
    FAIL = "fail"  # it is answered with `error`


class Side(StrEnum):
    """Where it happens."""

    REQUEST = "request"  # before the request is handled
    REPLY = "reply"  # when all is done, before the answer is sent


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
    seen: int = 0
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def catches(self, key: int, client_id: str) -> bool:
        """Count a request, and say whether it is one of those meant."""
        if key != self.key or self.spec.client not in client_id:
            return False
        self.seen += 1
        past = self.seen - self.spec.nth
        return past >= 0 and (self.spec.times is None or past < self.spec.times)


class Faults:
    """Of one broker; the event loop's, as all of its state."""

    def __init__(self) -> None:
        self._faults: dict[int, _Fault] = {}

    def add(self, number: int, spec: FaultSpec, on_hit: Callable[[], None]) -> None:
        """Switch a fault on; `on_hit` is called each time it strikes. Faults are met in the order of their numbers.

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
        """Let what a fault holds, now and later, go on its way."""
        if number in self._faults:
            self._faults[number].released.set()

    def remove(self, numbers: Iterable[int] | None = None) -> None:
        """Switch faults off, all by default; what they hold goes on its way."""
        for number in list(self._faults) if numbers is None else numbers:
            self.release(number)
            self._faults.pop(number, None)

    async def around(
        self, api: Api, client_id: str, request: Any, version: int, handle: Callable[[], Awaitable[Answer]]
    ) -> Answer:
        """The answer to one request, which `handle` gives unless a fault does. Raises Refused to end the connection."""
        caught = [fault for fault in self._faults.values() if fault.catches(api.key, client_id)]
        if not caught:
            return await handle()

        async def struck(side: Side) -> Fields | None:
            """Meet the faults on one side; the answer if one has failed the request."""
            failed: Fields | None = None
            for fault in caught:
                if fault.side is side and failed is None:
                    failed = await _strike(fault, api, request, version)
            return failed

        failed = await struck(Side.REQUEST)
        if failed is not None and getattr(request, "acks", None) == 0:
            raise Refused(f"a fault has failed {api.name}, and nobody waits for an answer")
        answer = failed if failed is not None else await handle()
        if answer is None:
            await struck(Side.REPLY)  # only a drop makes a difference
            return None
        return Later(_out(answer, lambda: struck(Side.REPLY)))


async def _out(answer: Fields | Later, struck: Callable[[], Awaitable[Fields | None]]) -> Fields:
    fields = await answer.answer if isinstance(answer, Later) else answer
    failed = await struck()
    return fields if failed is None else failed


async def _strike(fault: _Fault, api: Api, request: Any, version: int) -> Mapping[str, Any] | None:
    fault.on_hit()
    if fault.action is Action.DELAY:
        await asyncio.sleep(fault.spec.delay_ms / 1000)
    elif fault.action is Action.HOLD:
        await fault.released.wait()
    elif fault.action is Action.DROP:
        raise Refused(f"a fault has dropped this {fault.side} of {api.name}")
    else:
        return error_answer(api.name, version, request, fault.error)
    return None


def _key(name: str) -> int:
    """The API's key. Raises ValueError."""
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
