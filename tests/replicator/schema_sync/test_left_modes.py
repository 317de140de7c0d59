"""Subjects that a killed process has left in mode IMPORT, and several that sync the same registries at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import structlog
import structlog.testing

from cli.main import invoke
from integration_tests.harness.schema_registry import Registry, registry
from replicator.schema_sync.sync import SchemaSync, sync_of
from replicator.schema_sync.watch import SchemaWatch
from tests.replicator.schema_sync.test_sync import Clock, file, flow_of, go_over, here, settings, syncing, there

pytestmark = pytest.mark.tier("default")
__all__ = ["here", "there"]


def watch_once(here: Registry, there: Registry, directory: Path) -> None:
    """The first look of a `run` that starts."""
    flow = flow_of(file(directory, here.url, there.url))
    with syncing(here, there) as sync:
        SchemaWatch(flow, sync, threading.Event(), structlog.get_logger(), Clock()).look()


def test_a_new_subject_that_was_left_before_its_first_version(here: Registry, there: Registry, tmp_path: Path) -> None:
    here.register("new", '"int"')
    there.answer("PUT", "/mode/new", {"mode": "IMPORT"})
    assert invoke(["schemas", "-c", str(file(tmp_path, here.url, there.url)), "--apply"]) == 0
    assert there.content() == here.content()
    assert there.state.modes == {}


def test_apply_alone_takes_the_mode_of_what_it_writes_to(here: Registry, there: Registry) -> None:
    here.register("new", '"int"')
    there.answer("PUT", "/mode/new", {"mode": "IMPORT"})
    go_over(here, there)
    assert there.state.modes == {}


def test_a_subject_that_comes_over_only_as_a_reference(here: Registry, there: Registry, tmp_path: Path) -> None:
    here.register("common", '"int"')
    here.register("orders", '"long"', references=[{"name": "n", "subject": "common", "version": 1}])
    go_over(here, there, include=["^orders.*"])
    there.answer("PUT", "/mode/common?force=true", {"mode": "IMPORT"})
    path = file(tmp_path, here.url, there.url, include=["^orders.*"])
    assert invoke(["schemas", "-c", str(path), "--apply"]) == 0
    assert there.state.modes == {}


def test_run_takes_it_away_when_it_starts_also_where_schemas_clash(
    here: Registry, there: Registry, tmp_path: Path
) -> None:
    here.register("left", '"int"')
    there.register("mine", '"bytes"')
    there.answer("PUT", "/mode/left", {"mode": "IMPORT"})
    with structlog.testing.capture_logs() as lines:
        watch_once(here, there, tmp_path)
    assert there.state.modes == {}
    assert [(it["subjects"], it["detail"]) for it in lines if it["event"] == "schema_modes_reset"] == [(1, "left")]
    assert invoke(["schemas", "-c", str(file(tmp_path, here.url, there.url)), "--apply"]) == 4


def test_an_id_that_the_source_has_no_more_is_one_full_comparison(
    here: Registry, there: Registry, tmp_path: Path
) -> None:
    for text in ('"int"', '"long"'):
        here.register("s", text)
    flow, clock = flow_of(file(tmp_path, here.url, there.url)), Clock()
    with syncing(here, there) as sync:
        watch = SchemaWatch(flow, sync, threading.Event(), structlog.get_logger(), clock)
        watch.look()
        for words in ("", "?permanent=true"):
            here.answer("DELETE", f"/subjects/s/versions/2{words}", None)
        watch.look()
        clock.at_s += 6
        watch.look()
        here.requests.clear()
        clock.at_s += 6
        watch.look()
    assert here.requests == ["GET /schemas/ids/1?fetchMaxId=true"], "the highest id of now is asked for again"


def test_the_same_that_another_one_has_registered_meanwhile_is_as_good(here: Registry, there: Registry) -> None:
    for text in ('"int"', '"long"'):
        here.register("s", text)
    with syncing(here, there) as sync:
        compared = sync.compare(levels=True)
        go_over(here, there)
        sync.apply(compared)
    assert there.content() == here.content()
    assert there.state.modes == {}


def test_another_one_that_takes_the_mode_away_between_two_writes(here: Registry, there: Registry) -> None:
    for text in ('"int"', '"long"', '"float"'):
        here.register("s", text)

    def left(schema: Any) -> None:
        there.answer("DELETE", "/mode/s", None)

    with syncing(here, there) as sync:
        sync.apply(sync.compare(levels=True), left)
    assert there.content() == here.content()
    assert there.state.modes == {}


def test_a_version_of_somebody_else_in_that_moment_isnt_written_over(here: Registry, there: Registry) -> None:
    for text in ('"int"', '"long"'):
        here.register("s", text)

    def meanwhile(schema: Any) -> None:
        there.answer("DELETE", "/mode/s", None)
        there.state.highest_id = 10
        there.register("s", '"double"')

    with syncing(here, there) as sync:
        (found,) = sync.apply(sync.compare(levels=True), meanwhile).conflicts
    assert "s version 2 was registered at the target meanwhile" in found.reason
    assert there.content()["s", 2][:2] == (11, '"double"')
    assert there.state.modes == {}


def test_a_mode_that_another_one_takes_away_and_a_third_one_sets_is_left_to_that_one(
    here: Registry, there: Registry
) -> None:
    here.register("s", '"int"')
    taken = list[object]()

    def fault(method: str, path: str) -> None:
        if method == "DELETE" and not taken:
            taken.append(there.answer("DELETE", "/mode/s", None))
        elif method == "GET" and path == "/mode/s" and taken:
            there.answer("PUT", "/mode/s?force=true", {"mode": "IMPORT"})

    there.fault = fault
    go_over(here, there)
    assert taken
    assert there.state.modes == {}, "in place of the third one's mode there was one that nobody takes away"


def test_a_registry_that_takes_no_mode_away_gets_the_usual_one(here: Registry, there: Registry) -> None:
    here.register("s", '"int"')
    for answer in ((405, b"", ""), (404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}', "")):
        there.fault = lambda method, path, answer=answer: answer if method == "DELETE" else None  # type: ignore[misc]
        go_over(here, there)
        assert there.state.modes == {"s": "READWRITE"}
        here.register("s", '"long"')


def test_several_at_once_all_end_well(here: Registry) -> None:
    for number in range(30):
        here.register(f"s{number % 5}", f'{{"type": "fixed", "name": "n{number}", "size": 1}}')

    def apply(sync: SchemaSync, start: threading.Barrier) -> None:
        with closing(sync):
            compared = sync.compare(levels=True)
            start.wait(20)
            sync.release(compared)
            sync.apply(compared)

    for _ in range(3):
        with registry() as there_:
            start = threading.Barrier(3)
            syncs = [sync_of(settings(here, there_), 10, lambda s: None) for _ in range(3)]
            with ThreadPoolExecutor(3) as pool:
                for done in [pool.submit(apply, sync, start) for sync in syncs]:
                    done.result(60)
            assert there_.content() == here.content()
            assert there_.state.modes == {}
