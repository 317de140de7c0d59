"""What no handler may see: too long names in any field of any API. Kafka closes the connection, too."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from embedded_broker.api import boundary
from embedded_broker.api.boundary import MEMBER_SUFFIX_BYTES, OutOfBounds
from embedded_broker.api.registry import load_all
from embedded_broker.wire import schema
from embedded_broker.wire.request_limits import STRING_BYTES_MAX
from tests.embedded_broker import generated
from tests.embedded_broker.served import Client, Served, serving

EVERY = [(api.name, version) for _, api in sorted(load_all().items()) for version in api.versions]
LOGIN = ("sasl_handshake", "sasl_authenticate")
AT_ONCE = 50
WAIT_S, WAIT_S_MAX = 0.3, 20.0
"""A handler that waits (for a rebalance, say) has taken the request."""


async def _ask(served: Served, frame: bytes, wait_s: float) -> bytes | None:
    """The answer; nothing when the connection is closed; None when the handler waits for something."""
    client: Client = await served.client()
    client.send_bytes(frame)
    try:
        async with asyncio.timeout(wait_s):
            size = int.from_bytes(await client.reader.readexactly(4), "big")
            return await client.reader.readexactly(size)
    except TimeoutError:
        return None
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return b""
    finally:
        client.writer.close()


async def _ask_all(served: Served, requests: list[tuple[str, Any]], wait_s: float) -> dict[str, bytes | None]:
    answers: dict[str, bytes | None] = {}
    for first in range(0, len(requests), AT_ONCE):
        some = requests[first : first + AT_ONCE]
        found = await asyncio.gather(*(_ask(served, generated.frame(made), wait_s) for _, made in some))
        answers |= {what: answer for (what, _), answer in zip(some, found, strict=True)}
    return answers


def _each_string(size: int, among: list[tuple[str, int]]) -> list[tuple[str, Any]]:
    return [
        (f"{name} v{version} {'.'.join(path)}", generated.request(name, version, {path: "x" * size}))
        for name, version in among
        for path in generated.strings(name, version)
    ]


def _known(served: Served) -> tuple[set[str], set[str], set[str]]:
    broker = served.broker
    groups = {group.group_id for group in broker.groups.all()}
    return set(broker.topics.names()), groups, {each.transactional_id for each in broker.transactions.all()}


@pytest.mark.tier("default")
def test_a_string_that_no_record_can_hold_closes_the_connection_and_leaves_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        failures: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        async with serving(tmp_path) as served:
            before = _known(served)
            flexible = [each for each in EVERY if schema.entity(*each, "request").__flexible__]
            answers = await _ask_all(served, _each_string(STRING_BYTES_MAX + 1, flexible), WAIT_S_MAX)
            assert len(answers) > 200
            assert {what for what, answer in answers.items() if answer != b""} == set()
            assert (_known(served), failures, served.broker.failed.done()) == (before, [], False)

    asyncio.run(main())


@pytest.mark.tier("default")
def test_no_handler_breaks_at_the_longest_string(tmp_path: Path) -> None:
    """It answers, waits, or closes the connection with a reason; and the broker starts again."""

    async def main() -> None:
        failures: list[dict[str, Any]] = []
        async with serving(tmp_path, auto_create_topics=False) as served:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
            requests = [each for each in _each_string(STRING_BYTES_MAX, EVERY) if not each[0].startswith(LOGIN)]
            await _ask_all(served, requests, WAIT_S)
            assert ([str(each) for each in failures], served.broker.failed.done()) == ([], False)
        async with serving(tmp_path, auto_create_topics=False) as served:
            assert not served.broker.failed.done()

    asyncio.run(main())


def test_a_member_id_that_no_record_can_hold_is_not_made(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            known = {"session_timeout": 10_000, "rebalance_timeout": 10_000, "protocols": [{"name": "p"}]}
            client = await served.client()
            longest = "x" * STRING_BYTES_MAX
            client.send("join_group", 9, group_id="g", group_instance_id=longest, protocol_type="consumer", **known)
            assert await client.closed()
            assert served.broker.groups.all() == []

    asyncio.run(main())


@pytest.mark.parametrize("field", ["client_id", "group_instance_id"])
def test_what_a_member_id_is_made_of_leaves_space_for_the_rest(field: str) -> None:
    fitting = "x" * (STRING_BYTES_MAX - MEMBER_SUFFIX_BYTES)
    for text, fits in ((fitting, True), (fitting + "x", False), ("é" * (len(fitting) // 2 + 1), False)):
        client_id, instance_id = (text, None) if field == "client_id" else ("c", text)
        made = generated.request("join_group", 9, {("group_instance_id",): instance_id})
        if fits:
            boundary.check("join_group", client_id, made)
        else:
            with pytest.raises(OutOfBounds):
                boundary.check("join_group", client_id, made)
