"""OAUTHBEARER: which tokens are taken, what a refusal is like, and when a login by one ends."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from kio.schema.errors import ErrorCode

from embedded_broker.config.listeners import Listener, OAuth, Protocol
from embedded_broker.security.oauth import OAuthExchange, Shown, Signed, TokenRejected, Unsecured
from embedded_broker.security.session import LoginFailed
from tests.embedded_broker.served import Client, Served, serving

NOW_S = 1_800_000_000
ALICE = {"sub": "alice", "iat": NOW_S - 5, "exp": NOW_S + 60}
EC_KEY = ec.generate_private_key(ec.SECP256R1())


@cache  # it takes a while to find one: not for whoever only collects
def rsa_key(name: str = "") -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def now_ms() -> int:
    return NOW_S * 1000


def unsecured(claims: dict[str, Any]) -> str:
    return jwt.encode(claims, "", algorithm="none")


def first(token: str, acting_as: str = "") -> bytes:
    return f"n,{acting_as},\x01auth=Bearer {token}\x01\x01".encode()


def keys(path: Path) -> OAuth:
    """A file with both keys, and one that is for something else."""
    listed = [
        {**json.loads(RSAAlgorithm.to_jwk(rsa_key().public_key())), "kid": "r", "alg": "RS256", "use": "sig"},
        {**json.loads(ECAlgorithm.to_jwk(EC_KEY.public_key())), "kid": "e"},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "shared"},
    ]
    path.write_text(json.dumps({"keys": listed}))
    return OAuth(path, "https://issuer", "kafka")


SIGNED = ALICE | {"iss": "https://issuer", "aud": ["kafka", "more"]}


def test_tokens_without_signature() -> None:
    tokens = Unsecured(now_ms)
    assert tokens.check(unsecured(ALICE)) == Shown("alice", (NOW_S + 60) * 1000)
    assert tokens.check(unsecured({"sub": "a", "exp": NOW_S + 0.5})) == Shown("a", NOW_S * 1000 + 500)


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": NOW_S + 1},
        ALICE | {"sub": ""},
        ALICE | {"sub": "\ud800"},
        {"sub": "alice"},
        ALICE | {"exp": NOW_S},
        ALICE | {"exp": str(NOW_S + 60)},
        ALICE | {"exp": True},
        ALICE | {"exp": 1e300},
        ALICE | {"iat": NOW_S + 1},
        ALICE | {"nbf": NOW_S + 1},
    ],
)
def test_claims_that_do_not_hold(claims: dict[str, Any]) -> None:
    with pytest.raises(TokenRejected):
        Unsecured(now_ms).check(unsecured(claims))


@pytest.mark.parametrize("token", ["", "x", "a.b", "a.b.c", unsecured(ALICE) + "c2ln", jwt.encode(ALICE, "k" * 32)])
def test_what_is_no_token_without_signature(token: str) -> None:
    with pytest.raises(TokenRejected):
        Unsecured(now_ms).check(token)


def test_signed_tokens(tmp_path: Path) -> None:
    tokens = Signed(keys(tmp_path / "keys"), now_ms)
    for key, algorithm, kid in ((rsa_key(), "RS256", "r"), (EC_KEY, "ES256", "e")):
        token = jwt.encode(SIGNED, key, algorithm=algorithm, headers={"kid": kid})
        assert tokens.check(token).name == "alice"


@pytest.mark.parametrize(
    "make",
    [
        lambda: jwt.encode(SIGNED, rsa_key("other"), algorithm="RS256", headers={"kid": "r"}),
        lambda: jwt.encode(SIGNED, rsa_key(), algorithm="RS256", headers={"kid": "unknown"}),
        lambda: jwt.encode(SIGNED, rsa_key("other"), algorithm="RS256"),
        lambda: jwt.encode(SIGNED, "secret" * 6, algorithm="HS256", headers={"kid": "shared"}),
        lambda: jwt.encode(SIGNED, "", algorithm="none", headers={"kid": "r"}),
        lambda: jwt.encode(SIGNED | {"iss": "x"}, rsa_key(), algorithm="RS256", headers={"kid": "r"}),
        lambda: jwt.encode(SIGNED | {"aud": "x"}, rsa_key(), algorithm="RS256", headers={"kid": "r"}),
        lambda: jwt.encode(SIGNED | {"exp": NOW_S}, rsa_key(), algorithm="RS256", headers={"kid": "r"}),
    ],
)
def test_signed_tokens_that_do_not_hold(tmp_path: Path, make: Callable[[], str]) -> None:
    with pytest.raises(TokenRejected):
        Signed(keys(tmp_path / "keys"), now_ms).check(make())


def _only(path: Path, *listed: dict[str, Any]) -> Signed:
    path.write_text(json.dumps({"keys": listed}))
    return Signed(OAuth(path, "https://issuer", "kafka"), now_ms)


def _jwk(**more: Any) -> dict[str, Any]:
    return {**json.loads(RSAAlgorithm.to_jwk(rsa_key().public_key())), **more}


ALGORITHMS_OF_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")


@pytest.mark.parametrize("algorithm", ALGORITHMS_OF_RSA)
def test_a_key_that_names_no_algorithm_has_all_of_its_type(tmp_path: Path, algorithm: str) -> None:
    token = jwt.encode(SIGNED, rsa_key(), algorithm=algorithm, headers={"kid": "r"})
    assert _only(tmp_path / "keys", _jwk(kid="r")).check(token).name == "alice"
    assert _only(tmp_path / "keys", _jwk(kid="r", use="sig", alg=algorithm)).check(token).name == "alice"
    other = next(each for each in ALGORITHMS_OF_RSA if each != algorithm)
    with pytest.raises(TokenRejected):
        _only(tmp_path / "keys", _jwk(kid="r", alg=other)).check(token)


def test_a_public_key_is_never_taken_for_a_shared_secret(tmp_path: Path) -> None:
    """A token that says HS256, with the public key's own bytes for a secret."""
    tokens = _only(tmp_path / "keys", _jwk(kid="r"))
    public = rsa_key().public_key()
    secrets = [
        public.public_bytes(encoding, form)
        for encoding in (serialization.Encoding.PEM, serialization.Encoding.DER)
        for form in (serialization.PublicFormat.SubjectPublicKeyInfo, serialization.PublicFormat.PKCS1)
    ]
    secrets.append(json.dumps(_jwk(kid="r")).encode())
    for secret in secrets:
        for algorithm, digest in (("HS256", "sha256"), ("HS384", "sha384"), ("HS512", "sha512")):
            parts = [json.dumps({"alg": algorithm, "typ": "JWT", "kid": "r"}).encode(), json.dumps(SIGNED).encode()]
            signed = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
            signature = base64.urlsafe_b64encode(hmac.digest(secret, signed, digest)).rstrip(b"=")
            with pytest.raises(TokenRejected, match=f"0 keys for {algorithm}"):
                tokens.check((signed + b"." + signature).decode())


