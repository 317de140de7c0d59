"""configs/compose: what it mounts is there, and its commands, its flow file and Prometheus' settings fit each other."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any

import click
import pytest
import yaml

from cli import main
from replicator import config
from tests.running.tiers import ROOT

pytestmark = pytest.mark.tier("default")
HERE = ROOT / "configs" / "compose"
COMPOSE: dict[str, Any] = yaml.safe_load((HERE / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
MOUNTED = [
    (name, *volume.split(":")[:2])
    for name, service in SERVICES.items()
    for volume in service["volumes"]
    if volume.startswith(".")
]
BROKERS = ("source", "target")
CHECKED_S_MAX = 60


@pytest.mark.parametrize(("service", "path", "at"), MOUNTED)
def test_what_is_mounted_is_there_and_everybody_may_read_it(service: str, path: str, at: str) -> None:
    """The image's user has no rights of its own in the checkout."""
    assert (HERE / path).is_file(), service
    assert (HERE / path).stat().st_mode & 0o044 == 0o044
    assert at.startswith("/")


@pytest.mark.parametrize("name", BROKERS)
def test_the_command_of_a_broker_is_one(name: str) -> None:
    command = [re.sub(r"\$\{\w+:-(\w+)\}", r"\1", word) for word in SERVICES[name]["command"]]
    broker = main.LazyGroup(name="eos-replicate").get_command(None, command[0])  # type: ignore[arg-type]
    assert broker is not None
    with click.Context(broker) as context:
        broker.parse_args(context, [*command[1:]])
    assert f"--advertise={name}:9092" in command
    assert SERVICES[name]["ports"][0].endswith(":19092")


def test_the_volumes_of_both_brokers_are_given_to_the_user_of_the_image() -> None:
    assert re.search(r"^USER 10001:10001$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    own = SERVICES["own-data"]
    assert own["entrypoint"][1] == "10001:10001"
    given = {volume.split(":")[0] for volume in own["volumes"]}
    assert given == {SERVICES[name]["volumes"][0].split(":")[0] for name in BROKERS} == set(COMPOSE["volumes"])


def test_the_flow_file_names_the_services(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (HERE / "flows.yaml").read_text().replace("file:/etc/eos/metrics-token", f"file:{HERE / 'metrics-token'}")
    loaded = config.load_text(text, env={}, name="flows.yaml")
    assert {flow.source.properties["bootstrap.servers"] for flow in loaded.flows.values()} == {"source:9092"}
    assert {flow.target.properties["bootstrap.servers"] for flow in loaded.flows.values()} == {"target:9092"}


def test_prometheus_asks_the_flow_where_it_listens() -> None:
    settings = yaml.safe_load((HERE / "prometheus.yaml").read_text())
    (job,) = settings["scrape_configs"]
    (found,) = job["dns_sd_configs"]
    listen = yaml.safe_load((HERE / "flows.yaml").read_text())["metrics"]["listen"]
    assert (found["names"], str(found["port"])) == (["flow"], listen.rpartition(":")[2])
    mounted = {at for service, _, at in MOUNTED if service == "prometheus"}
    assert {job["authorization"]["credentials_file"], *settings["rule_files"]} < mounted


def test_promtool_takes_the_settings() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    command = [promtool, "check", "config", "--syntax-only", str(HERE / "prometheus.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=CHECKED_S_MAX)
    assert done.returncode == 0, done.stdout + done.stderr
