"""Asks a schema registry over HTTP: one connection that is kept, bounded waits and answers, errors by what to do about
them. Redirects aren't followed, so that a password goes nowhere else.

All that is asked may be asked again: a schema is registered under its own id and version, and a mode, a level or a
deletion is the same twice.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from replicator.backoff import Backoff
from replicator.config.registry_settings import RegistryAccess
from replicator.model.errors import (
    ConfigError,
    NotAllowed,
    ReplicatorError,
    Retriable,
    SchemaRefused,
    Unreachable,
    Unsupported,
)
from replicator.model.printable import printable

ANSWER_BYTES_MAX = 64 * 1024 * 1024
ANSWER_S_MAX = 60.0
"""For all of an answer; its parts have the flow's own limit."""
PART_BYTES = 256 * 1024
SAID_MAX = 300
TRIES = 3
AGAIN_FIRST_S, AGAIN_MAX_S = 0.1, 1.0
MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
MISSING = frozenset({404, 405})
BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})


class RegistryConnection:
    """To one registry. Of one thread."""

    def __init__(
        self, access: RegistryAccess, side: str, timeout_s: float, pause: Callable[[float], object] = time.sleep
    ) -> None:
        """`side`: source or target, for messages; `pause` waits before it is asked again. Raises ConfigError for
        certificates that can't be used."""
        split = urlsplit(access.url)
        self.name = f"the schema registry of the {side} ({access.url})"
        self._path, self._timeout_s, self._pause = split.path.rstrip("/"), timeout_s, pause
        self._host, self._port = split.hostname or "", split.port
        self._context = _tls(access, self.name) if split.scheme == "https" else None
        self._headers = {"Accept": f"{MEDIA_TYPE}, application/json", **_login(access)}
        self._open: http.client.HTTPConnection | None = None

    def ask(
        self,
        method: str,
        *words: str | int,
        query: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
        may_lack: bool = False,
    ) -> Any:
        """Ask, and return the JSON that is answered. `words`: the path, word by word; `query`: behind it. With
        `may_lack` None where the registry has no such thing.

        Raises Unreachable, Retriable (busy, after several tries), NotAllowed, Unsupported (it answers as no schema
        registry does), SchemaRefused.
        """
        path = self._path + "".join(f"/{quote(str(word), safe='')}" for word in words)
        if query:
            path += f"?{urlencode(query)}"
        backoff = Backoff(AGAIN_FIRST_S, AGAIN_MAX_S)
        while True:
            try:
                status, content, kind = self._exchange(method, path, body)
                return self._read(status, content, kind, f"{method} {path}", may_lack=may_lack)
            except (Unreachable, Retriable):
                if backoff.failures == TRIES - 1:
                    raise
                self._pause(backoff.next_s())

    def close(self) -> None:
        """Close the connection; the next question opens another one."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _exchange(self, method: str, path: str, body: Mapping[str, Any] | None) -> tuple[int, bytes, str]:
        sent = None if body is None else json.dumps(body).encode()
        headers = self._headers if sent is None else {**self._headers, "Content-Type": MEDIA_TYPE}
        try:
            if self._open is None:
                self._open = self._connection()
            self._open.request(method, path, sent, headers)
            answer = self._open.getresponse()
            content = _content(answer)
            if not answer.isclosed():  # there is more of it
                self.close()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Unreachable(f"{self.name} doesn't answer: {_why(error)}") from error
        if len(content) > ANSWER_BYTES_MAX:
            raise Unsupported(f"{self.name} answers {method} {path} with more than {ANSWER_BYTES_MAX:,} bytes")
        return answer.status, content, answer.getheader("Content-Type", "")

    def _connection(self) -> http.client.HTTPConnection:
        if self._context is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout_s, context=self._context)

    def _read(self, status: int, content: bytes, kind: str, asked: str, *, may_lack: bool) -> Any:
        try:
            found = json.loads(content) if content else None
        except (ValueError, RecursionError):
            found = None
        if 200 <= status < 300:
            if found is None:
                raise self._no_registry(asked, kind)
            return found
        said = self._said(status, found)
        if status in (401, 403):
            raise NotAllowed(f"{self.name} refuses {asked}: {said}")
        if status in BUSY:
            raise Retriable(f"{self.name} can't answer {asked}: {said}")
        if may_lack and status in MISSING:
            return None
        if not isinstance(found, dict) or "error_code" not in found:
            raise self._no_registry(asked, kind, status)
        raise SchemaRefused(f"{self.name} refuses {asked}: {said}", status, _code(found))

    def _no_registry(self, asked: str, kind: str, status: int = 200) -> ReplicatorError:
        what = printable(kind)[:SAID_MAX] or "nothing"
        return Unsupported(f"{self.name} answers {asked} with {status} and {what}: is it a schema registry?")

    @staticmethod
    def _said(status: int, found: Any) -> str:
        if isinstance(found, dict) and found.get("message"):
            return f"{printable(str(found['message']))[:SAID_MAX]} ({found.get('error_code', status)})"
        return f"{status} {http.client.responses.get(status, '')}".strip()


def _content(answer: http.client.HTTPResponse) -> bytes:
    """Read what is answered, or a little more than is taken. Raises TimeoutError where it comes too slowly."""
    give_up_s = time.monotonic() + ANSWER_S_MAX
    parts, size = list[bytes](), 0
    while size <= ANSWER_BYTES_MAX and (part := answer.read1(PART_BYTES)):
        parts.append(part)
        size += len(part)
        if time.monotonic() > give_up_s:
            raise TimeoutError
    return b"".join(parts)


def _code(found: Mapping[str, Any]) -> int:
    code = found["error_code"]
    return code if isinstance(code, int) else 0


def _login(access: RegistryAccess) -> dict[str, str]:
    if access.token:
        return {"Authorization": f"Bearer {access.token}"}
    if access.username:
        pair = f"{access.username}:{access.password}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    return {}


def _tls(access: RegistryAccess, name: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=access.ca_file or None)
        if access.certificate_file:
            context.load_cert_chain(access.certificate_file, access.key_file or None, access.key_password)
    except (OSError, ValueError) as error:
        raise ConfigError(f"the certificates for {name} can't be used: {_why(error)}") from error
    return context


def _why(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}"
    said = getattr(error, "strerror", None) or str(error)
    return printable(str(said))[:SAID_MAX] or type(error).__name__
