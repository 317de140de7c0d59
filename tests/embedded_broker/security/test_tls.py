"""TLS: who gets in, as whom, and what becomes of those who don't."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.x509.oid import NameOID

from embedded_broker.config.listeners import ClientAuth, Listener, Protocol, TlsFiles
from embedded_broker.security.tls import server_context
from tests.embedded_broker.security.certificates import CLIENT_PRINCIPAL, Authority, Pair
from tests.embedded_broker.served import batch, fetch, produce, serving

BROKER = ((NameOID.COMMON_NAME, "broker"),)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Signs both sides' certificates."""
    return Authority(tmp_path)


def _settings(authority: Authority, client_auth: ClientAuth = ClientAuth.NONE, **more: Any) -> dict[str, Any]:
    pair = authority.sign("broker", BROKER)
    files = TlsFiles(pair.certificate, pair.key, None, authority.certificate, client_auth)
    return {"tls": files, "listeners": (Listener(port=0, protocol=Protocol.SSL),), **more}


def client_context(authority: Authority, pair: Pair | None = None) -> ssl.SSLContext:
    """What a client of the authority trusts; `pair`: the certificate that it shows."""
    context = ssl.create_default_context(cafile=authority.certificate)
    if pair is not None:
        context.load_cert_chain(pair.certificate, pair.key)
    return context


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_large_requests_and_answers_go_through(tmp_path: Path, authority: Authority, version: ssl.TLSVersion) -> None:
    async def main() -> None:
        context = client_context(authority)
        context.maximum_version = version
        async with serving(tmp_path / "data", **_settings(authority)) as served:
            await served.topic("t")
            client = await served.client(tls=context)
            record = bytes(range(256)) * 3_600
            for _ in range(5):
                await client.call("produce", 9, **produce("t", batch(record)))
            answer = await client.call("fetch", 12, **fetch("t", 0, partition_max_bytes=1 << 24, max_bytes=1 << 24))
            assert len(answer.responses[0].partitions[0].records) > 5 * len(record)
            (connection,) = served.server._connections
            assert connection.session.principal == "User:ANONYMOUS"

    asyncio.run(main())


def test_old_tls_is_refused(tmp_path: Path, authority: Authority) -> None:
    async def main() -> None:
        context = client_context(authority)
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
        async with serving(tmp_path / "data", **_settings(authority)) as served:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await served.client(tls=context)

    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        asyncio.run(main())


def test_clients_are_named_by_their_certificates(tmp_path: Path, authority: Authority) -> None:
    async def main() -> None:
        async with serving(tmp_path / "data", **_settings(authority, ClientAuth.REQUIRED)) as served:
            client = await served.client(tls=client_context(authority, authority.sign("client")))
            assert (await client.call("metadata", 9, topics=None)).brokers
            (connection,) = served.server._connections
            assert connection.session.principal == CLIENT_PRINCIPAL

    asyncio.run(main())


def test_a_client_without_a_good_certificate_does_not_get_in(
    tmp_path: Path, authority: Authority, capsys: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        (tmp_path / "else").mkdir()
        stranger = Authority(tmp_path / "else", "stranger").sign("client")
        async with serving(tmp_path / "data", **_settings(authority, ClientAuth.REQUIRED)) as served:
            for pair in (None, stranger):
                with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                    await (await served.client(tls=client_context(authority, pair))).call("metadata", 9, topics=None)
            assert not [each for each in served.server._connections if not each.closed]

    asyncio.run(main())
    log = capsys.readouterr().err
    assert "peer did not return a certificate" in log
    assert "certificate verify failed" in log


@pytest.mark.parametrize(
    "greeting", [b"\0\0\0\x0a" + b"\0\x12\0\0" + b"\0\0\0\x07" + b"\xff\xff", b"GET / HTTP/1.1\r\n\r\n"]
)
def test_plain_text_where_tls_is_spoken_is_closed(tmp_path: Path, authority: Authority, greeting: bytes) -> None:
    async def main() -> None:
        async with serving(tmp_path / "data", **_settings(authority)) as served:
            client = await served.client()
            client.send_bytes(greeting)
            client.writer.write_eof()
            assert b"\0\0\0\x07" not in await client.reader.read()

    asyncio.run(main())


def test_tls_where_plain_text_is_spoken_is_closed_and_named(
    tmp_path: Path, authority: Authority, capsys: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        async with serving(tmp_path / "data") as served:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await served.client(tls=client_context(authority))

    asyncio.run(main())
    assert "TLS, where plain text is spoken?" in capsys.readouterr().err


def test_a_handshake_that_never_ends_meets_the_deadline_and_counts_as_a_connection(
    tmp_path: Path, authority: Authority
) -> None:
    async def main() -> None:
        settings = _settings(authority, login_deadline_ms=300, connections_max=2, unfinished_logins_per_ip_max=2)
        async with serving(tmp_path / "data", **settings) as served:
            silent, half = await served.client(), await served.client()
            half.send_bytes(b"\x16\x03\x01")
            await asyncio.sleep(0.1)
            assert await (await served.client()).closed()
            assert await silent.closed()
            assert await half.closed()
            assert (await (await served.client(tls=client_context(authority))).call("metadata", 9, topics=None)).brokers

    asyncio.run(main())


def test_files_that_cannot_be_used_are_named(tmp_path: Path, authority: Authority) -> None:
    pair, other = authority.sign("one", BROKER), authority.sign("two", BROKER)
    files = TlsFiles(pair.certificate, pair.key)
    server_context(files)
    with pytest.raises(ValueError, match="cannot be used"):
        server_context(replace(files, key=other.key))
    with pytest.raises(FileNotFoundError, match="missing"):
        server_context(replace(files, certificate=tmp_path / "missing"))
    with pytest.raises(ValueError, match="authorities"):
        server_context(replace(files, client_auth=ClientAuth.REQUIRED))
    assert "secret" not in repr(replace(files, key_password="secret"))
