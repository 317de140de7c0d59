"""What a conflict concerns is left alone and named, and all else goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.main import invoke
from integration_tests.harness.schema_registry import Registry
from tests.replicator.schema_sync.test_sync import file, go_over, here, syncing, there

pytestmark = pytest.mark.tier("default")
__all__ = ["here", "there"]


def test_ids_that_clash_are_all_named_and_only_what_they_concern_is_left_alone(
    here: Registry, there: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here.register("clash", '"int"')
    here.register("clash", '"long"')
    here.register("user", '"float"', references=[{"name": "n", "subject": "clash", "version": 2}])
    here.register("free", '"string"')
    here.register("far", '"null"', references=[{"name": "n", "subject": "user", "version": 1}])
    here.answer("PUT", "/config/free", {"compatibility": "FULL"})
    there.register("mine", '"bytes"')
    path = str(file(tmp_path, here.url, there.url))
    for words in ((), ("--json",), ("--apply",), ("--apply", "--json")):
        assert invoke(["schemas", "-c", path, *words]) == 4
        assert set(there.content()) == {("mine", 1)} | ({("free", 1)} if "--apply" in words else set())
        assert {it.split("/")[2] for it in there.written()} <= {"free"}
        assert there.state.modes == {}
        said = capsys.readouterr().out
        if "--json" not in words:
            assert "1 schema can't go over" in said
            continue
        found = json.loads(said)["flows"][0]
        assert [(it["subject"], it["version"], it["id"]) for it in found["conflicts"]] == [("clash", 1, 1)]
        assert "mine version 1" in found["conflicts"][0]["reason"]
        assert [(it["subject"], it["reason"]) for it in found["held"]] == [
            ("user", "refers to clash version 2, which doesn't go over"),
            ("far", "refers to user version 1, which doesn't go over"),
        ]
        assert found["applied"] is ("--apply" in words)
    assert there.content()["free", 1] == here.content()["free", 1]
    assert there.state.configs == {"free": "FULL"}


def test_a_level_that_was_deleted_at_the_source_stays_and_is_named(
    here: Registry, there: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here.register("s", '"int"')
    here.answer("PUT", "/config/s", {"compatibility": "FULL"})
    go_over(here, there)
    here.answer("DELETE", "/config/s", None)
    path = str(file(tmp_path, here.url, there.url))
    assert invoke(["schemas", "-c", path, "--apply"]) == 0
    assert "only at the target: compatibility level FULL of s" in capsys.readouterr().out
    assert invoke(["schemas", "-c", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["flows"][0]["levels_only_at_target"] == {"s": "FULL"}
    assert there.state.configs == {"s": "FULL"}


def test_what_refers_to_a_version_that_is_there_goes_over_though_another_one_clashes(
    here: Registry, there: Registry
) -> None:
    here.register("base", '"int"')
    go_over(here, there)
    here.register("base", '"long"')
    here.register("user", '"float"', references=[{"name": "n", "subject": "base", "version": 1}])
    there.register("mine", '"bytes"')
    with syncing(here, there) as sync:
        plan = sync.apply(sync.compare(levels=True))
    assert [it.version for it in plan.conflicts] == [("base", 2)]
    assert (plan.held, ("user", 1) in there.content()) == ((), True)


def test_what_a_registry_refuses_holds_up_its_subject_and_what_refers_to_it(here: Registry, there: Registry) -> None:
    for name, refers in (("bad", None), ("good", None), ("user", "bad")):
        references = [{"name": "n", "subject": refers, "version": 1}] if refers else []
        here.register(name, f'{{"type": "fixed", "name": "{name}", "size": 1}}', references=references)
    here.answer("PUT", "/config/good", {"compatibility": "NONE"})
    refusal = 422, b'{"error_code": 42201, "message": "Invalid schema"}', ""
    there.fault = lambda method, path: refusal if method == "POST" and path == "/subjects/bad/versions" else None
    with syncing(here, there) as sync:
        plan = sync.apply(sync.compare(levels=True))
    assert [(it.version.subject, "Invalid schema (42201)" in it.reason) for it in plan.conflicts] == [("bad", True)]
    assert [it.version.subject for it in plan.held] == ["user"]
    assert set(there.content()) == {("good", 1)}
    assert (there.state.configs, there.state.modes) == ({"good": "NONE"}, {})
