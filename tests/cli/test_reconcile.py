"""`reconcile` on the command line: what is wrong is said before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli import main

FILE = """\
clusters:
  a: {properties: {bootstrap.servers: "127.0.0.1:1"}}
  b: {properties: {bootstrap.servers: "127.0.0.1:2"}}
flows:
  f: {source: a, target: b, topics: [t], limits: {connect_timeout_ms: 1000}}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "flows.yaml"
    file.write_text(FILE)
    return file


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--quick", "--deep"], "--quick and --deep exclude each other"),
        (["--from", "2026-01-02T00:00:00Z", "--to", "2026-01-01T00:00:00Z"], "is not before --to"),
        (["--from", "2026-01-01T00:00:00"], "--from 2026-01-01T00:00:00: the time needs a zone"),
        (["--to", "yesterday"], "--to yesterday: expected a time such as"),
        (["--flow", "g"], "no flow g; it has f"),
        (["--conf", "memory=1g"], "--conf memory=1g: expected spark.NAME=VALUE"),
        (["--conf", "spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.0"], "does not fit"),
        (["--out", "."], ". exists already"),
    ],
)
def test_bad_input_is_refused(
    path: Path, arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.invoke(["reconcile", "-c", str(path), *arguments]) == 2
    assert expected in capsys.readouterr().err


def test_no_java_is_said(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    assert main.invoke(["reconcile", "-c", str(path)]) == 2
    assert "Spark needs Java" in capsys.readouterr().err


def test_an_unreachable_cluster_is_named(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["reconcile", "-c", str(path)]) == 3
    assert "cluster 'a' (127.0.0.1:1) did not answer" in capsys.readouterr().err
