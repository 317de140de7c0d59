"""The container image, built by Docker from the checkout on a Debian base that is made here.

No registry of images is asked. What a user's `python:3.13-slim` is, a Debian with Python from its packages is here; the
Dockerfile is the same.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from integration_tests.harness.kafka_container import docker_problem
from tests.running.tiers import ROOT

BASE = "eos-replicate-test/debian-python:bookworm"
IMAGE = "eos-replicate-test/image:latest"
PACKAGES = "python3,python3-venv,ca-certificates"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
VERSION = "1.2.3"
BUILD_S_MAX = 900


def docker(*words: str, check: bool = True, stdin: Any = None) -> subprocess.CompletedProcess[str]:
    """Run a command of Docker's. Raises AssertionError with what it said if it failed and `check` is set."""
    done = subprocess.run(
        ["docker", *words], stdin=stdin, capture_output=True, text=True, check=False, timeout=BUILD_S_MAX
    )
    assert done.returncode == 0 or not check, f"docker {' '.join(words)}: {done.stdout}\n{done.stderr}"
    return done


def built(directory: Path, *, makes_base: bool = True) -> str:
    """Build the image and return its id: another checkout may build one under the same name meanwhile.

    Skips the test where there is no Docker, or no base can be made; without `makes_base` also where none was made yet,
    which takes a minute.
    """
    if (problem := docker_problem()) is not None and "Docker isn't there" in problem:
        pytest.skip(problem)
    if docker("image", "inspect", BASE, check=False).returncode != 0:
        if not makes_base:
            pytest.skip(f"there is no {BASE}: `python -m integration_tests.harness.prepare` makes it")
        _make_base(directory)
    arguments = ("--build-arg", f"BASE={BASE}", "--build-arg", f"VERSION={VERSION}")
    return docker("build", "--quiet", "--network", "host", *arguments, "--tag", IMAGE, str(ROOT)).stdout.strip()


def sbom(image: str, file: Path) -> dict[str, Any]:
    """What `make image-sbom` writes of an image."""
    command = ["make", "image-sbom", f"IMAGE={image}", f"SBOM={file}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=BUILD_S_MAX)
    assert done.returncode == 0, done.stdout + done.stderr
    written: dict[str, Any] = json.loads(file.read_text())
    return written


def _make_base(directory: Path) -> None:
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        pytest.skip("debootstrap and root are needed to make a Debian base for the image")
    root = directory / "root"
    made = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(root)]
    done = subprocess.run(made, capture_output=True, text=True, check=False, timeout=BUILD_S_MAX)
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr
    for left in ("var/cache/apt/archives", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale"):
        shutil.rmtree(root / left, ignore_errors=True)
    if CERTIFICATES.exists():  # those by which this machine reaches its package registries
        shutil.copy(CERTIFICATES, root / CERTIFICATES.relative_to("/"))
    archive = subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE)
    docker("import", "--change", f"ENV PIP_CERT={CERTIFICATES}", "-", BASE, stdin=archive.stdout)
    assert archive.wait() == 0
    shutil.rmtree(root)


class Container:
    """One container of the image: no new rights, nothing to write but what is mounted, in the network of the host."""

    def __init__(self, image: str, name: str, words: Sequence[str], options: Sequence[str] = ()) -> None:
        self.name = name
        docker(
            "run", "--detach", "--name", name, "--network", "host", "--read-only", "--cap-drop", "ALL",
            "--security-opt", "no-new-privileges", *options, image, *words,
        )  # fmt: skip

    def inspected(self) -> dict[str, Any]:
        """What Docker knows of it."""
        found: list[dict[str, Any]] = json.loads(docker("inspect", self.name).stdout)
        return found[0]

    def logs(self) -> str:
        """What it has written, on both streams."""
        done = docker("logs", self.name)
        return done.stdout + done.stderr

    def has_logged(self, event: str) -> bool:
        """Whether one of its log's lines is of this event."""
        return f'"event": "{event}"' in self.logs()

    def waited_for_a_core_s(self) -> float:
        """How long its first thread could have run, and another program had the core (Linux: schedstat)."""
        pid = self.inspected()["State"]["Pid"]
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        docker("stop", "--time", "30", self.name)
        return int(self.inspected()["State"]["ExitCode"])

    def wait(self) -> int:
        """The exit code of one that ends by itself."""
        return int(docker("wait", self.name).stdout)

    def remove(self) -> None:
        """SIGKILL where it still runs, and nothing is left of it."""
        docker("rm", "--force", "--volumes", self.name)
