"""Mutated requests of every API and version against a running broker.

A short run with fixed choices is among the tests; `python -m tests.embedded_broker.fuzzing --examples 50000` makes a
long one with new choices each time, and prints the smallest request that breaks something.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import io
import tempfile
import typing
from collections.abc import Callable
from pathlib import Path
from types import NoneType
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kio.serial import entity_writer

from embedded_broker.api.registry import load_all
from embedded_broker.wire import schema
from tests.embedded_broker.served import Client, Served, batch, fetch, produce, serving

SENTINEL = b"\0\0\0\x0a" + b"\0\x12\0\0" + b"\x7f\xff\xff\xff" + b"\xff\xff"
"""ApiVersions v0 behind a mutated request: its answer says that the connection still lives."""
SENTINEL_ANSWER = b"\x7f\xff\xff\xff"
PARKED_S_MAX = 0.05
BYSTANDER_S_MAX = 5.0
HELD_BYTES_MAX = 1 << 20
NAMES = ("t", "g", "x", "", "é", "__consumer_offsets", "kafka-cluster", "User:a", "retention.ms", "1", "a" * 300)
NUMBERS = (0, 1, -1, 2, 3, 127, -128)
INTERESTING = (
    b"",
    b"\0",
    b"\xff",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\x80\0",
    b"\0\1a",
)
EVERY = [(api.name, version) for _, api in sorted(load_all().items()) for version in api.versions]

_values: dict[str, st.SearchStrategy[Any]] = {
    "string": st.sampled_from(NAMES),
    "bool": st.booleans(),
    "bytes": st.sampled_from([b"", b"\0x\0y", b"n,,n=a,r=b", bytes(40)]),
    "records": st.sampled_from([batch(b"v"), batch(b"v", b"w", producer_id=1, producer_epoch=0), bytes(70), b""]),
    "uuid": st.uuids(),
    "float64": st.just(1.5),
}
_number = st.sampled_from(NUMBERS)
_waiting = st.sampled_from((0, 1, -1))


@st.composite
def requests(draw: st.DrawFn, kind: Any) -> dict[str, Any]:
    """Fields of a request, or of an entity in one."""
    hints = typing.get_type_hints(kind)
    return {field.name: draw(_field(field, hints[field.name])) for field in dataclasses.fields(kind)}


def _field(field: dataclasses.Field[Any], hint: Any) -> st.SearchStrategy[Any]:
    parts = [part for part in typing.get_args(hint) if part is not NoneType]
    optional = NoneType in typing.get_args(hint)
    if typing.get_origin(hint) is not tuple and any(typing.get_origin(part) is tuple for part in parts):
        hint = next(part for part in parts if typing.get_origin(part) is tuple)
    if typing.get_origin(hint) is tuple:
        value: st.SearchStrategy[Any] = st.lists(_one(field, typing.get_args(hint)[0]), max_size=2)
        return st.none() | value if optional else value
    value = _one(field, hint)
    return st.none() | value if optional and field.metadata.get("kafka_type") != "uuid" else value


def _one(field: dataclasses.Field[Any], hint: Any) -> st.SearchStrategy[Any]:
    kind = field.metadata.get("kafka_type")
    if kind is None:
        inner = next(part for part in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(part))
        return requests(inner)
    if kind in ("uint16", "timedelta_i32", "timedelta_i64"):
        return _waiting if kind != "uint16" else st.just(1)
    return _values.get(kind, _number)


@st.composite
def frames(draw: st.DrawFn, name: str, version: int) -> bytes:
    """A request of an API in a version, mutated now and then, behind its size, which may lie too."""
    kind = schema.entity(name, version, "request")
    made = schema.builder(kind)(draw(requests(kind)))
    header = kind.__header_schema__(
        request_api_key=kind.__api_key__, request_api_version=version, correlation_id=1, client_id="fuzz"
    )
    out = io.BytesIO()
    entity_writer(type(header))(out, header)
    entity_writer(kind)(out, made)
    frame = bytearray(out.getvalue())
    for _ in range(draw(st.integers(0, 4))):
        _mutate(draw, frame)
    size = (
        len(frame) if draw(st.integers(0, 30)) != 17 else draw(st.sampled_from((0, 7, len(frame) + 1, -1, 2**31 - 1)))
    )
    return size.to_bytes(4, "big", signed=True) + bytes(frame)


def _mutate(draw: st.DrawFn, frame: bytearray) -> None:
    """In place, behind the API key and version, which stay."""
    at = draw(st.integers(4, max(len(frame), 4)))
    what = draw(st.sampled_from(("flip", "put", "insert", "cut", "end")))
    if what == "flip" and at < len(frame):
        frame[at] ^= 1 << draw(st.integers(0, 7))
    elif what == "put":
        value = draw(st.sampled_from(INTERESTING))
        frame[at : at + len(value)] = value
    elif what == "insert":
        frame[at:at] = draw(st.sampled_from(INTERESTING) | st.binary(max_size=8))
    elif what == "cut":
        del frame[at : at + draw(st.integers(1, 8))]
    elif what == "end":
        del frame[at:]


class Target:
    """A broker, and a bystander who must never notice anything."""

    def __init__(self, served: Served, bystander: Client) -> None:
        self._served, self._bystander = served, bystander
        self._offset = 0
        self.errors: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: self.errors.append(context))

    async def take(self, frame: bytes) -> None:
        """Send a request and see that nothing breaks. Raises AssertionError."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._served.broker.port)
        writer.write(frame + SENTINEL)
        try:
            async with asyncio.timeout(PARKED_S_MAX):
                while True:
                    size = int.from_bytes(await reader.readexactly(4), "big")
                    if (await reader.readexactly(size))[:4] == SENTINEL_ANSWER:
                        break
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
            pass  # waiting, or closed, as it should be
        writer.transport.abort()
        assert not self._served.broker.failed.done(), self._served.broker.failed
        assert not self.errors, self.errors
        await self._is_undisturbed()

    async def _is_undisturbed(self) -> None:
        async with asyncio.timeout(BYSTANDER_S_MAX):
            written = await self._bystander.call("produce", 9, **produce("bystander", batch(b"%d" % self._offset)))
            found = written.responses[0].partition_responses[0]
            assert (found.error_code, found.base_offset) == (0, self._offset), found
            read = await self._bystander.call("fetch", 12, **fetch("bystander", self._offset))
            assert batch(b"%d" % self._offset)[61:] in read.responses[0].partitions[0].records
        self._offset += 1

    async def has_let_go(self) -> None:
        """Wait until nobody is connected but the bystander, for whom little is held."""
        async with asyncio.timeout(BYSTANDER_S_MAX):
            while len(self._served.server._connections) > 1:  # noqa: ASYNC110 - the condition has no event
                await asyncio.sleep(0.01)
        assert self._served.server.requests.total_bytes < HELD_BYTES_MAX
        assert self._served.server.answers.total_bytes < HELD_BYTES_MAX


