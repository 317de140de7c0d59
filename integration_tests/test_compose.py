"""configs/compose as Docker's own program reads and runs it: records go from one broker to the other."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest

from integration_tests.harness import clients, image
from integration_tests.harness.broker import free_port, wait_ready
from tests.running.tiers import ROOT

pytestmark = [pytest.mark.tier("long"), pytest.mark.timeout(1_800)]
FILE = ROOT / "configs" / "compose" / "compose.yaml"
RECORDS = [b"%d" % number for number in range(200)]
DONE_S_MAX = 600
Compose = Callable[..., str]


def program() -> list[str]:
    """`docker compose`, or the older `docker-compose`. Skips the test where neither is installed."""
    if shutil.which("docker"):
        asked = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False, timeout=DONE_S_MAX)
        if asked.returncode == 0:
            return ["docker", "compose"]
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    pytest.skip("neither docker compose nor docker-compose is installed")


@pytest.fixture
def compose(unique: Callable[[str], str]) -> Iterator[Compose]:
    """Runs a command on the file, as a project of its own; what it said. Nothing of it is left in the end."""
    project, words = unique("eos-compose"), program()
    environment = {**os.environ, "SOURCE_PORT": str(free_port()), "TARGET_PORT": str(free_port())}

    def run(*more: str, **variables: str) -> str:
        environment.update(variables)
        command = [*words, "--project-name", project, "--file", str(FILE), *more]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DONE_S_MAX, env=environment)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}\n{done.stderr}"
        return done.stdout

    yield run
    run("down", "--volumes", "--timeout", "20")


def test_the_file_is_valid(compose: Compose) -> None:
    assert compose("config", "--services").split()
    assert set(compose("--profile", "monitoring", "config", "--services").split()) >= {
        "source",
        "target",
        "flow",
        "grafana",
    }


def test_records_are_copied_from_one_broker_to_the_other(
    compose: Compose, tmp_path_factory: pytest.TempPathFactory
) -> None:
    built = image.built(tmp_path_factory.mktemp("base"), makes_base=False)
    compose("up", "--detach", "--no-build", EOS_IMAGE=built)
    source, target = (address(compose, name) for name in ("source", "target"))
    for each in (source, target):
        wait_ready(each)
    clients.create_topic(source, "orders")
    clients.put(clients.producer(source), "orders", *RECORDS)
    clients.wait_value(target, "source.orders", 0, RECORDS[-1])
    compose("restart", "--timeout", "20")
    for each in (source, target):
        wait_ready(each)
    clients.put(clients.producer(source), "orders", b"after the restart")
    clients.wait_value(target, "source.orders", 0, b"after the restart")
    assert clients.values(clients.read(target, "source.orders", 0)) == [*RECORDS, b"after the restart"]


def address(compose: Compose, service: str) -> str:
    """Where a broker answers on this machine."""
    found = compose("port", service, "19092").strip()
    assert found.startswith("127.0.0.1:"), json.dumps(found)
    return found
