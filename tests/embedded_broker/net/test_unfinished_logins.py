"""Logins that were begun and don't go on cost little, and keep nobody out."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from pathlib import Path
from typing import Any

import pytest

from embedded_broker.config.listeners import Listener, Protocol, TlsFiles
from embedded_broker.net import unfinished_logins
from embedded_broker.net.unfinished_logins import GRACE_S, UnfinishedLogins
from embedded_broker.security.tls import TlsStream, server_context
from tests.embedded_broker.process import BrokerProcess
from tests.embedded_broker.security.certificates import Authority
from tests.embedded_broker.served import Client, Served, serving

HANDSHAKES, KIB_EACH_MAX = 3_000, 30.0
ATTACKERS = ("127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5")
HONEST = "127.0.0.1"
CUT = b"\x16\x03\x01"


class Login:
    """A connection as `UnfinishedLogins` sees it."""

    def __init__(self, client_host: str) -> None:
        self.client_host, self.why = client_host, ""

    def shed(self, what: str) -> None:
        self.why = what


def _begin(logins: UnfinishedLogins[Login], address: str, now_s: float) -> Login | None:
    if logins.refuse(address, now_s):
        return None
    login = Login(address)
    logins.begin(login, now_s)
    return login


def test_the_oldest_of_an_address_gives_way_once_it_is_late() -> None:
    logins = UnfinishedLogins[Login](lambda: 8)
    begun = [_begin(logins, "a", float(each) / 10) for each in range(4)]
    assert None not in begun
    assert _begin(logins, "a", 1.0) is None, "none is late yet"
    assert _begin(logins, "a", GRACE_S) is not None
    assert [each.why != "" for each in begun if each is not None] == [True, False, False, False]
    assert len(logins) == 4


def test_the_address_with_most_gives_way_to_one_with_few_at_once() -> None:
    logins = UnfinishedLogins[Login](lambda: 8)
    begun = [_begin(logins, address, 0.0) for address in "aaaabbbb"]
    assert len(logins) == 8
    first, second = _begin(logins, "c", 0.0), _begin(logins, "c", 0.0)
    assert first is not None
    assert second is None, "that one would have more than half as many"
    assert [each is not None and each.why != "" for each in begun] == [True] + [False] * 7
    assert "there are 8 unfinished logins" in str(begun[0] and begun[0].why)


def test_who_is_known_is_not_counted() -> None:
    logins = UnfinishedLogins[Login](lambda: 2, most_of_one=2)
    for _ in range(10):
        login = _begin(logins, "a", 0.0)
        assert login is not None
        logins.end(login)
        logins.end(login)
    assert len(logins) == 0


def _client_context(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority.certificate)


def hello(context: ssl.SSLContext) -> bytes:
    """The first record of a handshake."""
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=HONEST).do_handshake()
    return outgoing.read()


async def _connect(port: int, source: str, tls: ssl.SSLContext | None = None) -> Client:
    return Client(*await asyncio.open_connection(HONEST, port, local_addr=(source, 0), ssl=tls, limit=1 << 26))


async def _leave(port: int, source: str, greeting: bytes) -> Client:
    """A login that is begun only."""
    client = await _connect(port, source)
    client.send_bytes(greeting)
    return client


def _settings(authority: Authority, **more: Any) -> dict[str, Any]:
    pair = authority.sign("broker")
    listeners = (Listener(port=0, protocol=Protocol.SSL),)
    return {"tls": TlsFiles(pair.certificate, pair.key), "listeners": listeners, **more}


@pytest.mark.tier("extended")
def test_handshakes_that_end_nowhere_keep_neither_established_nor_new_clients_out(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async def main() -> None:
        context = _client_context(authority)
        async with serving(tmp_path / "data", **_settings(authority, unfinished_logins_max=40)) as served:
            established = [await _connect(served.broker.port, ATTACKERS[0], context) for _ in range(30)]
            left = [await _leave(served.broker.port, source, hello(context)) for _ in range(30) for source in ATTACKERS]
            for _ in range(3):
                honest = await _connect(served.broker.port, HONEST, context)
                assert (await honest.call("metadata", 9, topics=None)).brokers
                honest.writer.close()
            assert len(served.server._logins) <= 40
            assert len(served.server._connections) <= 40 + 30 + 3
            for client in established:
                assert (await client.call("metadata", 9, topics=None)).brokers
            for each in (*established, *left):
                each.writer.close()

    asyncio.run(main())


async def _until_served(served: Served, source: str, context: ssl.SSLContext) -> int:
    """Connect again until it succeeds, as clients do; how often."""
    for times in range(1, 100):
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            client = await _connect(served.broker.port, source, context)
            assert (await client.call("metadata", 9, topics=None)).brokers
            client.writer.close()
            return times
        await asyncio.sleep(0.02)
    raise AssertionError("never served")


def test_a_client_at_the_attackers_address_gets_in_a_little_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfinished_logins, "GRACE_S", 0.3)
    authority = Authority(tmp_path)

    async def main() -> None:
        context = _client_context(authority)
        async with serving(tmp_path / "data", **_settings(authority, unfinished_logins_max=40)) as served:
            left = [await _leave(served.broker.port, HONEST, CUT) for _ in range(30)]
            began_s = time.monotonic()
            assert await _until_served(served, HONEST, context) > 1
            assert time.monotonic() - began_s > 0.2
            for each in left:
                each.writer.close()

    asyncio.run(main())


def test_logins_by_sasl_are_bounded_too(tmp_path: Path) -> None:
    users = tmp_path / "users.txt"
    users.write_text("alice:x\n")
    listeners = (Listener(port=0, protocol=Protocol.SASL_PLAINTEXT), Listener(port=0))
    settings: dict[str, Any] = {"listeners": listeners, "users_file": users, "unfinished_logins_max": 6}

    async def log_in(port: int, source: str) -> Client:
        client = await _connect(port, source)
        await client.call("sasl_handshake", 1, mechanism="PLAIN")
        assert (await client.call("sasl_authenticate", 2, auth_bytes=b"\0alice\0x")).error_code == 0
        return client

    async def main() -> None:
        async with serving(tmp_path / "data", **settings) as served:
            here = [await log_in(served.broker.port, ATTACKERS[0]) for _ in range(9)]
            left = []
            for _ in range(5):
                client = await _connect(served.broker.port, ATTACKERS[0])
                client.send("sasl_handshake", 1, mechanism="PLAIN")
                left.append(client)
            await asyncio.gather(*(each.receive() for each in left[:3]))
            assert await left[4].closed()
            here.append(await log_in(served.broker.port, HONEST))
            plain = [await served.client(served.broker.endpoints[1].port) for _ in range(20)]
            for client in (*here, *plain):
                assert (await client.call("metadata", 9, topics=None)).brokers
            for client in (*here, *left, *plain):
                client.writer.close()

    asyncio.run(main())


def test_a_handshake_has_a_deadline_and_so_has_the_first_request_after_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async def main() -> None:
        settings = _settings(authority, handshake_deadline_ms=200, first_request_deadline_ms=400)
        async with serving(tmp_path / "data", **settings) as served:
            cut = await served.client()
            cut.send_bytes(CUT)
            silent, asks = [await served.client(tls=_client_context(authority)) for _ in range(2)]
            assert (await asks.call("metadata", 9, topics=None)).brokers
            assert await cut.closed()
            assert await silent.closed()
            assert (await asks.call("metadata", 9, topics=None)).brokers

    asyncio.run(main())


def test_openssl_begins_with_a_whole_record(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.sign("broker")
    context, greeting = server_context(TlsFiles(pair.certificate, pair.key)), hello(_client_context(authority))
    stream = TlsStream(context)
    for at in range(len(greeting) - 1):
        stream.receive(greeting[at : at + 1])
        assert stream._tls is None
        assert stream.take() == b""
    stream.receive(greeting[-1:])
    assert stream.take()[:1] == b"\x16", "its answer"
    for nonsense in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + bytes(20), b"\0\0\0\x0a"):
        with pytest.raises(ssl.SSLError):
            TlsStream(context).receive(nonsense + bytes(20))


def _rss_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))


@pytest.mark.tier("extended")
def test_thousands_of_unfinished_handshakes_take_little_memory(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.sign("broker")
    broker = BrokerProcess(tmp_path / "data", "--tls-certificate", str(pair.certificate), "--tls-key", str(pair.key))
    broker.address = f"SSL://{broker.address}"
    with (tmp_path / "broker.log").open("wb") as log:
        broker.start(log)
    port = int(broker.address.rpartition(":")[2])

    async def main() -> float:
        context = _client_context(authority)
        (await _connect(port, HONEST, context)).writer.close()
        before_kib = _rss_kib(broker.process.pid)
        greeting = hello(context)
        left = [await _leave(port, ATTACKERS[number % 4], greeting) for number in range(HANDSHAKES)]
        honest = await _connect(port, HONEST, context)
        assert (await honest.call("metadata", 9, topics=None)).brokers
        assert len(left) == HANDSHAKES
        return (_rss_kib(broker.process.pid) - before_kib) / HANDSHAKES

    try:
        assert asyncio.run(main()) < KIB_EACH_MAX
    finally:
        broker.kill()
