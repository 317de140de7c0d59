"""Every API in every version: what class of answer a generated request gets, as real Kafka was seen to answer.

Without an authorizer, and with one for who has no rights and for a super user. `answer_classes.json` is what real Kafka
answers; EOS_WRITE_ANSWERS=1 with `-m kafka` writes it anew. With `-m "not kafka"` it writes `embedded_classes.json`,
what the embedded broker answers: the same but for what `deviations` has. docs/compat.md is made from both.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

from embedded_broker.api.registry import load_all
from embedded_broker.wire import schema
from integration_tests.contract.deviations import DEVIATIONS
from integration_tests.harness.broker import BrokerHandle, Kind
from integration_tests.harness.secured import USERS, Secured
from tests.embedded_broker import generated
from tests.embedded_broker.served import Client

EVERY = [(api.name, version) for _, api in sorted(load_all().items()) for version in api.versions]
SEEN: dict[Kind, Path] = {
    "kafka": Path(__file__).parent / "answer_classes.json",
    "embedded": Path(__file__).parent / "embedded_classes.json",
}
WAIT_S = 20.0
AT_ONCE = 20
ANYWHERE: dict[tuple[str, ...], Any] = {
    ("acks",): -1,
    ("replica_id",): -1,
    ("timeout",): 10_000,
    ("resource_type",): 2,
    ("resource_type_filter",): 2,
    ("resource_pattern_type",): 3,
    ("pattern_type_filter",): 3,
    ("operation",): 3,
    ("permission_type",): 3,
    ("principal",): "User:nobody",
    ("host",): "*",
    ("mechanism",): 1,
    ("endpoint_type",): 1,
    ("isolation_level",): 1,
}
"""What would be refused before anything else if it were 0."""
CLOSED = "closed"
Classes = dict[str, dict[str, str]]
"""API → versions, as "3-12" → error codes that stand anywhere in the answer, or CLOSED."""


async def _class_of(address: str, user: str | None, name: str, version: int) -> str:
    host, _, port = address.rpartition(":")
    client = Client(*await asyncio.open_connection(host, int(port), limit=1 << 26))
    try:
        if user is not None:
            assert (await client.call("sasl_handshake", 1, mechanism="PLAIN")).error_code == 0
            token = f"\0{user}\0{USERS[user]}".encode()
            assert (await client.call("sasl_authenticate", 2, auth_bytes=token)).error_code == 0
        # No topic can be called that, so none is made; and no two requests meet in a group or transactional id.
        values = ANYWHERE if name != "sasl_handshake" else {}
        client.send_bytes(generated.frame(generated.request(name, version, values, f"{name} {version}?")))
        async with asyncio.timeout(WAIT_S):
            size = int.from_bytes(await client.reader.readexactly(4), "big")
            frame = await client.reader.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return CLOSED
    finally:
        client.writer.close()
    response = schema.entity(name, version, "response")
    _, at = entity_reader(response.__header_schema__)(frame, 0)
    codes = {code.name for code in _codes(entity_reader(response)(frame, at)[0])}
    return " ".join(sorted(codes)) or "none"


def _codes(value: Any) -> Iterator[ErrorCode]:
    if isinstance(value, ErrorCode):
        yield value
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _codes(getattr(value, field.name))
    elif isinstance(value, tuple):
        for each in value:
            yield from _codes(each)


async def _warm_up(address: str) -> None:
    """Real Kafka makes the internal topics when somebody asks for a coordinator."""
    host, _, port = address.rpartition(":")
    client = Client(*await asyncio.open_connection(host, int(port)))
    init = {"transactional_id": "warm", "transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1}
    async with asyncio.timeout(WAIT_S):
        for key_type, name, fields in ((0, "offset_delete", {"group_id": "warm"}), (1, "init_producer_id", init)):
            late = {ErrorCode.coordinator_not_available, ErrorCode.not_coordinator,
                    ErrorCode.coordinator_load_in_progress}  # fmt: skip
            while (await client.call("find_coordinator", 2, key="warm", key_type=key_type)).error_code in late:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            while (await client.call(name, 0, **fields)).error_code in late:  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(0.1)
    client.writer.close()


async def _sweep(address: str, user: str | None) -> Classes:
    found: dict[tuple[str, int], str] = {}
    for first in range(0, len(EVERY), AT_ONCE):
        some = EVERY[first : first + AT_ONCE]
        classes = await asyncio.gather(*(_class_of(address, user, *each) for each in some))
        found |= dict(zip(some, classes, strict=True))
    grouped: Classes = {}
    for name, version in EVERY:
        ranges = grouped.setdefault(name, {})
        last = next(reversed(ranges), "")
        if ranges and ranges[last] == found[name, version]:
            ranges[f"{last.partition('-')[0]}-{version}"] = ranges.pop(last)
        else:
            ranges[str(version)] = found[name, version]
    return grouped


def _compare(kind: Kind, who: str, found: Classes) -> None:
    if os.environ.get("EOS_WRITE_ANSWERS"):
        known: dict[str, Classes] = json.loads(SEEN[kind].read_text()) if SEEN[kind].exists() else {}
        SEEN[kind].write_text(json.dumps({**known, who: found}, indent=1) + "\n")
        return
    seen: dict[Kind, Classes] = {of: json.loads(path.read_text()).get(who, {}) for of, path in SEEN.items()}

    def expected(name: str) -> dict[str, str]:
        deviates = kind == "embedded" and name in DEVIATIONS and who in DEVIATIONS[name].users
        return seen["embedded" if deviates else "kafka"][name]

    wrong = [
        f"{who} {name}: {ranges}, not {expected(name)}" for name, ranges in found.items() if ranges != expected(name)
    ]
    assert not wrong, "\n".join(wrong)


def test_without_an_authorizer(target: BrokerHandle, kind: Kind) -> None:
    asyncio.run(_warm_up(target.bootstrap))
    _compare(kind, "anybody", asyncio.run(_sweep(target.bootstrap, None)))


@pytest.mark.parametrize("user", ["alice", "admin"])
def test_with_an_authorizer(secured: Secured, user: str) -> None:
    asyncio.run(_warm_up(secured.bootstrap))
    _compare(secured.kind, user, asyncio.run(_sweep(secured.addresses.sasl, user)))
