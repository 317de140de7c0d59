"""`run --runner spark` on the command line: what is wrong is said before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli import main

FILE = """\
clusters:
  a: {properties: {bootstrap.servers: "127.0.0.1:1"}}
  b: {properties: {bootstrap.servers: "127.0.0.1:2"}}
flows:
  f: {source: a, target: b, topics: [t]}
  g: {source: a, target: b, topics: [u]}
"""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--master", "local[2]"], "--master and --conf go with --runner spark"),
        (["--conf", "spark.x=y"], "--master and --conf go with --runner spark"),
        (["--runner", "spark", "--flow", "f", "--flow", "g"], "--runner spark runs one flow"),
        (["--runner", "spark"], "--flow is needed; it has f, g"),
        (["--runner", "spark", "--flow", "h"], "no flow h; it has f, g"),
        (["--runner", "spark", "--flow", "f", "--conf", "x=y"], "--conf x=y: expected spark.NAME=VALUE"),
    ],
)
def test_bad_input_is_refused(
    tmp_path: Path, arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "flows.yaml"
    path.write_text(FILE)
    assert main.invoke(["run", "-c", str(path), *arguments]) == 2
    assert expected in capsys.readouterr().err
