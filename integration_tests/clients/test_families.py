"""Every client family does the whole plan, unchanged; on real Kafka the same programs show that they are right."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from integration_tests.clients import aiokafka_program, java_program, kafka_python_program, kcat_program
from integration_tests.clients.plan import Plan, Report, check
from integration_tests.harness.broker import BrokerHandle
from replicator.model.errors import ConfigError
from replicator.spark import java

pytestmark = pytest.mark.tier("full", kafka="long")
FRANZ_GO = Path(__file__).parent / "franz_go"
QUICK_BUILD = ("-buildvcs=false", "-gcflags=all=-N -l")
BUILD_S_MAX, RUN_S_MAX = 300, 240


def missing(tool: str, problem: str) -> NoReturn:
    """Skips the test; EOS_REQUIRE_<tool>=1 makes it fail instead."""
    if os.environ.get(f"EOS_REQUIRE_{tool}") == "1":
        pytest.fail(f"EOS_REQUIRE_{tool}=1, but {problem}")
    pytest.skip(problem)


@pytest.fixture
def plan(target: BrokerHandle, unique: Callable[[str], str]) -> Plan:
    name = unique("families")
    return Plan(target.bootstrap, name, f"{name}-copy", f"{name}-readers", f"{name}-copiers", name)


@pytest.fixture(scope="session")
def franz_go(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, built."""
    go = shutil.which("go")
    if go is None:
        missing("GO", "there is no go on PATH")
    needed = re.search(r"^go (\d+)\.(\d+)", (FRANZ_GO / "go.mod").read_text(), re.MULTILINE)
    assert needed is not None
    said = subprocess.run([go, "version"], capture_output=True, text=True, timeout=RUN_S_MAX, check=True).stdout
    found = re.search(r"go(\d+)\.(\d+)", said)
    if found is None or tuple(map(int, found.groups())) < tuple(map(int, needed.groups())):
        missing("GO", f"franz-go needs Go {'.'.join(needed.groups())}, and this is {said.strip()}")
    fetched = _in_franz_go(go, "mod", "download")
    if fetched.returncode != 0:
        missing("GO", f"franz-go can't be had: {fetched.stderr}")
    program = tmp_path_factory.mktemp("franz-go") / "program"
    built = _in_franz_go(go, "build", *QUICK_BUILD, "-o", str(program), ".")
    assert built.returncode == 0, built.stderr
    return program


def _in_franz_go(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=FRANZ_GO, capture_output=True, text=True, timeout=BUILD_S_MAX, check=False)


@pytest.fixture(scope="session")
def java_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The jar of Java's client."""
    try:
        java.check(os.environ)
    except ConfigError as error:
        missing("JAVA", str(error))
    try:
        return java_program.kafka_clients(tmp_path_factory.mktemp("java-client"))
    except subprocess.CalledProcessError as error:
        missing("JAVA", f"Java's client can't be had: {error.stdout}")


def test_aiokafka(plan: Plan) -> None:
    check(plan, aiokafka_program.run(plan))


def test_kafka_python(plan: Plan) -> None:
    check(plan, kafka_python_program.run(plan))


@pytest.mark.tier("long", kafka="long")
def test_franz_go(plan: Plan, franz_go: Path) -> None:
    command = [str(franz_go)]
    done = subprocess.run(
        command, input=plan.json(), capture_output=True, text=True, timeout=RUN_S_MAX + 10, check=False
    )
    assert done.returncode == 0, done.stderr
    check(plan, Report.of_json(done.stdout))


def test_java_3(plan: Plan, java_client: Path) -> None:
    check(plan, java_program.run(plan, java_client))


def test_kcat(plan: Plan) -> None:
    if shutil.which("kcat") is None:
        missing("KCAT", "there is no kcat on PATH")
    check(plan, kcat_program.run(plan))
