"""An older version of the program, from the repository's history, to be run in turn with this one.

EOS_OLD_COMMIT names it. By default it is the oldest of some commits before this one whose formats are those of this
tree: an operator may go back to it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.running.tiers import ROOT

FORMATS: Mapping[str, str] = {
    "replicator/model/checkpoint.py": r"^FORMAT_VERSION\b.* = .*$",
    "replicator/state/envelope.py": r"^FORMAT_VERSION = .*$",
    "replicator/state/generation.py": r"^WITH_\w+ = .*$",
    "replicator/state/group_notes.py": r"^SHORTENED = .*$",
    "replicator/offset_map/block.py": r"^VERSION, .* = .*$",
    "replicator/offset_map/page.py": r"^PAGE = .*$",
    "replicator/offset_map/directory.py": r"^CHANGES, .* = .*$",
    "replicator/workers/proofs.py": r"^METADATA_VERSION = .*$",
}
"""Where the versions of all that a flow keeps on its target are written down, and the lines."""
BACK = (200, 100, 50, 20, 10, 5, 2, 1)
"""How many commits before this one are looked at, on the main line."""
GIT_S_MAX = 60.0


def _git(*words: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=False, timeout=GIT_S_MAX)
    except FileNotFoundError:
        pytest.skip("there is no git")


def formats(commit: str) -> dict[str, list[str]]:
    """The lines of `FORMATS` at a commit."""
    found = {}
    for path, line in FORMATS.items():
        text = _git("show", f"{commit}:{path}").stdout.decode()
        found[path] = re.findall(line, text, re.MULTILINE)
    return found


def of_this_tree() -> dict[str, list[str]]:
    """The lines of `FORMATS` as they are now."""
    return {path: re.findall(line, (ROOT / path).read_text(), re.MULTILINE) for path, line in FORMATS.items()}


def with_the_same_formats() -> str:
    """The older version that an operator may go back to. Skips the test where there is no history of this tree."""
    if chosen := os.environ.get("EOS_OLD_COMMIT"):
        return chosen
    now = of_this_tree()
    for back in BACK:
        asked = _git("rev-parse", "--verify", "--quiet", f"HEAD~{back}^{{commit}}")
        if asked.returncode == 0 and formats(commit := asked.stdout.decode().strip()) == now:
            return commit
    pytest.skip("there is no commit with the same formats in the history of this tree")


def before(path: str, text: str) -> str:
    """The last commit before the one that first wrote `text` into a file. Skips the test where that isn't known."""
    found = _git("log", "--format=%H", f"-S{text}", "--", path).stdout.decode().split()
    if not found or _git("rev-parse", "--verify", "--quiet", f"{found[-1]}^").returncode != 0:
        pytest.skip(f"the history of this tree doesn't say when {path} got {text!r}")
    return f"{found[-1]}^"


def tree(directory: Path, commit: str) -> Path:
    """The files of a commit, in a new directory; whoever runs Python there runs that version.

    Nothing of the repository is changed. The packages are those of the environment that runs the tests.
    """
    made = directory / "older"
    made.mkdir()
    packed = _git("archive", "--format=tar", commit, "cli", "replicator", "kafka_records", "embedded_broker")
    assert packed.returncode == 0, packed.stderr.decode()
    subprocess.run(["tar", "-x", "-C", str(made)], input=packed.stdout, check=True, timeout=GIT_S_MAX)
    where = [sys.executable, "-c", "import cli, replicator; print(cli.__file__, replicator.__file__)"]
    said = subprocess.run(where, cwd=made, capture_output=True, text=True, check=True, timeout=GIT_S_MAX).stdout
    assert all(Path(file).is_relative_to(made) for file in said.split()), said
    return made