@pytest.mark.parametrize("listed", [{"use": "enc"}, {"alg": "HS256"}, {"alg": "none"}, {"alg": "ES256"}])
def test_a_key_for_something_else_checks_nothing(tmp_path: Path, listed: dict[str, Any]) -> None:
    ec_key = {**json.loads(ECAlgorithm.to_jwk(EC_KEY.public_key())), "kid": "e"}
    tokens = _only(tmp_path / "keys", ec_key, _jwk(kid="r", **listed))
    token = jwt.encode(SIGNED, rsa_key(), algorithm="RS256", headers={"kid": "r"})
    with pytest.raises(TokenRejected, match="0 keys"):
        tokens.check(token)


def test_a_token_without_kid_is_checked_with_the_only_key_of_its_algorithm(tmp_path: Path) -> None:
    ec_key = json.loads(ECAlgorithm.to_jwk(EC_KEY.public_key()))
    tokens = _only(tmp_path / "keys", ec_key, _jwk(kid="r"))
    assert tokens.check(jwt.encode(SIGNED, rsa_key(), algorithm="PS512")).name == "alice"
    assert tokens.check(jwt.encode(SIGNED, EC_KEY, algorithm="ES256")).name == "alice"
    other = {**json.loads(RSAAlgorithm.to_jwk(rsa_key("other").public_key())), "kid": "o"}
    with pytest.raises(TokenRejected, match="2 keys"):
        _only(tmp_path / "keys", _jwk(kid="r"), other).check(jwt.encode(SIGNED, rsa_key(), algorithm="RS256"))


