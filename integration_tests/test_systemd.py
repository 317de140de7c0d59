"""The systemd unit: it copies under all its restrictions, is reloaded, comes back after a kill, and stops cleanly."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from integration_tests.harness import clients, image, systemd
from integration_tests.harness.embedded import EmbeddedBroker
from integration_tests.harness.processes import wait_until
from integration_tests.harness.replicator import FlowFile
from integration_tests.harness.systemd import UNIT, Machine
from tests.running.tiers import ROOT

pytestmark = [pytest.mark.tier("long"), pytest.mark.timeout(1_800)]
EXPOSURE_MAX = 2.0
"""systemd-analyze's own measure, from 0 to 10."""
RECORDS = [b"%d" % number for number in range(500)]
FLOW_FILE_IS_WRONG = 2


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedBroker, EmbeddedBroker]]:
    both = tuple(EmbeddedBroker(tmp_path_factory.mktemp(name)) for name in ("source", "target"))
    for each in both:
        each.start()
    yield both  # type: ignore[misc]
    for each in both:
        each.kill()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> None:
    image.built(tmp_path_factory.mktemp("base"))
    systemd.built(tmp_path_factory.mktemp("systemd"))


@pytest.fixture
def machine(built: None, tmp_path: Path, unique: Callable[[str], str]) -> Iterator[Machine]:
    tmp_path.chmod(0o755)
    made = Machine(unique("eos-systemd"), tmp_path)
    yield made
    made.remove()


def test_it_copies_is_reloaded_comes_back_and_stops(
    machine: Machine, brokers: tuple[EmbeddedBroker, EmbeddedBroker], tmp_path: Path, unique: Callable[[str], str]
) -> None:
    source, target = (each.bootstrap for each in brokers)
    (tmp_path / "environment").write_text(f"SOURCE={source}\n")
    (tmp_path / "environment").chmod(0o600)
    here = {"bootstrap.servers": "${SOURCE}"}
    copy = f"{unique('copy')}.orders"
    FlowFile(tmp_path, "flows", here, target, topics=["orders"], rename=copy.replace("orders", "{topic}"))
    clients.create_topic(source, "orders")
    producer = clients.producer(source)
    clients.put(producer, "orders", *RECORDS)
    machine("systemctl", "start", UNIT)
    clients.wait_value(target, copy, 0, RECORDS[-1])
    assert machine("systemctl", "show", "--property", "DynamicUser", "--value", UNIT) == "yes"

    machine("systemctl", "reload", UNIT)
    wait_until(lambda: '"config_reloaded"' in machine.log(), "the flow file is read again", machine.log)

    first = machine.pid()
    machine("systemctl", "kill", "--signal", "KILL", UNIT)
    clients.put(producer, "orders", b"after the kill")
    wait_until(lambda: machine.pid() not in (0, first), "another process runs", machine.log)
    clients.wait_value(target, copy, 0, b"after the kill")
    assert clients.values(clients.read(target, copy, 0)) == [*RECORDS, b"after the kill"]

    machine.stop()
    assert machine.state() == "inactive", machine.log()
    (stopped,) = (line for line in machine.log().splitlines() if '"event": "stopped"' in line)
    assert '"exit_code": 0' in stopped, machine.log()


def test_with_a_flow_file_that_is_wrong_it_stays_down(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "flows.yaml").write_text("flows: 3\n")
    machine("systemctl", "start", UNIT)
    machine.wait_state("failed")
    assert machine("systemctl", "show", "--property", "NRestarts", "--value", UNIT) == "0", machine.log()
    assert "flows" in machine.log()


def test_its_exposure_is_small() -> None:
    command = ["systemd-analyze", "security", "--offline=true", str(ROOT / "configs" / "systemd" / UNIT)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except FileNotFoundError:
        pytest.skip("systemd-analyze is not installed")
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found is not None, done.stdout + done.stderr
    assert float(found[1]) <= EXPOSURE_MAX
