"""Helm, from the PATH or built by Go, and the schemas of Kubernetes, in an environment of their own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.running.tiers import ROOT

CHART = ROOT / "configs" / "helm" / "eos-replicate"
HELM = "helm.sh/helm/v3/cmd/helm@v3.19.2"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
MADE_S_MAX = 1_500
VALIDATE = """
import json, sys
import kubernetes_validate as kubernetes
for each in json.load(sys.stdin):
    kubernetes.validate(each, sys.argv[1], strict=True)
"""
BUILT = Path.home() / "go" / "bin" / "helm"
"""Where Go puts it."""
Manifest = dict[str, Any]


def helm() -> str:
    """Return the path of the program. Skips the test where it isn't there: to build it takes minutes."""
    found = shutil.which("helm") or (str(BUILT) if BUILT.exists() else None)
    if found is None:
        pytest.skip("there is no helm: with Go installed `python -m integration_tests.harness.prepare` builds it")
    return found


def build_helm() -> None:
    """Have Go build the program if there is none. Skips the test where Go isn't installed."""
    if shutil.which("helm") is not None or BUILT.exists():
        return
    if shutil.which("go") is None:
        pytest.skip("neither helm nor Go is installed")
    done = subprocess.run(["go", "install", HELM], capture_output=True, text=True, check=False, timeout=MADE_S_MAX)
    assert done.returncode == 0, done.stderr


def _run(directory: Path, words: Sequence[str], values: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
    file = directory / "values.yaml"
    file.write_text(yaml.safe_dump(dict(values)))
    command = [helm(), *words, str(CHART), "--values", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def template(directory: Path, **values: Any) -> tuple[list[Manifest], str]:
    """Render the chart with these values; what Helm says if it refuses them."""
    no_cluster_to_ask = ["--kube-version", "1.34", "--namespace", "kafka"]
    done = _run(directory, ["template", "copy", *no_cluster_to_ask], values)
    return [each for each in yaml.safe_load_all(done.stdout) if each], done.stderr


def lint(directory: Path, **values: Any) -> None:
    """Raise AssertionError with what `helm lint --strict` finds."""
    done = _run(directory, ["lint", "--strict"], values)
    assert done.returncode == 0, done.stdout + done.stderr


class Schemas:
    """The schemas of each version of Kubernetes, strict: a field that there isn't is an error."""

    def __init__(self, directory: Path) -> None:
        """Make the environment, from the package index."""
        self._python = directory / "schemas" / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", str(directory / "schemas")], check=True, timeout=120)
        install = ["-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(REQUIREMENTS)]
        done = subprocess.run([str(self._python), *install], capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 0, done.stderr

    def check(self, manifests: list[Manifest], version: str) -> None:
        """Raise AssertionError with the first manifest that the version of Kubernetes would refuse."""
        command = [str(self._python), "-c", VALIDATE, version]
        said = json.dumps(manifests)
        done = subprocess.run(command, input=said, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
