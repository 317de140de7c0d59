"""A schema registry for tests: the API of Confluent's over HTTP, and with a broker the records of its topic.

Neither Confluent's registry nor Karapace is in a package registry, so this is made of their protocol: keys and values
as `_schemas` has them, mode IMPORT with ids and versions that are given, which writes over a version without a word
(where none is given it is the subject's next one, or that which has the same), ids by context, soft deletions,
references that must be there. It doesn't compare schemas for compatibility.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from confluent_kafka import Consumer, Producer, TopicPartition

from integration_tests.harness import clients

Key = tuple[str, int]
Answer = tuple[int, Any]
COMPACTED = {"cleanup.policy": "compact"}
NOOP = {"keytype": "NOOP", "magic": 0}
PAGE_MAX = 1000


class Refused(Exception):
    """An error that the registry answers with."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def context_of(subject: str) -> str:
    return subject[1 : subject.index(":", 2)] if subject.startswith(":.") else "."


class RegistryState:
    """What the records of a registry's topic say, one after the other."""

    def __init__(self) -> None:
        self.schemas: dict[Key, dict[str, Any]] = {}
        self.configs: dict[str | None, str] = {}
        self.modes: dict[str | None, str] = {}
        self.highest_id = 0

    def take(self, key: Mapping[str, Any], value: Mapping[str, Any] | None) -> None:
        kind, subject = key["keytype"], key.get("subject")
        if kind == "SCHEMA":
            at = key["subject"], key["version"]
            if value is None:
                self.schemas.pop(at, None)
            else:
                self.schemas[at] = dict(value)
                self.highest_id = max(self.highest_id, value["id"])
        elif kind in ("CONFIG", "MODE"):
            table, field = (self.configs, "compatibilityLevel") if kind == "CONFIG" else (self.modes, "mode")
            table.pop(subject, None)
            if value is not None:
                table[subject] = value[field]
        elif kind == "DELETE_SUBJECT" and value is not None:
            for (name, version), schema in self.schemas.items():
                if name == value["subject"] and version <= value["version"]:
                    schema["deleted"] = True
        elif kind == "CLEAR_SUBJECT" and value is not None:
            for at in [at for at, schema in self.schemas.items() if at[0] == subject and schema["deleted"]]:
                del self.schemas[at]

    def by_id(self, context: str, schema_id: int) -> dict[str, Any] | None:
        found = (it for at, it in sorted(self.schemas.items()) if context_of(at[0]) == context)
        return next((it for it in found if it["id"] == schema_id), None)


