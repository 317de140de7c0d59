"""Which APIs the broker speaks, in which versions, and who answers.

A handler is `async def handle(broker, conn, request, version)` decorated with `@api`; `ports` says what the first two
are. `net.server` looks up handlers here. A handler gives back

- a mapping with the newest field names of the response (`wire.schema` keeps what the version has),
- `Later`, when the answer is not there yet but the connection's next request may be taken already, or
- None, when the protocol wants no answer (Produce with acks=0).
"""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import sys
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any

from embedded_broker.api.disk_full import REFUSALS, REFUSALS_WITHOUT_RESERVE
from embedded_broker.api.ports import Client, Parts
from embedded_broker.storage.disk_space import NoSpace
from embedded_broker.wire.responses import Answer

Handler = Callable[[Parts, Client, Any, int], Coroutine[Any, Any, Answer]]


@dataclass(frozen=True, slots=True)
class Api:
    """One API of the protocol. `versions` are those spoken, without a gap."""

    key: int
    name: str
    versions: range
    handle: Handler
    notes: str
    """Its behaviour and what its versions changed, for docs/protocol.md."""


APIS: dict[int, Api] = {}
"""By key. Filled by the decorators when `load_all` imports the modules of this package."""


def api(
    key: int, name: str, versions: range, notes: str = "", *, changes: bool = False
) -> Callable[[Handler], Handler]:
    """Register a handler.

    Args:
        key: of the API.
        name: kio's, in snake case.
        versions: those that the handler speaks.
        notes: what docs/protocol.md says of it; by default the docstring of its module, but for the first line.
        changes: whether it changes something that is durable, step by step: once it has begun it runs to its end, as in
            Kafka, even if its client leaves.

    Raises ValueError for a key taken twice.
    """

    def register(handle: Handler) -> Handler:
        if key in APIS and APIS[key].handle.__module__ != handle.__module__:
            raise ValueError(f"API {key} has two handlers: {APIS[key].handle.__module__}, {handle.__module__}")
        text = notes or (sys.modules[handle.__module__].__doc__ or "").partition("\n")[2].strip()
        guarded = _refusing_when_disk_full(name, handle)
        APIS[key] = Api(key, name, versions, _running_to_its_end(name, guarded) if changes else guarded, text)
        return handle

    return register


def _refusing_when_disk_full(name: str, handle: Handler) -> Handler:
    """Return the handler, which is not asked while there is no disk space for what it would write.

    Invariant: a handler that raises NoSpace has changed nothing that the same request, repeated, would not put right.
    """
    at_once = name in REFUSALS
    refuse = REFUSALS.get(name) or REFUSALS_WITHOUT_RESERVE.get(name)
    if refuse is None:
        return handle

    @wraps(handle)
    async def guarded(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
        if broker.has_disk_space or not at_once:
            with contextlib.suppress(NoSpace):
                return await handle(broker, conn, request, version)
        return refuse(request, version)

    return guarded


def _running_to_its_end(name: str, handle: Handler) -> Handler:
    @wraps(handle)
    async def detached(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
        return await broker.metadata.changes.finish(name, lambda: handle(broker, conn, request, version))

    return detached


def load_all() -> Mapping[int, Api]:
    """Import every module of this package and return the APIs by key."""
    package = importlib.import_module("embedded_broker.api")
    for module in pkgutil.iter_modules(package.__path__, "embedded_broker.api."):
        importlib.import_module(module.name)
    return APIS
