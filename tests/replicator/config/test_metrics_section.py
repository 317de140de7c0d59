"""The section `metrics`: who may see the endpoint, and where it listens."""

from __future__ import annotations

from pathlib import Path

import pytest

from replicator.config import FlowFileError, load_text

FILE = """\
clusters: {{a: {{properties: {{bootstrap.servers: "a:1"}}}}, b: {{properties: {{bootstrap.servers: "b:1"}}}}}}
flows: {{f: {{source: a, target: b, topics: [t]}}}}
metrics:
{}
"""


def faults(*lines: str, env: dict[str, str] | None = None, directory: Path | None = None) -> list[tuple[int, str, str]]:
    """Line, key and message of all that is wrong with these lines of the section."""
    try:
        load_text(FILE.format("\n".join(f"  {line}" for line in lines)), env=env or {}, directory=directory or Path())
    except FlowFileError as error:
        return [(it.line, it.path, it.message) for it in error.faults]
    return []


@pytest.mark.parametrize("address", ["0.0.0.0:9308", "10.0.0.7:9308", "[::]:9308", "metrics.example.com:9308"])
def test_off_loopback_a_token_is_needed(address: str) -> None:
    said = f"{address} is no loopback address, so metrics.token is needed"
    assert faults(f'listen: "{address}"') == [(4, "metrics.listen", said)]
    assert faults(f'listen: "{address}"', 'token: ""') == [(4, "metrics.listen", said)]
    assert faults(f'listen: "{address}"', 'token: "${TOKEN}"', env={"TOKEN": "s3cret"}) == []


@pytest.mark.parametrize("address", ["127.0.0.1:9308", "127.1.2.3:9308", "[::1]:9308", "localhost:9308"])
def test_on_loopback_none_is_needed(address: str) -> None:
    assert faults(f'listen: "{address}"') == []


def test_a_token_with_a_fault_is_that_one_fault(tmp_path: Path) -> None:
    """What is written is meant, so it isn't missed, too."""
    (tmp_path / "empty").write_text("\n")
    listen = 'listen: "0.0.0.0:9308"'
    assert [it[:2] for it in faults(listen, "token: s3cret")] == [(5, "metrics.token")]
    assert [it[:2] for it in faults(listen, 'token: "${NOT_SET}"')] == [(5, "metrics.token")]
    assert [it[:2] for it in faults(listen, "token: file:empty", directory=tmp_path)] == [(5, "metrics.token")]
