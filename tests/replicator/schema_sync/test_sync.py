"""Schemas go from one registry to another by HTTP; registries that are away, busy, or none."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml

from cli.main import invoke
from integration_tests.harness.generated_schemas import generate
from integration_tests.harness.schema_registry import Registry, registry
from replicator.config import Flow, load_text
from replicator.config.registry_settings import RegistryAccess, SchemaRegistrySettings
from replicator.model.errors import NotAllowed, ReplicatorError, Retriable, Unreachable, Unsupported
from replicator.schema_sync.sync import SchemaSync, sync_of
from replicator.schema_sync.watch import SchemaWatch
from tests.embedded_broker.security.certificates import Authority

pytestmark = pytest.mark.tier("full")
HTML = (200, b"<html>login</html>", "text/html")


@pytest.fixture
def here() -> Iterator[Registry]:
    with registry() as made:
        yield made


@pytest.fixture
def there() -> Iterator[Registry]:
    with registry() as made:
        yield made


def settings(here: Registry, there: Registry, **more: Any) -> SchemaRegistrySettings:
    return SchemaRegistrySettings(source=RegistryAccess(url=here.url), target=RegistryAccess(url=there.url), **more)


@contextmanager
def syncing(here: Registry, there: Registry, **more: Any) -> Iterator[SchemaSync]:
    with closing(sync_of(settings(here, there, **more), 10, lambda s: None)) as made:
        yield made


def go_over(here: Registry, there: Registry, **more: Any) -> None:
    with syncing(here, there, **more) as sync:
        sync.apply(sync.compare(levels=True))


def file(directory: Path, here: str | dict[str, str], there: str, **more: Any) -> Path:
    """A flow file whose clusters nobody asks."""
    clusters = {name: {"properties": {"bootstrap.servers": "127.0.0.1:1"}} for name in ("a", "b")}
    flow = {
        "source": "a",
        "target": "b",
        "topics": ["t"],
        "schema_registry": {"source": here, "target": there, **more},
        "limits": {"request_timeout_ms": 5000, "connect_timeout_ms": 5000},
    }
    path = directory / "flow.yaml"
    path.write_text(yaml.safe_dump({"clusters": clusters, "flows": {"f": flow}}))
    return path


def flow_of(path: Path) -> Flow:
    return load_text(path.read_text(), directory=path.parent).flows["f"]


def test_all_goes_over_as_it_is_and_modes_are_as_before(here: Registry, there: Registry) -> None:
    generate(here, 25, seed=3)
    generate(here, 6, seed=4, prefix=":.ctx:")
    go_over(here, there)
    assert there.content() == here.content()
    assert there.state.configs == here.state.configs
    assert there.state.modes == {}
    assert here.written() == []
    written = len(there.written())
    go_over(here, there)
    assert len(there.written()) == written, "nothing is left to do"


def test_it_writes_to_a_registry_that_others_may_only_read(here: Registry, there: Registry) -> None:
    generate(here, 5)
    there.answer("PUT", "/mode", {"mode": "READONLY"})
    go_over(here, there)
    here.register("later", '"int"')
    here.register(sorted(here.content())[0][0], '"long"')
    go_over(here, there)
    assert there.content() == here.content()
    assert there.state.modes == {None: "READONLY"}


def test_what_is_soft_deleted_and_registered_again_follows(here: Registry, there: Registry) -> None:
    here.register("s", '"int"')
    here.register("s", '"long"')
    go_over(here, there)
    here.answer("DELETE", "/subjects/s/versions/1", None)
    go_over(here, there)
    assert there.content() == here.content()
    here.register("s", '"int"')  # as version 3, with its old id
    go_over(here, there)
    assert there.content() == here.content()


def test_the_command_compares_then_applies(
    here: Registry, there: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here.register("s", '"int"')
    path = str(file(tmp_path, here.url, there.url))
    assert invoke(["schemas", "-c", path]) == 1
    assert there.written() == []
    assert "register s version 1 with id 1" in capsys.readouterr().out
    assert invoke(["schemas", "-c", path, "--apply"]) == 0
    assert invoke(["schemas", "-c", path]) == 0
    assert there.content() == here.content()


def test_a_version_that_is_registered_meanwhile_isnt_written_over(here: Registry, there: Registry) -> None:
    here.register("s", '"int"')
    with syncing(here, there) as sync:
        compared = sync.compare(levels=True)
        there.register("s", '"long"')
        before = there.content()
        assert [it.version for it in sync.apply(compared).conflicts] == [("s", 1)]
        assert there.content() == before
        assert there.state.modes == {}


def test_a_version_of_a_known_subject_that_is_registered_meanwhile_isnt_written_over(
    here: Registry, there: Registry
) -> None:
    here.register("s", '"int"')
    go_over(here, there)
    here.register("s", '"long"')
    with syncing(here, there) as sync:
        compared = sync.compare(levels=True)
        there.state.highest_id = 10
        there.register("s", '"double"')
        before = there.content()
        (found,) = sync.apply(compared).conflicts
        assert "s version 2 was registered at the target meanwhile" in found.reason
        assert there.content() == before
        assert there.state.modes == {}


def test_it_ends_between_two_schemas_and_leaves_no_mode_behind(here: Registry, there: Registry) -> None:
    generate(here, 12, seed=6)
    with syncing(here, there) as sync:
        written: list[Any] = []
        sync.apply(sync.compare(levels=True), written.append, lambda: len(written) == 5)
    assert len(there.content()) == 5
    assert there.state.modes == {}


def test_a_mode_that_a_killed_process_has_left_is_taken_away(here: Registry, there: Registry) -> None:
    here.register("s", '"int"')
    go_over(here, there)
    there.answer("PUT", "/mode/s?force=true", {"mode": "IMPORT"})
    with syncing(here, there) as sync:
        assert sync.release(sync.compare(levels=True)) == ["s"]
    assert there.state.modes == {}


def test_a_registry_without_a_list_of_all_is_read_version_by_version(here: Registry, there: Registry) -> None:
    generate(here, 10, seed=5)
    here.fault = there.fault = lambda method, path: (404, b"", "") if path.startswith("/schemas?") else None
    go_over(here, there)
    assert there.content() == here.content()


def test_a_registry_that_leaves_out_what_is_deleted_is_asked_for_it(here: Registry, there: Registry) -> None:
    for text in ('"int"', '"long"', '"float"'):
        here.register("s", text)
    here.answer("DELETE", "/subjects/s/versions/2", None)

    def without(method: str, path: str) -> tuple[int, bytes, str] | None:
        if not path.startswith("/schemas?"):
            return None
        _, found = here.answer("GET", path.replace("deleted=true", "deleted=false"), None)
        return 200, json.dumps(found).encode(), "application/json"

    here.fault = without
    go_over(here, there)
    assert there.content() == here.content()


def failing(times: int, answer: tuple[int, bytes, str]) -> Any:
    left = [times]

    def fault(method: str, path: str) -> tuple[int, bytes, str] | None:
        left[0] -= 1
        return answer if left[0] >= 0 else None

    return fault


def test_what_is_busy_is_asked_again_and_what_is_wrong_is_not(here: Registry, there: Registry) -> None:
    here.register("s", '"int"')
    there.fault = failing(2, (503, b"busy", "text/plain"))
    go_over(here, there)
    assert there.content() == here.content()
    cases: list[tuple[tuple[int, bytes, str], type[ReplicatorError], str]] = [
        ((503, b'{"error_code": 50003, "message": "no\\u001b leader"}', ""), Retriable, r"no\\u001b leader \(50003\)"),
        ((403, b"", ""), NotAllowed, "403"),
        (HTML, Unsupported, "text/html: is it a schema registry"),
        ((302, b"", "text/html"), Unsupported, "302"),
        ((200, b'{"a": 1}', "application/json"), Unsupported, "in place of a list"),
        ((200, b'[{"a": 1}]', "application/json"), Unsupported, "not a version of a schema"),
    ]
    for answer, kind, words in cases:
        here.fault = lambda method, path, answer=answer: answer  # type: ignore[misc]
        with syncing(here, there) as sync, pytest.raises(kind, match=words):
            sync.compare(levels=True)


def test_a_login_that_is_wrong_and_a_registry_that_is_away(
    there: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "geheim")
    with registry(login="ann:geheim") as here:
        here.register("s", '"int"')
        access = {"url": here.url, "username": "ann", "password": "${SECRET}"}
        path = file(tmp_path, access, there.url)
        assert invoke(["schemas", "-c", str(path), "--apply"]) == 0
        assert there.content() == here.content()
        monkeypatch.setenv("SECRET", "falsch")
        assert invoke(["schemas", "-c", str(path)]) == 3
        assert invoke(["validate", "-c", str(path), "--json"]) == 0
    said = capsys.readouterr()
    assert "Unauthorized (401)" in said.err
    assert "falsch" not in said.out + said.err
    assert invoke(["schemas", "-c", str(path)]) == 3
    assert "doesn't answer" in capsys.readouterr().err
    with closing(sync_of(flow_of(path).schema_registry, 1, lambda s: None)) as sync, pytest.raises(Unreachable):
        sync.compare(levels=True)


def test_tls_with_an_authority_and_a_certificate_of_ones_own(there: Registry, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own, client = authority.sign("registry"), authority.sign("client")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.certificate, own.key)
    context.load_verify_locations(authority.certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    with registry(tls=context) as here:
        here.register("s", '"int"')
        trusted = {"url": here.url, "ca_file": authority.certificate.name}
        access = {**trusted, "certificate_file": str(client.certificate), "key_file": f"file:{tmp_path / 'where'}"}
        (tmp_path / "where").write_text(f"{client.key}\n")
        path = file(tmp_path, access, there.url)
        assert invoke(["schemas", "-c", str(path), "--apply"]) == 0
        assert there.content() == here.content()
        for wrong in ({"url": here.url}, trusted):
            assert invoke(["schemas", "-c", str(file(tmp_path, wrong, there.url))]) == 3
        broken = {**trusted, "certificate_file": str(client.certificate), "key_file": str(own.key)}
        assert invoke(["schemas", "-c", str(file(tmp_path, broken, there.url))]) == 2


class Clock:
    """Stands still between two looks, but for the pauses."""

    def __init__(self) -> None:
        self.at_s = 100.0

    def now_s(self) -> float:
        return self.at_s

    def now_ms(self) -> int:
        return int(self.at_s * 1000)

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        self.at_s += timeout_s
        return event.is_set()


def test_the_thread_tells_of_a_registry_that_is_away_once_and_goes_on(
    here: Registry, there: Registry, tmp_path: Path
) -> None:
    flow = flow_of(file(tmp_path, here.url, there.url))
    clock, ended = Clock(), threading.Event()
    with structlog.testing.capture_logs() as lines, syncing(here, there) as sync:
        seen: list[Any] = []
        watch = SchemaWatch(flow, sync, ended, structlog.get_logger(), clock, seen.append)

        def look() -> None:
            clock.at_s += watch.look()

        here.register("s", '"int"')
        look()
        there.fault = lambda method, path: (500, b"", "")
        here.register("t", '"long"')
        for _ in range(4):
            look()
        assert (seen[-1].schemas, seen[-1].synced_ms) == (1, seen[0].synced_ms)
        assert "500" in seen[-1].reason
        there.fault = lambda method, path: None
        look()
        assert (seen[-1].schemas, seen[-1].reason) == (2, "")
        assert seen[-1].synced_ms > seen[0].synced_ms
        assert there.content() == here.content()
        here.requests.clear()
        look()
        assert here.requests == ["GET /schemas/ids/2?fetchMaxId=true"], "it asks for the highest id only"
        there.state.highest_id = 10
        there.register("u", '"bytes"')
        here.register("u", '"double"')
        look()
        assert (seen[-1].subjects, seen[-1].in_sync, seen[-1].waiting, seen[-1].refused) == (3, 2, 0, 1)
        (conflict,) = seen[-1].conflicts
        assert (conflict.version, conflict.id) == (("u", 1), 3)
        since_ms = seen[-1].synced_ms
        here.register("free", '"string"')
        look()
        assert ("free", 1) in there.content(), "it goes over as soon as ever"
        assert (seen[-1].synced_ms, "u version 1" in seen[-1].reason) == (since_ms, True)
        for words in ("", "?permanent=true"):
            there.answer("DELETE", f"/subjects/u/versions/1{words}", None)
        clock.at_s += 30
        look()
        assert (seen[-1].in_sync, seen[-1].reason) == (4, "")
    told = [(line["event"], line["log_level"]) for line in lines]
    assert told == [
        ("schemas_registered", "info"),
        ("schemas_followed", "info"),
        ("schemas_not_synced", "warning"),
        ("schemas_registered", "info"),
        ("schemas_followed", "info"),
        ("schemas_synced_again", "info"),
        ("schemas_in_conflict", "error"),
        ("schemas_registered", "info"),
        ("schemas_registered", "info"),
        ("schemas_followed", "info"),
        ("schemas_synced_again", "info"),
    ]


@pytest.mark.parametrize(
    ("section", "fault"),
    [
        ({"source": "http://a:1"}, "needs the URL of the registry of target"),
        ({"source": "ftp://a:1", "target": "http://b"}, "begins with neither http"),
        ({"source": "http://u:p@a:1", "target": "http://b"}, "has a user in it"),
        ({"source": "http://a:99999", "target": "http://b"}, "Port out of range"),
        ({"source": "http:///x", "target": "http://b"}, "names no host"),
        ({"source": {"url": "http://a", "username": "u", "password": "${P}"}, "target": "http://b"}, "use https"),
        ({"source": {"url": "https://a", "username": "u", "password": "p"}, "target": "http://b"}, "use ${NAME}"),
        ({"source": {"url": "https://a", "ca_file": "no.pem"}, "target": "http://b"}, "there is no file"),
        ({"source": {"url": "https://a", "token": "${NOT_SET}"}, "target": "http://b"}, "'NOT_SET' is not set"),
        ({"include": ["a"]}, "needs the URL"),
        ({"mode": "topic", "topic": "__x"}, "not the name of a topic that can be copied"),
    ],
)
def test_faults_of_the_section(section: dict[str, Any], fault: str, tmp_path: Path) -> None:
    path = file(tmp_path, "", "")
    data = yaml.safe_load(path.read_text())
    data["flows"]["f"]["schema_registry"] = section
    with pytest.raises(ReplicatorError) as found:
        load_text(yaml.safe_dump(data), env={"P": "x"}, directory=tmp_path)
    assert fault in str(found.value)
    assert found.value.exit_code == 2
