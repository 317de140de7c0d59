"""Fault injection for tests: `KafkaBroker.faults` is a `FaultInjector`, whose methods return `Fault` objects."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Literal, Protocol

HIT_S_MAX = 30.0
At = Literal["request", "reply"]


class FaultTarget(Protocol):
    """Passes faults on to the broker: implemented by `KafkaBroker`, which knows whether the broker runs."""

    def add_fault(self, number: int, spec: Mapping[str, Any]) -> None:
        """Inject a fault, with the fields of `faults.FaultSpec`. Raises ValueError for an invalid one."""

    def release_fault(self, number: int) -> None:
        """Let the requests that the fault holds proceed."""

    def remove_faults(self, numbers: list[int] | None) -> None:
        """Remove the faults with these numbers; None: all."""


class Fault:
    """One injected fault. As a context manager it is removed at the end of the block."""

    def __init__(self, target: FaultTarget, number: int, what: str) -> None:
        self._target, self._number, self._what = target, number, what
        self._hit = threading.Condition()
        self._hits = 0

    @property
    def hits(self) -> int:
        """How many requests it has affected."""
        with self._hit:
            return self._hits

    def wait_hit(self, timeout_s: float = HIT_S_MAX, *, times: int = 1) -> None:
        """Return once it has affected `times` requests in all. Raises TimeoutError."""
        with self._hit:
            if not self._hit.wait_for(lambda: self._hits >= times, timeout_s):
                raise TimeoutError(f"{self._what}: {self._hits} hits within {timeout_s} s")

    def release(self) -> None:
        """Let requests that it holds, now or later, proceed."""
        self._target.release_fault(self._number)

    def remove(self) -> None:
        """Remove it; requests that it holds proceed."""
        self._target.remove_faults([self._number])

    def record_hit(self) -> None:
        """Count a hit. Called from the broker's thread."""
        with self._hit:
            self._hits += 1
            self._hit.notify_all()

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class FaultInjector:
    """Injects faults. All its methods take, besides their own arguments:

    api: the API by Kafka's name, such as `EndTxn`.
    nth, times: the first request that is affected, counted from now, and how many from there on (None: all).
    at: "request", before the broker handles it, or "reply", after it was handled and before the response is sent.
    client: only requests whose client.id contains this.

    They raise ValueError for an API or an error that doesn't exist. A fault that is injected while the broker is down
    takes effect from its next start; all end with a kill or a stop.
    """

    def __init__(self, target: FaultTarget) -> None:
        self._target = target
        self._made: dict[int, Fault] = {}

    def delay(
        self, api: str, delay_ms: int, *, nth: int = 1, times: int | None = 1, at: At = "request", client: str = ""
    ) -> Fault:
        """Have the request, and those after it on its connection, wait for `delay_ms`."""
        return self._add("delay", api, at, nth=nth, times=times, client=client, delay_ms=delay_ms)

    def hold(self, api: str, *, nth: int = 1, times: int | None = 1, at: At = "request", client: str = "") -> Fault:
        """Have the request, and those after it on its connection, wait for `Fault.release`."""
        return self._add("hold", api, at, nth=nth, times=times, client=client)

    def drop(self, api: str, *, nth: int = 1, times: int | None = 1, at: At = "request", client: str = "") -> Fault:
        """Close the connection. At "reply" the client doesn't learn that the broker has handled the request."""
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
        """Have the request answered with `error`, given by Kafka's name (`NOT_LEADER_OR_FOLLOWER`) or number."""
        return self._add("fail", api, at, nth=nth, times=times, client=client, error=error)

    def clear(self) -> None:
        """Remove all faults; requests that they hold proceed."""
        self._target.remove_faults(None)

    def record_hit(self, number: int) -> None:
        """Count a hit of the fault with that number. Called from the broker's thread."""
        self._made[number].record_hit()

    def _add(self, action: str, api: str, at: At, **fields: Any) -> Fault:
        number = len(self._made)
        self._made[number] = fault = Fault(self._target, number, f"{action} {api} {at}")
        self._target.add_fault(number, {"action": action, "api": api, "side": at, **fields})
        return fault