class Registry:
    """One registry, with an HTTP server. `requests`: what it was asked; `fault`: answers in its place, if it wants."""

    def __init__(
        self, bootstrap: str = "", topic: str = "_schemas", login: str = "", tls: ssl.SSLContext | None = None
    ) -> None:
        self.state, self.requests = RegistryState(), list[str]()
        self.fault: Callable[[str, str], tuple[int, bytes, str] | None] = lambda method, path: None
        self._lock, self._login = threading.Lock(), login
        self._log = _TopicLog(bootstrap, topic) if bootstrap else None
        if self._log is not None:
            for key, value in self._log.records():
                self.state.take(key, value)
        handler = type("Handler", (_Handler,), {"registry": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def written(self) -> list[str]:
        """The requests that may change something."""
        return [it for it in self.requests if not it.startswith("GET ")]

    def content(self) -> dict[Key, tuple[int, str, bool]]:
        """Id, schema and whether it is deleted, of each version."""
        return {at: (it["id"], it["schema"], it["deleted"]) for at, it in self.state.schemas.items()}

    def register(self, subject: str, text: str, **more: Any) -> int:
        """As a producer does."""
        return int(self.answer("POST", f"/subjects/{subject}/versions", {"schema": text, **more})[1]["id"])

    def allowed(self, header: str) -> bool:
        return not self._login or header == "Basic " + base64.b64encode(self._login.encode()).decode()

    def answer(self, method: str, target: str, body: Any) -> Answer:
        split = urlsplit(target)
        words = [unquote(word) for word in split.path.strip("/").split("/")]
        query = {key: values[-1] for key, values in parse_qs(split.query).items()}
        with self._lock:
            try:
                return 200, self._answered(method, words, query, body)
            except Refused as error:
                return error.code // 100, {"error_code": error.code, "message": str(error)}

    def _answered(self, method: str, words: list[str], query: dict[str, str], body: Any) -> Any:
        deleted = query.get("deleted") == "true"
        match method, words:
            case "GET", ["subjects"]:
                return sorted({at[0] for at, it in self.state.schemas.items() if deleted or not it["deleted"]})
            case "GET", ["subjects", subject, "versions"]:
                return self._versions(subject, deleted)
            case "GET", ["subjects", subject, "versions", number]:
                return self._shown(self._one(subject, int(number), deleted))
            case "POST", ["subjects", subject, "versions"]:
                return {"id": self._register(subject, body)}
            case "DELETE", ["subjects", subject, "versions", number]:
                return self._delete(subject, int(number), for_good=query.get("permanent") == "true")
            case "GET", ["schemas"]:
                every = [it for _, it in sorted(self.state.schemas.items()) if deleted or not it["deleted"]]
                offset, limit = int(query.get("offset", 0)), int(query.get("limit", PAGE_MAX))
                return [self._shown(it) for it in every[offset : offset + min(limit, PAGE_MAX)]]
            case "GET", ["schemas", "ids", number]:
                return self._by_id(int(number), query)
            case _, ["config" | "mode" as what, *subject]:
                return self._setting(method, what, subject[0] if subject else None, query, body)
        raise Refused(40400, "HTTP 404 Not Found")

    def _versions(self, subject: str, deleted: bool) -> list[int]:
        every = [at[1] for at, it in sorted(self.state.schemas.items()) if at[0] == subject]
        found = [it for it in every if deleted or not self.state.schemas[subject, it]["deleted"]]
        if not found:
            raise Refused(40401, f"Subject '{subject}' not found.")
        return found

    def _one(self, subject: str, number: int, deleted: bool) -> dict[str, Any]:
        found = self.state.schemas.get((subject, number))
        if found is None or (found["deleted"] and not deleted):
            raise Refused(40402, f"Version {number} not found.")
        return found

    @staticmethod
    def _shown(schema: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in schema.items() if key != "deleted" or value}

    def _by_id(self, number: int, query: Mapping[str, str]) -> dict[str, Any]:
        found = self.state.by_id(".", number)
        if found is None:
            raise Refused(40403, f"Schema {number} not found")
        more = {"maxId": self.state.highest_id} if query.get("fetchMaxId") == "true" else {}
        return {"schema": found["schema"], **more}

    def _mode(self, subject: str) -> str:
        return self.state.modes.get(subject) or self.state.modes.get(None, "READWRITE")

    def _register(self, subject: str, body: Mapping[str, Any]) -> int:
        mode, given = self._mode(subject), body.get("id", -1)
        if mode == "READONLY":
            raise Refused(42205, f"Subject {subject} is in read-only mode")
        if (given >= 0) != (mode == "IMPORT"):
            wanted = "import" if given >= 0 else "read-write"
            raise Refused(42205, f"Subject {subject} is not in {wanted} mode")
        kind = body.get("schemaType", "AVRO")
        text = body["schema"] if kind == "PROTOBUF" else json.dumps(json.loads(body["schema"]), separators=(",", ":"))
        references = body.get("references", [])
        for it in references:
            prefix = "" if it["subject"].startswith(":.") or context_of(subject) == "." else f":{context_of(subject)}:"
            self._one(prefix + it["subject"], it["version"], deleted=False)
        content = {"schema": text, "schemaType": kind, "references": references}
        content |= {key: body[key] for key in ("metadata", "ruleSet") if key in body}
        every = [at[1] for at in self.state.schemas if at[0] == subject]
        own = (it for at, it in self.state.schemas.items() if at[0] == subject and not it["deleted"])
        if not body.get("version"):
            found = next((it for it in own if given in (-1, it["id"]) and _content(it) == content), None)
            if found is not None:
                return int(found["id"])
        if given < 0:
            near = (it for at, it in sorted(self.state.schemas.items()) if context_of(at[0]) == context_of(subject))
            given = next((it["id"] for it in near if _content(it) == content), self.state.highest_id + 1)
        known = self.state.by_id(context_of(subject), given)
        if known is not None and _content(known) != content:
            raise Refused(42205, f"Overwrite new schema with id {given} is not permitted.")
        number = body.get("version") or max(every, default=0) + 1
        value = {"subject": subject, "version": number, "id": given, **content, "deleted": False}
        self._put({"keytype": "SCHEMA", "subject": subject, "version": number, "magic": 1}, value)
        return int(given)

    def _delete(self, subject: str, number: int, *, for_good: bool) -> int:
        if self._mode(subject) == "READONLY":
            raise Refused(42205, f"Subject {subject} is in read-only mode")
        found = self._one(subject, number, deleted=True)
        key = {"keytype": "SCHEMA", "subject": subject, "version": number, "magic": 1}
        if for_good:
            if not found["deleted"]:
                raise Refused(40407, f"Subject '{subject}' Version {number} was not deleted first before.")
            self._put(key, None)
            return number
        if found["deleted"]:
            raise Refused(40406, f"Subject '{subject}' Version {number} was soft deleted.")
        for it in self.state.schemas.values():
            if not it["deleted"] and any((r["subject"], r["version"]) == (subject, number) for r in it["references"]):
                raise Refused(42206, f"One or more references exist to the schema {subject} {number}.")
        self._put(key, {**found, "deleted": True})
        if all(it["deleted"] for at, it in self.state.schemas.items() if at[0] == subject):
            for kind, table in (("MODE", self.state.modes), ("CONFIG", self.state.configs)):
                if subject in table:
                    self._put({"keytype": kind, "subject": subject, "magic": 0}, None)
        return number

    def _setting(self, method: str, what: str, subject: str | None, query: Mapping[str, str], body: Any) -> Any:
        key = {"keytype": what.upper(), "subject": subject, "magic": 0}
        table = self.state.configs if what == "config" else self.state.modes
        field = "compatibilityLevel" if what == "config" else "mode"
        if method == "PUT" and what == "config":
            if subject and self._mode(subject) == "READONLY":
                raise Refused(42205, f"Subject {subject} is in read-only mode")
            self._put(key, {field: body["compatibility"]})
            return body
        if method == "PUT":
            there = [at for at, it in self.state.schemas.items() if subject in (None, at[0]) and not it["deleted"]]
            if body["mode"] == "IMPORT" and query.get("force") != "true":
                if there:
                    raise Refused(42205, "Cannot import since found existing subjects")
                clear = {"keytype": "CLEAR_SUBJECT", "subject": subject, "magic": 0}
                self._put(clear, {"subject": subject})
            self._put(key, {"mode": body["mode"]})
            return body
        if subject is not None and subject not in table:
            raise Refused(40408 if what == "config" else 40409, f"Subject '{subject}' has no {what} of its own")
        found = {field: table.get(subject, "BACKWARD" if what == "config" else "READWRITE")}
        if method == "DELETE":
            self._put(key, None)
        return found

    def _put(self, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        if self._log is not None:
            self._log.write(key, value)
        self.state.take(key, value)


def _content(value: Mapping[str, Any]) -> dict[str, Any]:
    return {key: it for key, it in value.items() if key not in ("subject", "version", "id", "deleted")}


class _TopicLog:
    """The registry's topic. As Confluent's does it writes a NOOP when it begins, to learn how far it must read."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap, self._topic = bootstrap, topic
        if topic not in clients.topics(bootstrap):
            clients.create_topic(bootstrap, topic, 1, COMPACTED)
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
        self._end = self.write(NOOP, None)

    def write(self, key: dict[str, Any], value: dict[str, Any] | None) -> int:
        """Write a record; its offset."""
        offsets: list[int] = []

        def acknowledged(error: Any, message: Any) -> None:
            assert error is None, error
            offsets.append(message.offset())

        body = None if value is None else json.dumps(value, separators=(",", ":")).encode()
        key_body = json.dumps(key, separators=(",", ":")).encode()
        self._producer.produce(self._topic, body, key_body, partition=0, on_delivery=acknowledged)
        assert self._producer.flush(30) == 0
        return offsets[0]

    def records(self) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
        """All records up to the NOOP."""
        settings = {"bootstrap.servers": self._bootstrap, "group.id": "registry", "enable.auto.commit": False}
        with closing(Consumer(settings)) as reader:
            reader.assign([TopicPartition(self._topic, 0, 0)])
            while True:
                message = reader.poll(30)
                assert message is not None, "the registry's topic can't be read"
                assert message.error() is None
                body = message.value()
                yield json.loads(message.key() or b""), None if body is None else json.loads(body)
                if (message.offset() or 0) >= self._end:
                    return


class _Handler(BaseHTTPRequestHandler):
    registry: Registry
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def _any(self) -> None:
        registry, size = self.registry, int(self.headers.get("Content-Length") or 0)
        sent = self.rfile.read(size) if size else b""
        registry.requests.append(f"{self.command} {self.path}")
        if (fault := registry.fault(self.command, self.path)) is not None:
            self._send(*fault)
        elif not registry.allowed(self.headers.get("Authorization", "")):
            self._send(401, json.dumps({"error_code": 401, "message": "Unauthorized"}).encode(), "application/json")
        else:
            status, body = registry.answer(self.command, self.path, json.loads(sent) if sent else None)
            self._send(status, json.dumps(body).encode(), "application/vnd.schemaregistry.v1+json")

    do_GET = do_POST = do_PUT = do_DELETE = _any

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@contextmanager
def registry(
    bootstrap: str = "", topic: str = "_schemas", login: str = "", tls: ssl.SSLContext | None = None
) -> Iterator[Registry]:
    """A registry for the length of a block. With `bootstrap` it keeps its schemas in this cluster's topic."""
    with closing(Registry(bootstrap, topic, login, tls)) as made:
        yield made
