"""Metrics, health and the status page over HTTP, as a WSGI application. Read only.

    GET /          the status page, for people
    GET /flows     the same as JSON, for `eos-replicate top`
    GET /metrics   Prometheus' text format
    GET /healthz   200 while the process works
    GET /readyz    200 if every flow runs, its clusters answer and each of its partitions is copied, else 503, with
                   what is not
    GET /readyz/lanes  200 if every flow runs, and each lane that this process has been given; else 503

Whoever knows the token may ask, as `Authorization: Bearer TOKEN` or as the password of any user (HTTP Basic, for
browsers). /healthz and /readyz/lanes need none: they say no more than yes or no.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import CONTENT_TYPE_LATEST

from replicator.flow.restarts import Stage
from replicator.observe.metrics import Metrics
from replicator.observe.view import Doing, FlowView

JSON = "application/json"
HTML = "text/html; charset=utf-8"
PAGE_POLICY = (
    "Content-Security-Policy",
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
)
CHALLENGE = ("WWW-Authenticate", 'Basic realm="eos-replicate"')
OPEN = frozenset({"/healthz", "/readyz/lanes"})
LISTED_MAX = 100
"""Partitions that `/readyz` names of one flow."""


class Answer(NamedTuple):
    """What is sent back."""

    status: str
    content_type: str
    body: bytes


class Web:
    """The application."""

    def __init__(
        self,
        flows: Callable[[], Sequence[FlowView]],
        metrics: Metrics,
        page: Callable[[], bytes],
        shown: Callable[[], Any],
        token: str = "",
        config_fault: Callable[[], str] = lambda: "",
    ) -> None:
        """
        Args:
            flows: as they are now.
            page: makes the status page.
            shown: the same, as what JSON can hold.
            token: empty where everybody may ask.
            config_fault: as of `Endpoint`.
        """
        self._flows, self._metrics, self._token, self._config_fault = flows, metrics, token, config_fault
        self._pages: dict[str, Callable[[], Answer]] = {
            "/": lambda: Answer("200 OK", HTML, page()),
            "/flows": lambda: Answer("200 OK", JSON, _json(shown())),
            "/metrics": self._of_metrics,
            "/healthz": lambda: Answer("200 OK", JSON, b'{"status": "ok"}\n'),
            "/readyz": self._readiness,
            "/readyz/lanes": self._lanes_readiness,
        }

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """See PEP 3333."""
        answer, headers = self._answer(environ)
        headers += [
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(answer.body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
        ]
        if answer.content_type == HTML:
            headers.append(PAGE_POLICY)
        start_response(answer.status, headers)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [answer.body]

    def _answer(self, environ: WSGIEnvironment) -> tuple[Answer, list[tuple[str, str]]]:
        path = environ.get("PATH_INFO", "")
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return _error("405 Method Not Allowed", "nothing can be changed here"), [("Allow", "GET, HEAD")]
        if path not in OPEN and not self._may(environ.get("HTTP_AUTHORIZATION", "")):
            return _error("401 Unauthorized", "a token is needed"), [CHALLENGE]
        if path not in self._pages:
            return _error("404 Not Found", f"there are {', '.join(self._pages)}"), []
        return self._pages[path](), []

    def _may(self, authorization: str) -> bool:
        """Return whether the request carries the token."""
        if not self._token:
            return True
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() == "basic":
            try:
                given = base64.b64decode(given, validate=True).decode().partition(":")[2]
            except (binascii.Error, UnicodeDecodeError):
                return False
        elif scheme.lower() != "bearer":
            return False
        return hmac.compare_digest(given.encode(), self._token.encode())

    def _of_metrics(self) -> Answer:
        return Answer("200 OK", CONTENT_TYPE_LATEST, self._metrics.text())

    def _readiness(self) -> Answer:
        flows = self._flows()
        ready = all(flow.ready for flow in flows)
        body: dict[str, Any] = {"ready": ready, "flows": {flow.name: _readiness_of(flow) for flow in flows}}
        if fault := self._config_fault():  # what is copied is copied as before: it is as ready as it was
            body["config_fault"] = fault
        return Answer("200 OK" if ready else "503 Service Unavailable", JSON, _json(body))

    def _lanes_readiness(self) -> Answer:
        ready = all(flow.lanes_run for flow in self._flows())
        return Answer("200 OK" if ready else "503 Service Unavailable", JSON, _json({"ready": ready}))


def _readiness_of(flow: FlowView) -> dict[str, Any]:
    """Say what keeps a flow from being ready."""
    found: dict[str, Any] = {"ready": flow.ready, "stage": flow.stage.name.lower()}
    if flow.cause:
        found["cause"] = flow.cause
    if flow.conditions.unreachable_ms:
        found["unreachable"] = sorted(flow.conditions.unreachable_ms)
    if flow.conditions.failed_over:
        found["failed_over"] = flow.conditions.failed_over
    if flow.conditions.being_failed_over:
        found["being_failed_over"] = flow.conditions.being_failed_over
    if flow.conditions.other_settings:
        found["other_settings"] = flow.conditions.other_settings
    if flow.stage is Stage.RUNNING:
        kept = [each for each in flow.partitions if each.doing is not Doing.COPYING]
        found["partitions"] = len(flow.partitions)
        found["not_copied"] = len(kept)
        found["causes"] = {str(each.at): each.kind or each.doing.name.lower() for each in kept[:LISTED_MAX]}
    return found


def _error(status: str, why: str) -> Answer:
    return Answer(status, JSON, _json({"error": why}))


def _json(body: object) -> bytes:
    return json.dumps(body, indent=1).encode() + b"\n"
