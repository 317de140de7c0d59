"""DescribeDelegationToken: who is told that the broker issues no tokens, and who may not ask."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.config.listeners import ClientAuth, Listener, Protocol, TlsFiles
from tests.embedded_broker.security.certificates import Authority
from tests.embedded_broker.security.test_tls import client_context
from tests.embedded_broker.served import serving


@pytest.mark.parametrize("shows_certificate", [False, True])
def test_over_tls_the_certificate_is_the_login(tmp_path: Path, shows_certificate: bool) -> None:
    """Real Kafka, in `integration_tests/contract`, has no listener on which the certificate is optional."""
    authority = Authority(tmp_path)
    broker = authority.sign("broker")
    files = TlsFiles(broker.certificate, broker.key, None, authority.certificate, ClientAuth.REQUESTED)

    async def main() -> None:
        listeners = (Listener(port=0, protocol=Protocol.SSL),)
        async with serving(tmp_path / "data", listeners=listeners, tls=files) as served:
            client = await served.client(
                tls=client_context(authority, authority.sign("client") if shows_certificate else None)
            )
            answer = await client.call("describe_delegation_token", 3, owners=None)
            assert answer.error_code is (
                ErrorCode.delegation_token_auth_disabled
                if shows_certificate
                else ErrorCode.delegation_token_request_not_allowed
            )

    asyncio.run(main())
