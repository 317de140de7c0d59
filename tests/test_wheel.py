"""The wheel in an environment that has nothing but it and what it requires: what a user gets who installs it."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from email.parser import Parser
from importlib import metadata
from pathlib import Path

import pytest

from integration_tests.harness import clients, environments

pytestmark = pytest.mark.tier("extended")  # builds it, and makes an environment

SITE = Path(sysconfig.get_path("purelib"))
DONE_S_MAX = 60
FLOWS = """\
clusters:
  east: {properties: {bootstrap.servers: "east:9092"}}
  west: {properties: {bootstrap.servers: "west:9092"}}
flows:
  orders: {source: east, target: west, topics: [orders]}
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of this tree by the backend that pyproject.toml names; nothing is downloaded."""
    return environments.wheel(tmp_path_factory.mktemp("dist"))


def version(wheel: Path) -> str:
    """As its name has it."""
    return wheel.name.split("-")[1]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin directory of an environment with the wheel and the packages of constraints-run.txt, and no others."""
    directory = tmp_path_factory.mktemp("env")
    venv.create(directory)
    paths = {"base": str(directory), "platbase": str(directory)}
    site = Path(sysconfig.get_path("purelib", "venv", vars=paths))
    for name in environments.pinned("constraints-run.txt"):
        files = metadata.distribution(name).files
        assert files, name
        for part in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            (site / part).symlink_to(SITE / part)
    bin_directory = Path(sysconfig.get_path("scripts", "venv", vars=paths))
    pip(bin_directory, "install", "--no-index", "--no-deps", "--no-compile", str(wheel))
    return bin_directory


def environment() -> dict[str, str]:
    """Without what would lead Python back to this tree."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def call(bin_directory: Path, program: str, *arguments: str) -> str:
    """What a program of the environment writes to stdout. It must succeed."""
    done = subprocess.run(
        [str(bin_directory / program), *arguments],
        cwd=bin_directory,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DONE_S_MAX,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pip(bin_directory: Path, *arguments: str) -> str:
    """Let a pip work on the environment: that of this Python, or one that the environment gets, which takes seconds."""
    base = Path(getattr(sys, "_base_executable", sys.executable))
    if subprocess.run([base, "-c", "import pip"], env=environment(), capture_output=True).returncode == 0:
        return call(base.parent, base.name, "-m", "pip", "--python", str(bin_directory / "python"), *arguments)
    call(bin_directory, "python", "-m", "ensurepip")
    return call(bin_directory, "python", "-m", "pip", *arguments)


def test_the_wheel_has_the_licence_and_says_that_it_is_typed(wheel: Path) -> None:
    dist_info = f"eos_replicate-{version(wheel)}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        said = Parser().parsestr(archive.read(f"{dist_info}/METADATA").decode())
        licence = archive.read(f"{dist_info}/licenses/LICENSE").decode()
    assert {name.split("/")[0] for name in names} == {*environments.PACKAGES, dist_info}
    assert {f"{package}/py.typed" for package in environments.PACKAGES} <= names
    assert "Apache License" in licence
    assert (said["License-Expression"], said["License-File"]) == ("Apache-2.0", "LICENSE")
    assert said["Version"] == version(wheel)


def test_another_checkout_makes_the_same_wheel_byte_by_byte(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither when nor where it is built shows, nor who may read its files there. It has no repository, and is told
    the version; tests/test_versions.py builds it in two clones."""
    monkeypatch.setenv(environments.VERSION, version(wheel))
    tree = environments.copied(tmp_path / "tree")
    for path in tree.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
        os.utime(path, (1_700_000_000, 1_700_000_000))
    assert environments.wheel(tmp_path / "dist", tree).read_bytes() == wheel.read_bytes()


def test_this_tree_stays_as_it_is_while_a_wheel_is_built(tmp_path: Path) -> None:
    """Processes of other tests run from it: a version that changes meanwhile would be another one than theirs."""
    file = environments.ROOT / "cli" / "_version.py"
    before = file.stat().st_mtime_ns if file.exists() else None
    environments.wheel(tmp_path)
    assert (file.stat().st_mtime_ns if file.exists() else None) == before


def test_what_the_wheel_requires_is_enough_to_load_it(installed: Path) -> None:
    assert "No broken requirements" in pip(installed, "check")
    place = call(
        installed, "python", "-c", "import cli.commands.run, replicator.flow.daemon; print(replicator.__file__)"
    )
    assert Path(place.strip()).is_relative_to(installed.parent), "not the source tree"


def test_its_command_works(wheel: Path, installed: Path, tmp_path: Path) -> None:
    assert call(installed, "eos-replicate", "--version") == f"eos-replicate {version(wheel)}\n"
    assert "broker" in call(installed, "eos-replicate", "--help")
    flows = tmp_path / "flows.yaml"
    flows.write_text(FLOWS)
    assert "east → west" in call(installed, "eos-replicate", "validate", "-c", str(flows))


def test_its_broker_serves_a_client(installed: Path, tmp_path: Path) -> None:
    command = [str(installed / "eos-replicate"), "broker", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"]
    broker = subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True)
    try:
        assert broker.stdout is not None
        bootstrap = broker.stdout.readline().strip().rpartition(" ")[2]
        clients.create_topic(bootstrap, "orders")
        clients.put(clients.producer(bootstrap), "orders", b"one")
        clients.wait_value(bootstrap, "orders", 0, b"one")
    finally:
        broker.terminate()
        broker.communicate(timeout=DONE_S_MAX)
    assert broker.returncode == 0
