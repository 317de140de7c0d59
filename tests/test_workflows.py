"""The workflow files of GitHub: what they run is there, and actionlint finds nothing in them where it is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
LINTED_S_MAX = 60


def commands(path: Path) -> list[str]:
    """All lines of the workflow's `run` steps."""
    loaded: dict[str, Any] = yaml.safe_load(path.read_text())
    steps = [step for job in loaded["jobs"].values() for step in job["steps"]]
    return [line for step in steps if "run" in step for line in step["run"].splitlines()]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_what_it_runs_is_there(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = "\n".join(commands(path))
    assert text
    assert set(re.findall(r"\bmake ([a-z-]+)", text)) <= targets
    assert [name for name in re.findall(r"-r (\S+\.txt)", text) if not (ROOT / name).exists()] == []
    assert "contents: read" in path.read_text(), "it may change nothing"


def test_the_tests_run_as_in_our_own_ci() -> None:
    """With real Kafka, Java and kcat required, and with the same Kafka."""
    ours, theirs = (ROOT / ".ci" / "run").read_text(), (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    required = set(re.findall(r"EOS_REQUIRE_[A-Z]+", ours))
    assert len(required) == 3
    assert required <= set(re.findall(r"EOS_REQUIRE_[A-Z]+", theirs))
    (image,) = re.findall(r"^image=(\S+)", ours, re.MULTILINE)
    assert image in theirs


@pytest.mark.tier("default")
def test_what_is_built_has_its_list_of_packages_beside_it() -> None:
    """Of those that the wheel requires and the Dockerfile installs."""
    (line,) = (one for one in commands(ROOT / ".github" / "workflows" / "ci.yml") if "cyclonedx-py" in one)
    (listed,) = re.findall(r"requirements (\S+)", line)
    assert f"-r {listed}" in (ROOT / "Dockerfile").read_text()
    assert line.endswith("-o dist/sbom.json")


@pytest.mark.tier("default")
def test_the_image_has_its_list_of_packages_beside_the_wheels() -> None:
    lines = commands(ROOT / ".github" / "workflows" / "ci.yml")
    (built,) = (at for at, line in enumerate(lines) if line.startswith("docker build"))
    (listed,) = (at for at, line in enumerate(lines) if line.startswith("make image-sbom"))
    assert listed > built
    (image,) = re.findall(r"--tag (\S+)", lines[built])
    assert lines[listed] == f"make image-sbom IMAGE={image} SBOM=dist/image.sbom.json"


@pytest.mark.tier("default")
def test_what_writes_lists_of_packages_is_pinned_with_its_hashes() -> None:
    for path in WORKFLOWS:
        lines = commands(path)
        assert [line for line in lines if "cyclonedx-bom" in line] == [], f"{path.name}: by name, in any version"
        first = next(at for at, line in enumerate(lines) if "cyclonedx-py" in line)
        assert any("--require-hashes --no-deps -r constraints-sbom.txt" in line for line in lines[:first]), path.name
    pinned = (ROOT / "constraints-sbom.txt").read_text()
    assert re.search(r"^cyclonedx-bom==\S+ \\\n    --hash=sha256:", pinned, re.MULTILINE)
    assert "cyclonedx" not in (ROOT / "Dockerfile").read_text() + (ROOT / "constraints-run.txt").read_text()


def test_actionlint_finds_nothing() -> None:
    built = Path.home() / "go" / "bin" / "actionlint"
    program = shutil.which("actionlint") or (str(built) if built.exists() else None)
    if program is None:
        pytest.skip("actionlint is not installed: go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.7")
    command = [program, *map(str, WORKFLOWS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LINTED_S_MAX)
    assert done.returncode == 0, done.stdout + done.stderr
