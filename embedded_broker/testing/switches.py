"""Faults as a test sees them: switched on by name, waited for, released."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Literal, Protocol

HIT_S_MAX = 30.0
At = Literal["request", "reply"]


class Switchboard(Protocol):
    """Whoever takes the switches to the broker."""

    def add_fault(self, number: int, spec: Mapping[str, Any]) -> None:
        """Raises ValueError for one that can't be."""

    def release_fault(self, number: int) -> None:
        """Let go what it holds."""

    def remove_faults(self, numbers: list[int] | None) -> None:
        """Some, or all."""


class Fault:
    """One fault, from when it is switched on. As a context manager it is switched off at the end of the block."""

    def __init__(self, board: Switchboard, number: int, what: str) -> None:
        self._board, self._number, self._what = board, number, what
        self._struck = threading.Condition()
        self._hits = 0

    @property
    def hits(self) -> int:
        """How often it has struck."""
        with self._struck:
            return self._hits

    def wait_hit(self, timeout_s: float = HIT_S_MAX, *, times: int = 1) -> None:
        """Return once it has struck, `times` times in all. Raises TimeoutError."""
        with self._struck:
            if not self._struck.wait_for(lambda: self._hits >= times, timeout_s):
                raise TimeoutError(f"{self._what}: {self._hits} hits within {timeout_s} s")

    def release(self) -> None:
        """What is held, now or later, goes on its way."""
        self._board.release_fault(self._number)

    def remove(self) -> None:
        """Switch it off; what is held goes on its way."""
        self._board.remove_faults([self._number])

    def struck(self) -> None:
        """Called when it strikes, by another thread."""
        with self._struck:
            self._hits += 1
            self._struck.notify_all()

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class FaultSwitches:
    """Makes faults. All its methods take, beside their own:

    api: the API by Kafka's name, such as `EndTxn`.
    nth, times: the first request that is meant, counted from now, and how many from there on (None: all).
    at: "request", before the broker does anything, or "reply", when it has done all and only the answer is missing.
    client: only requests whose client.id contains this.

    They raise ValueError for an API or an error that doesn't exist. A fault that is made while the broker is down is in
    force from its next start; all end with a kill or a stop.
    """

    def __init__(self, board: Switchboard) -> None:
        self._board = board
        self._made: dict[int, Fault] = {}

    def delay(
        self, api: str, delay_ms: int, *, nth: int = 1, times: int | None = 1, at: At = "request", client: str = ""
    ) -> Fault:
        """It, and what comes behind it on its connection, waits for `delay_ms`."""
        return self._add("delay", api, at, nth=nth, times=times, client=client, delay_ms=delay_ms)

    def hold(self, api: str, *, nth: int = 1, times: int | None = 1, at: At = "request", client: str = "") -> Fault:
        """It, and what comes behind it on its connection, waits for `Fault.release`."""
        return self._add("hold", api, at, nth=nth, times=times, client=client)

    def drop(self, api: str, *, nth: int = 1, times: int | None = 1, at: At = "request", client: str = "") -> Fault:
        """The connection is closed. At "reply" the client can't know that the broker has done what it asked for."""
        return self._add("drop", api, at, nth=nth, times=times, client=client)

    def fail(
        self,
        api: str,
        error: str | int,
        *,
        nth: int = 1,
        times: int | None = 1,
        at: At = "request",
        client: str = "",
    ) -> Fault:
        """It is answered with `error`, by Kafka's name (`NOT_LEADER_OR_FOLLOWER`) or number."""
        return self._add("fail", api, at, nth=nth, times=times, client=client, error=error)

    def clear(self) -> None:
        """Switch all off; what is held goes on its way."""
        self._board.remove_faults(None)

    def struck(self, number: int) -> None:
        """A fault has struck; called by another thread."""
        self._made[number].struck()

    def _add(self, action: str, api: str, at: At, **fields: Any) -> Fault:
        number = len(self._made)
        self._made[number] = fault = Fault(self._board, number, f"{action} {api} {at}")
        self._board.add_fault(number, {"action": action, "api": api, "side": at, **fields})
        return fault