def test_new_keys_are_read_while_the_broker_runs(tmp_path: Path) -> None:
    settings = keys(tmp_path / "keys")
    tokens = Signed(settings, now_ms)
    token = jwt.encode(SIGNED, rsa_key("other"), algorithm="RS256", headers={"kid": "new"})
    with pytest.raises(TokenRejected):
        tokens.check(token)
    listed = {**json.loads(RSAAlgorithm.to_jwk(rsa_key("other").public_key())), "kid": "new"}
    (tmp_path / "next").write_text(json.dumps({"keys": [listed]}))
    (tmp_path / "next").replace(tmp_path / "keys")
    assert tokens.check(token).name == "alice"


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"keys": []}', '{"keys": 5}'])
def test_a_file_without_keys_is_told_at_the_start(tmp_path: Path, content: str) -> None:
    (tmp_path / "keys").write_text(content)
    with pytest.raises(ValueError, match=r"keys|JSON|Expecting"):
        Signed(OAuth(tmp_path / "keys"), now_ms)


def test_a_refusal_is_told_before_the_login_fails() -> None:
    exchange = OAuthExchange(Unsecured(now_ms), now_ms)
    assert exchange.step(first(unsecured({"sub": "alice"}))) == b'{"status":"invalid_token"}'
    assert exchange.principal is None
    with pytest.raises(LoginFailed, match="invalid_token"):
        exchange.step(b"\x01")
    assert exchange.principal is None


@pytest.mark.parametrize(
    "token", [b"", b"n,,", b"y,,\x01auth=Bearer x\x01\x01", b"n,,\x01auth=Basic x\x01\x01", b"n,,\x01\x01", b"\xff"]
)
def test_what_is_no_first_message(token: bytes) -> None:
    with pytest.raises(LoginFailed, match="Invalid OAUTHBEARER"):
        OAuthExchange(Unsecured(now_ms), now_ms).step(token)


def test_acting_as_somebody_else() -> None:
    exchange = OAuthExchange(Unsecured(now_ms), now_ms)
    with pytest.raises(LoginFailed, match="different"):
        exchange.step(first(unsecured(ALICE), "a=bob"))
    exchange = OAuthExchange(Unsecured(now_ms), now_ms)
    assert exchange.step(first(unsecured(ALICE), "a=alice")) == b""
    assert (exchange.principal, exchange.lifetime_ms) == ("User:alice", 60_000)


SASL = (Listener(port=0, protocol=Protocol.SASL_PLAINTEXT),)


async def login(served: Served, token: str) -> tuple[Client, Any]:
    client = await served.client()
    assert (await client.call("sasl_handshake", 1, mechanism="OAUTHBEARER")).error_code is ErrorCode.none
    return client, await client.call("sasl_authenticate", 2, auth_bytes=first(token))


@pytest.mark.tier("default")  # waits for the end of a login
def test_a_login_ends_with_its_token(tmp_path: Path) -> None:
    async def main() -> None:
        offered: dict[str, Any] = {"listeners": SASL, "sasl_mechanisms": ("OAUTHBEARER",), "login_failed_delay_ms": 0}
        async with serving(tmp_path, **offered) as served:
            now_s = served.broker.clock.now_ms() / 1000
            client, answer = await login(served, unsecured({"sub": "alice", "exp": now_s + 1.2}))
            assert answer.error_code is ErrorCode.none
            assert 0 < answer.session_lifetime.total_seconds() <= 1.2
            assert (await client.call("metadata", 9, topics=None)).brokers
            await asyncio.sleep(answer.session_lifetime.total_seconds() + 0.01)
            client.send("metadata", 9, topics=None)
            assert await client.closed()

            client, answer = await login(served, unsecured({"sub": "alice", "exp": now_s - 1}))
            assert (answer.error_code, answer.auth_bytes) == (ErrorCode.none, b'{"status":"invalid_token"}')
            answer = await client.call("sasl_authenticate", 2, auth_bytes=b"\x01")
            assert answer.error_code is ErrorCode.sasl_authentication_failed
            assert await client.closed()

    asyncio.run(main())
