"""Logging in: what may come when, what failures say, and what they cost."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kio.schema.errors import ErrorCode
from scramp.core import ScramClient

from embedded_broker.config.listeners import Listener, Protocol
from embedded_broker.security.session import ClientSession
from tests.embedded_broker.served import Client, Served, batch, produce, serving

pytestmark = pytest.mark.tier("default")  # clients that log in again

PASSWORD = "s3cret, über"
SASL = (Listener(port=0, protocol=Protocol.SASL_PLAINTEXT), Listener(port=0))
INVALID = "Authentication failed during authentication due to invalid credentials with SASL mechanism "


def _settings(directory: Path, **more: Any) -> dict[str, Any]:
    users = directory / "users.txt"
    users.write_text(f"alice:{PASSWORD}\nbob:x\n")
    return {"listeners": SASL, "users_file": users, **more}


async def _handshake(served: Served, mechanism: str) -> Client:
    client = await served.client()
    assert (await client.call("api_versions", 3, client_software_name="test", client_software_version="1")).api_keys
    answer = await client.call("sasl_handshake", 1, mechanism=mechanism)
    assert answer.error_code is ErrorCode.none
    assert set(answer.mechanisms) == {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}
    return client


async def bare(client: Client, token: bytes) -> bytes:
    """A token without any header, and the answer to it."""
    client.send_bytes(len(token).to_bytes(4, "big") + token)
    return await client.frame()


async def _scram(client: Client, mechanism: str, name: str, password: str) -> Any:
    """The last answer of an exchange."""
    ours = ScramClient([mechanism], name, password)
    answer = await client.call("sasl_authenticate", 2, auth_bytes=ours.get_client_first().encode())
    if answer.error_code is not ErrorCode.none:
        return answer
    ours.set_server_first(answer.auth_bytes.decode())
    answer = await client.call("sasl_authenticate", 2, auth_bytes=ours.get_client_final().encode())
    if answer.error_code is ErrorCode.none:
        ours.set_server_final(answer.auth_bytes.decode())
    return answer


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram(tmp_path: Path, mechanism: str) -> None:
    async def main() -> None:
        async with serving(tmp_path / "data", **_settings(tmp_path)) as served:
            client = await _handshake(served, mechanism)
            assert (await _scram(client, mechanism, "alice", PASSWORD)).error_code is ErrorCode.none
            assert (await client.call("metadata", 9, topics=None)).brokers
            (connection,) = served.server._connections
            assert connection.session.principal == "User:alice"
            for name, password in (("alice", "wrong"), ("nobody", PASSWORD)):
                other = await _handshake(served, mechanism)
                answer = await _scram(other, mechanism, name, password)
                assert answer.error_code is ErrorCode.sasl_authentication_failed
                assert answer.error_message == INVALID + mechanism, "does not tell whether the user exists"
                assert await other.closed()

    asyncio.run(main())


PLAIN = {
    b"\0alice\0" + PASSWORD.encode(): None,
    b"alice\0alice\0" + PASSWORD.encode(): None,
    b"\0alice\0wrong": "Authentication failed: Invalid username or password",
    b"\0nobody\0x": "Authentication failed: Invalid username or password",
    b"bob\0alice\0" + PASSWORD.encode(): (
        "Authentication failed: Client requested an authorization id that is different from username"
    ),
    b"": "Invalid SASL/PLAIN response: expected 3 tokens, got 1",
    b"\0alice\0": "Authentication failed: password not specified",
    b"\0\0x": "Authentication failed: username not specified",
    b"\0\xff\xff\0x": "Authentication failed: Invalid username or password",
    b"\0alice\0x\0y": "Invalid SASL/PLAIN response: expected 3 tokens, got 4",
}


def test_plain(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path / "data", **_settings(tmp_path, login_failed_delay_ms=1)) as served:
            for token, message in PLAIN.items():
                client = await _handshake(served, "PLAIN")
                answer = await client.call("sasl_authenticate", 2, auth_bytes=token)
                assert answer.error_message == message, token
                if message is None:
                    assert (await client.call("metadata", 9, topics=None)).brokers
                else:
                    assert answer.error_code is ErrorCode.sasl_authentication_failed
                    assert await client.closed()

    asyncio.run(main())


def test_before_the_login_nothing_else_is_taken(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path / "data", **_settings(tmp_path)) as served:
            await served.topic("t")
            client = await served.client()
            client.send("produce", 9, **produce("t", batch(b"v")))
            assert await client.closed()
            client = await served.client()
            client.send("sasl_authenticate", 2, auth_bytes=b"\0bob\0x")
            assert await client.closed()
            client = await _handshake(served, "PLAIN")
            client.send("metadata", 9, topics=None)
            assert await client.closed()
            client = await served.client()
            answer = await client.call("sasl_handshake", 1, mechanism="GSSAPI")
            assert answer.error_code is ErrorCode.unsupported_sasl_mechanism
            assert "PLAIN" in answer.mechanisms
            assert await client.closed()
            assert served.broker.topics.partition("t", 0).log_end == 0  # type: ignore[union-attr]

    asyncio.run(main())


def test_a_failed_login_ends_what_was_pipelined_behind_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path / "data", **_settings(tmp_path)) as served:
            await served.topic("t")
            client = await _handshake(served, "PLAIN")
            client.send("sasl_authenticate", 2, auth_bytes=b"\0alice\0wrong")
            client.send("produce", 9, **produce("t", batch(b"v")))
            assert (await client.receive()).error_code is ErrorCode.sasl_authentication_failed
            assert await client.closed()
            assert served.broker.topics.partition("t", 0).log_end == 0  # type: ignore[union-attr]

    asyncio.run(main())


def test_before_the_login_frames_are_small_and_there_is_a_deadline(tmp_path: Path) -> None:
    async def main() -> None:
        settings = _settings(tmp_path, login_deadline_ms=300, login_frame_bytes_max=1_000)
        async with serving(tmp_path / "data", **settings) as served:
            client = await served.client()
            client.send_bytes((1_001).to_bytes(4, "big"))
            assert await client.closed()
            silent = await served.client()
            logged_in = await _handshake(served, "PLAIN")
            assert (await logged_in.call("sasl_authenticate", 2, auth_bytes=b"\0bob\0x")).error_code is ErrorCode.none
            assert await silent.closed()
            await served.topic("t")
            await asyncio.sleep(0.1)
            answer = await logged_in.call("produce", 9, **produce("t", batch(bytes(100_000))))
            assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none

    asyncio.run(main())


def test_listeners_stand_side_by_side_and_each_names_itself(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path / "data", **_settings(tmp_path)) as served:
            first, second = served.broker.endpoints
            assert served.broker.port == first.port != second.port
            client = await served.client(second.port)
            (node,) = (await client.call("metadata", 9, topics=None)).brokers
            assert node.port == second.port
            assert (
                await client.call("sasl_handshake", 1, mechanism="PLAIN")
            ).error_code is ErrorCode.illegal_sasl_state
            answer = await client.call("sasl_authenticate", 2, auth_bytes=b"x")
            assert answer.error_code is ErrorCode.illegal_sasl_state
            client = await _handshake(served, "PLAIN")
            await client.call("sasl_authenticate", 2, auth_bytes=b"\0bob\0x")
            (node,) = (await client.call("metadata", 9, topics=None)).brokers
            assert node.port == first.port
            found = await client.call("find_coordinator", 2, key="g", key_type=0)
            assert found.port == first.port

    asyncio.run(main())


def test_names_of_client_software_are_checked(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            client = await served.client()
            bad = await client.call("api_versions", 3, client_software_name="a\nb", client_software_version="1")
            assert bad.error_code is ErrorCode.invalid_request
            assert not bad.api_keys
            good = await client.call("api_versions", 3, client_software_name="a-b", client_software_version="1.2")
            assert good.api_keys

    asyncio.run(main())


def test_tokens_without_headers(tmp_path: Path) -> None:
    """SaslHandshake 0, as clients of Kafka 0.10 speak it."""

    async def main() -> None:
        async with serving(tmp_path / "data", **_settings(tmp_path, login_failed_delay_ms=1)) as served:
            client = await served.client()
            assert (await client.call("sasl_handshake", 0, mechanism="PLAIN")).error_code is ErrorCode.none
            assert await bare(client, b"\0bob\0x") == b""
            assert (await client.call("metadata", 0, topics=[])).brokers
            client = await served.client()
            assert (await client.call("sasl_handshake", 0, mechanism="SCRAM-SHA-256")).error_code is ErrorCode.none
            ours = ScramClient(["SCRAM-SHA-256"], "alice", PASSWORD)
            ours.set_server_first((await bare(client, ours.get_client_first().encode())).decode())
            ours.set_server_final((await bare(client, ours.get_client_final().encode())).decode())
            assert (await client.call("metadata", 0, topics=[])).brokers
            for token in (b"\0bob\0y", b"", b"n,,n=bob"):
                client = await served.client()
                await client.call("sasl_handshake", 0, mechanism="PLAIN")
                client.send_bytes(len(token).to_bytes(4, "big") + token)
                assert await client.closed(), token

    asyncio.run(main())


async def log_in_again(client: Client, name: str, password: str, mechanism: str = "PLAIN") -> Any:
    """Another login on the same connection; the last answer."""
    answer = await client.call("sasl_handshake", 1, mechanism=mechanism)
    if answer.error_code is not ErrorCode.none:
        return answer
    if mechanism != "PLAIN":
        return await _scram(client, mechanism, name, password)
    return await client.call("sasl_authenticate", 1, auth_bytes=f"\0{name}\0{password}".encode())


class SessionClock:
    """The time that sessions go by stands still, but for what a test moves it on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1_000.0
        for method in (ClientSession.is_over, ClientSession.may_begin, ClientSession.begin, ClientSession.step):
            monkeypatch.setattr(ClientSession, method.__name__, self._by_this_clock(method))

    def _by_this_clock(self, method: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(method)

        def call(*arguments: Any, **keywords: Any) -> Any:
            bound = signature.bind(*arguments, **keywords)
            bound.arguments["now_s"] = self.now_s
            return method(*bound.args, **bound.kwargs)

        return call


def test_a_session_ends_unless_its_client_logs_in_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """KIP-368, as SaslServerAuthenticator, KafkaChannel and SocketServer do it."""
    clock = SessionClock(monkeypatch)

    async def main() -> None:
        settings = _settings(tmp_path, connections_reauth_ms_max=200, login_failed_delay_ms=1)
        async with serving(tmp_path / "data", **settings) as served:
            renewed, other = await served.client(), await served.client()
            for client in (renewed, other):
                answer = await log_in_again(client, "bob", "x")
                assert answer.session_lifetime.total_seconds() == 0.2
            clock.now_s += 0.15
            assert (await log_in_again(renewed, "bob", "x")).session_lifetime.total_seconds() == 0.2
            too_soon = await renewed.call("sasl_handshake", 1, mechanism="PLAIN")
            assert too_soon.error_code is ErrorCode.illegal_sasl_state
            clock.now_s += 0.1
            assert (await renewed.call("metadata", 9, topics=None)).brokers, "the new session holds"
            other.send("metadata", 9, topics=None)
            assert await other.closed()
            late = await served.client()
            await log_in_again(late, "bob", "x")
            clock.now_s += 0.25
            assert (await log_in_again(late, "bob", "x")).error_code is ErrorCode.none, (
                "too late is not too late for that"
            )
            assert (await late.call("metadata", 9, topics=None)).brokers

    asyncio.run(main())


def test_another_login_must_be_of_the_same_principal_by_the_same_mechanism(tmp_path: Path) -> None:
    async def main() -> None:
        settings = _settings(tmp_path, connections_reauth_ms_max=60_000, login_failed_delay_ms=1)
        async with serving(tmp_path / "data", **settings) as served:
            client = await served.client()
            await log_in_again(client, "bob", "x")
            answer = await log_in_again(client, "alice", PASSWORD)
            assert answer.error_code is ErrorCode.sasl_authentication_failed
            expected = "Cannot change principals during re-authentication from User.bob: User.alice"
            assert answer.error_message == expected
            assert await client.closed()
            client = await served.client()
            await log_in_again(client, "bob", "x")
            handshake = await client.call("sasl_handshake", 1, mechanism="SCRAM-SHA-256")
            assert handshake.error_code is ErrorCode.none
            client.send("sasl_authenticate", 2, auth_bytes=b"n,,n=bob,r=x")
            assert await client.closed()
            client = await served.client()
            await log_in_again(client, "bob", "x", "SCRAM-SHA-256")
            answer = await log_in_again(client, "bob", "wrong", "SCRAM-SHA-256")
            message = "Authentication failed during re-authentication due to invalid credentials with SASL mechanism "
            assert answer.error_message == message + "SCRAM-SHA-256"
            assert await client.closed()
            client = await served.client()
            await log_in_again(client, "bob", "x")
            assert (await client.call("sasl_handshake", 1, mechanism="PLAIN")).error_code is ErrorCode.none
            client.send("metadata", 9, topics=None)
            assert await client.closed(), "nothing else comes between"

    asyncio.run(main())


def test_librdkafka_logs_in_again_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does so after nine tenths of the lifetime, which must be more than the second that has to lie between.

    On a busy machine it may come too late, so here a session lasts for a minute longer than its client was told.
    """
    monkeypatch.setattr(ClientSession, "is_over", lambda self, now_s: now_s > self._expires_s + 60)
    errors: list[object] = []

    def work(port: int) -> Producer:
        config = {"bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": "SASL_PLAINTEXT",
                  "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "bob", "sasl.password": "x",
                  "error_cb": errors.append, "linger.ms": 0}  # fmt: skip
        producer = Producer(config)
        for _ in range(25):
            producer.produce("t", b"v", on_delivery=lambda error, _: errors.append(error) if error else None)
            assert producer.flush(10) == 0
            time.sleep(0.1)
        return producer

    async def main() -> None:
        async with serving(tmp_path / "data", **_settings(tmp_path, connections_reauth_ms_max=1_500)) as served:
            await served.topic("t")
            producer = await asyncio.to_thread(work, served.broker.port)
            assert not errors
            assert any(each.session._again_s > 0 for each in served.server._connections)
            del producer
            assert served.broker.topics.partition("t", 0).log_end == 25  # type: ignore[union-attr]

    asyncio.run(main())
