"""Tokens of OAUTHBEARER: asked of an endpoint with a client's secret, kept for a part of their life, never sent where
others could read them."""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from replicator.model.errors import ConfigError, Unreachable, Unsupported
from replicator.wire import sasl
from replicator.wire.oauth import TokenSource, token_settings

pytestmark = pytest.mark.tier("default")


class Endpoint(HTTPServer):
    """Gives the tokens t1, t2 …, or what `answer` says."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        self.answer: tuple[int, bytes] | None = None
        self.life: dict[str, Any] = {"expires_in": 100}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/token"


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.asked.append((self.headers["Authorization"], urllib.parse.parse_qs(body)))
        good = json.dumps({"access_token": f"t{len(self.server.asked)}", **self.server.life}).encode()
        code, answer = self.server.answer or (200, good)
        self.send_response(code)
        if code == 302:
            self.send_header("Location", self.server.url)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def oidc(url: str, **more: str) -> dict[str, str]:
    given = {"method": "oidc", "token.endpoint.url": url, "client.id": "me", "client.secret": "s:e", **more}
    return {f"sasl.oauthbearer.{name}": value for name, value in given.items() if value}


def source(given: dict[str, str], *, plaintext_allowed: bool = False) -> TokenSource:
    return TokenSource(token_settings("east", given, plaintext_allowed=plaintext_allowed))


def test_a_token_is_asked_for_with_the_client_s_secret_and_shown(endpoint: Endpoint) -> None:
    tokens = source(oidc(endpoint.url, scope="a b", extensions="logicalCluster=lc,pool=p"))
    assert tokens.first_message() == b"n,,\x01auth=Bearer t1\x01logicalCluster=lc\x01pool=p\x01\x01"
    basic = "Basic " + base64.b64encode(b"me:s:e").decode()
    assert endpoint.asked == [(basic, {"grant_type": ["client_credentials"], "scope": ["a b"]})]
    assert "s:e" not in repr(token_settings("east", oidc(endpoint.url), plaintext_allowed=False))


def test_a_token_is_used_for_a_part_of_its_life(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, now_s = source(oidc(endpoint.url)), time.monotonic()
    assert [tokens.token(), tokens.token()] == ["t1", "t1"]
    monkeypatch.setattr("replicator.wire.oauth.time.monotonic", lambda: now_s + 79)
    assert tokens.token() == "t1"
    monkeypatch.setattr("replicator.wire.oauth.time.monotonic", lambda: now_s + 85)
    assert tokens.token() == "t1"  # which holds while another one is asked for
    for thread in threading.enumerate():
        if thread.name == "token":
            thread.join(30)
    assert tokens.token() == "t2"


def test_a_token_s_own_end_counts_where_the_endpoint_says_none(endpoint: Endpoint) -> None:
    tokens = source(oidc(endpoint.url))
    endpoint.life = {}
    assert [tokens.token(), tokens.token()] == ["t1", "t2"]  # they say none either
    claims = base64.urlsafe_b64encode(json.dumps({"exp": time.time() + 60}).encode()).decode().rstrip("=")
    endpoint.life = {"access_token": f"e30.{claims}.s"}
    assert tokens.token() == tokens.token() == f"e30.{claims}.s"
    assert len(endpoint.asked) == 3


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        (401, b"{}"),
        (302, b""),
        (200, b"no JSON"),
        (200, b'{"expires_in": 5}'),
        (200, b'{"access_token": "a b"}'),
    ],
)
def test_an_endpoint_without_a_token_is_named(endpoint: Endpoint, code: int, answer: bytes) -> None:
    endpoint.answer = code, answer
    with pytest.raises(Unreachable, match=f"cluster 'east': token endpoint {endpoint.url}") as refused:
        source(oidc(endpoint.url)).token()
    assert "s:e" not in str(refused.value)
    assert len(endpoint.asked) == 1  # no redirect is followed


@pytest.mark.parametrize(
    "answer",
    [
        b'{"access_token": "t", "expires_in": 1' + b"0" * 400 + b"}",
        b'{"access_token": "t", "expires_in": 1e400}',
        b'{"access_token": "t", "expires_in": NaN}',
        b'{"access_token": "t", "expires_in": "' + b"x" * 500_000 + b'"}',
        b'{"access_token": "t", "expires_in": "\\u001b[2J"}',
        b"[" * 100_000,
        b'{"access_token": "t", "expires_in": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"access_token": "t", "expires_in": 100}' + b" " * 2_000_000,
    ],
    ids=["integer", "infinite", "nan", "long", "terminal", "nested", "balanced", "large"],
)
def test_an_answer_that_means_harm_is_no_token(endpoint: Endpoint, answer: bytes) -> None:
    endpoint.answer = 200, answer
    with pytest.raises(Unreachable, match=f"cluster 'east': token endpoint {endpoint.url}: its answer ") as refused:
        source(oidc(endpoint.url)).token()
    assert len(str(refused.value)) < 500
    assert str(refused.value).isprintable()


def test_a_token_for_ever_is_shown(endpoint: Endpoint) -> None:
    endpoint.life = {"expires_in": 10**300}
    tokens = source(oidc(endpoint.url))
    assert [tokens.token(), tokens.token()] == ["t1", "t1"]


@pytest.mark.parametrize(
    ("given", "error", "why"),
    [
        (oidc("http://idp.example/token"), ConfigError, "use https"),
        (oidc("file:///etc/passwd"), ConfigError, "begins with https"),
        (oidc("https://idp.example/token", **{"client.secret": ""}), ConfigError, "client.secret: it is missing"),
        (oidc("https://idp.example/token", extensions="x=\x01"), ConfigError, "extensions"),
        (oidc("https://idp.example/token", **{"grant.type": "jwt-bearer"}), Unsupported, "jwt-bearer"),
        (oidc("https://idp.example/token", **{"assertion.algorithm": "RS256"}), Unsupported, "assertion.algorithm"),
        ({"sasl.oauthbearer.config": "principal=me"}, Unsupported, "unless sasl.oauthbearer.method is oidc"),
        ({"enable.sasl.oauthbearer.unsecure.jwt": "true"}, ConfigError, "principal=NAME"),
    ],
)
def test_what_cannot_be_used_is_named(given: dict[str, str], error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        source(given)


def test_what_the_broker_says_of_a_token_is_told() -> None:
    told = sasl.show_token(b"first")
    assert next(told) == b"first"
    assert told.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(sasl.BadLogin, match="invalid_token"):
        told.send(b"")
    taken = sasl.show_token(b"first")
    next(taken)
    with pytest.raises(StopIteration):
        taken.send(b"")
