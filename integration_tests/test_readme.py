"""The README's own example, as a newcomer would try it: its file, its commands, between two brokers."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.harness import clients
from integration_tests.harness.embedded import EmbeddedBroker

README = (Path(__file__).parents[1] / "README.md").read_text()
RUN_S_MAX = 240


def block(language: str, containing: str) -> str:
    """The one block of this language that contains a text."""
    found = re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    (only,) = [text for text in found if containing in text]
    return str(only)


def commands() -> dict[str, list[str]]:
    """The example's commands by name, without their comments."""
    lines = [shlex.split(line, comments=True) for line in block("sh", "eos-replicate run").splitlines()]
    assert {line[0] for line in lines} == {"eos-replicate"}
    return {line[1]: [sys.executable, "-m", "cli.main", *line[1:]] for line in lines}


@pytest.fixture(scope="module")
def east(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    broker = EmbeddedBroker(tmp_path_factory.mktemp("east"))
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def west(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    broker = EmbeddedBroker(tmp_path_factory.mktemp("west"))
    broker.start()
    yield broker
    broker.stop()


def test_the_example_copies_what_it_says(east: EmbeddedBroker, west: EmbeddedBroker, tmp_path: Path) -> None:
    addresses = {"east.example:9092": east.bootstrap, "west.example:9092": west.bootstrap}
    text = block("yaml", "flows.yaml")
    for example, address in addresses.items():
        assert example in text
        text = text.replace(example, address)
    (tmp_path / "flows.yaml").write_text(text)
    for topic in ("orders", "payments.card", "others"):
        clients.create_topic(east.bootstrap, topic)
        clients.put(clients.producer(east.bootstrap), topic, topic.encode())
    told = commands()
    assert list(told) == ["validate", "plan", "run", "status", "reconcile", "verify"]

    def call(name: str, *more: str) -> subprocess.CompletedProcess[str]:
        command = [*told[name], *more]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=RUN_S_MAX, check=False)

    assert call("validate").returncode == 0
    planned = call("plan")
    assert planned.returncode == 0, planned.stdout + planned.stderr
    assert "east.orders" in planned.stdout
    assert not [name for name in clients.topics(west.bootstrap) if name.startswith("east.")], "plan changed something"
    process = subprocess.Popen(told["run"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        for topic in ("orders", "payments.card"):
            clients.wait_value(west.bootstrap, f"east.{topic}", 0, topic.encode())
        shown = call("status", "--json")
        assert shown.returncode == 0, shown.stdout + shown.stderr
        assert json.loads(shown.stdout)
    finally:
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=RUN_S_MAX)[1]
    assert process.returncode == 0, said
    for name in ("reconcile", "verify"):
        proven = call(name)
        assert proven.returncode == 0, proven.stdout + proven.stderr
    assert (tmp_path / "report/report.html").exists()
    assert "east.others" not in clients.topics(west.bootstrap)
