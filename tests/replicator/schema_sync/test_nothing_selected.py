"""Flows whose schemas can't be what was meant: nothing is selected, both registries are one, the URL is another's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.main import invoke
from integration_tests.harness.schema_registry import Registry
from tests.replicator.schema_sync.test_sync import file, here, there

pytestmark = pytest.mark.tier("default")
__all__ = ["here", "there"]


@pytest.mark.parametrize("more", [{"include": ["^orders"]}, {"include": ["unknown"]}, {"exclude": ["^.*"]}])
def test_it_says_that_nothing_is_selected(
    here: Registry, there: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: dict[str, Any]
) -> None:
    here.register("orders-value", '"int"')
    path = str(file(tmp_path, here.url, there.url, **more))
    for words in ((), ("--apply",)):
        assert invoke(["schemas", "-c", path, *words]) == 1
        said = capsys.readouterr().out
        assert "select nothing of the source's 1 subject" in said
        assert "the target has all" not in said
    assert invoke(["schemas", "-c", path, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["flows"][0]["selected"] == 0
    assert there.written() == []


def test_a_source_without_schemas_is_in_order(
    here: Registry, there: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["schemas", "-c", str(file(tmp_path, here.url, there.url))]) == 0
    assert "the source's registry has none" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("one", "other", "refused"),
    [
        ("http://a:1", "http://a:1/", True),
        ("https://Registry.example", "https://registry.example:443", True),
        ("${URL}", "http://a:1", True),
        ("http://a:1", "http://a:2", False),
        ("http://a:1/x", "http://a:1/y", False),
    ],
)
def test_one_registry_for_both_sides_is_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    one: str,
    other: str,
    refused: bool,
) -> None:
    monkeypatch.setenv("URL", "http://a:1")
    assert invoke(["validate", "-c", str(file(tmp_path, one, other))]) == (2 if refused else 0)
    assert ("source and target are the same registry" in capsys.readouterr().err) == refused


def test_an_empty_include_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["validate", "-c", str(file(tmp_path, "http://a:1", "http://b:1", include=[]))]) == 2
    assert "include" in capsys.readouterr().err


def test_a_url_behind_which_no_registry_is(
    here: Registry, there: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for pair in ((f"{here.url}/api", there.url), (here.url, f"{there.url}/api/")):
        assert invoke(["schemas", "-c", str(file(tmp_path, *pair))]) == 3
        assert "is it a schema registry? Check the URL" in capsys.readouterr().err