def fuzz(directory: Path, examples: int, derandomize: bool, authorizer: bool = False) -> None:
    """Send that many requests, as many of each version of each API.

    Raises what the first one to break something raised, after making it smaller.
    """
    phases = [Phase.generate] if derandomize else [Phase.generate, Phase.shrink]

    def run(take: Callable[[bytes], None], name: str, version: int) -> None:
        @settings(max_examples=max(examples // len(EVERY), 1), derandomize=derandomize, database=None, deadline=None,
                  phases=phases, suppress_health_check=list(HealthCheck))  # fmt: skip
        @given(frames(name, version))
        def one(frame: bytes) -> None:
            take(frame)

        one()

    with asyncio.Runner() as runner:
        settings_of_broker: dict[str, Any] = {"partitions_max": 200, "fsync": "never", "auto_create_topics": True}
        if authorizer:
            settings_of_broker.update(authorizer=True, super_users=frozenset({"User:ANONYMOUS"}))
        context = serving(directory, **settings_of_broker)
        served = runner.run(context.__aenter__())
        try:
            target = runner.run(_prepare(served))
            for name, version in EVERY:
                run(lambda frame: runner.run(target.take(frame)), name, version)
            runner.run(target.has_let_go())
        finally:
            runner.run(context.__aexit__(None, None, None))


async def _prepare(served: Served) -> Target:
    await served.topic("t")
    await served.topic("bystander", retention_ms="-1")  # its records have an old time
    return Target(served, await served.client())


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description="Send mutated requests to a broker until something breaks.")
    parser.add_argument("--examples", type=int, default=50_000)
    parser.add_argument("--authorizer", action="store_true", help="with ACLs enforced")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        fuzz(Path(directory), arguments.examples, derandomize=False, authorizer=arguments.authorizer)
    print(f"{arguments.examples} requests, nothing broke")


if __name__ == "__main__":
    main()
