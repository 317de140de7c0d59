"""Where the version comes from: the newest tag of a clone, a file of its archive, the environment, or nowhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from integration_tests.harness import environments

pytestmark = pytest.mark.tier("extended")

ROOT = Path(__file__).parents[1]
GIT_FILES = (".gitignore", ".gitattributes", ".git_archival.txt")
NONE = "0.0.0"
DONE_S_MAX = 60


def environment(**more: str) -> dict[str, str]:
    """Without what tells git or the build which version or repository is meant."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "SETUPTOOLS_SCM", "PYTHON"))
    }
    author = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    author |= {
        f"GIT_{who}_{what}": "tester@eos-replicate.example"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    return kept | author | more


def run(tree: Path, *command: str, **more: str) -> str:
    """What a command in this tree writes to stdout. It must succeed."""
    done = subprocess.run(
        command, cwd=tree, env=environment(**more), capture_output=True, text=True, timeout=DONE_S_MAX
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def version(tree: Path, **more: str) -> str:
    """The version that a wheel of this tree would get."""
    return run(tree, sys.executable, "-m", "hatchling", "version", **more).strip()


def commit(tree: Path) -> str:
    run(tree, "git", "commit", "--quiet", "--allow-empty", "--message", "A change")
    return run(tree, "git", "rev-parse", "HEAD").strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The files of this checkout, of which the version of a former build is none, and no repository."""
    return environments.copied(tmp_path / "tree", *GIT_FILES)


@pytest.fixture
def clone(tree: Path) -> Path:
    """A repository with one commit and no tag."""
    run(tree, "git", "init", "--quiet", "--initial-branch", "main")
    run(tree, "git", "add", ".")
    commit(tree)
    return tree


def test_it_is_that_of_the_tag_and_of_no_other_kind_of_tag(clone: Path) -> None:
    run(clone, "git", "tag", "v1.2.3")
    run(clone, "git", "tag", "v9")
    run(clone, "git", "tag", "probe-7.0.0")
    assert version(clone) == "1.2.3"
    after = commit(clone)
    assert version(clone) == f"1.2.4.dev1+g{after[:9]}"
    run(clone, "git", "tag", "v2.0.0")
    assert version(clone) == "2.0.0"


def test_a_clone_without_a_tag_counts_its_commits(clone: Path) -> None:
    after = commit(clone)
    assert version(clone) == f"0.0.1.dev2+g{after[:9]}"


def test_files_alone_have_none_but_what_the_environment_says(tree: Path) -> None:
    assert version(tree) == NONE
    assert version(tree, SETUPTOOLS_SCM_PRETEND_VERSION="") == NONE, "a build argument that wasn't given"
    assert version(tree, SETUPTOOLS_SCM_PRETEND_VERSION="1.2.3") == "1.2.3"


def test_a_machine_without_git_builds_files_alone(clone: Path, tmp_path: Path) -> None:
    run(clone, "git", "tag", "v1.2.3")
    assert version(clone, PATH=str(tmp_path)) == NONE


def test_an_archive_that_git_has_made_knows_its_tag(clone: Path, tmp_path: Path) -> None:
    run(clone, "git", "tag", "v1.2.3")
    unpacked = tmp_path / "archive"
    unpacked.mkdir()
    run(clone, "git", "archive", "--output", str(tmp_path / "archive.tar"), "HEAD")
    run(unpacked, "tar", "-xf", str(tmp_path / "archive.tar"))
    assert version(unpacked) == "1.2.3"


def test_two_clones_of_a_tag_make_the_same_wheel_with_its_version(clone: Path, tmp_path: Path) -> None:
    """However much of the history they have, and in which directory they are."""
    run(clone, "git", "tag", "v1.2.3")
    commit(clone)
    other = tmp_path / "other"
    run(tmp_path, "git", "clone", "--quiet", str(clone), str(other))
    wheels = [environments.wheel(tmp_path / f"dist-{tree.name}", tree) for tree in (clone, other)]
    assert wheels[0].name == wheels[1].name
    assert wheels[0].read_bytes() == wheels[1].read_bytes()
    run(clone, "git", "checkout", "--quiet", "v1.2.3")
    released = environments.wheel(tmp_path / "released", clone)
    assert released.name == "eos_replicate-1.2.3-py3-none-any.whl"
    with zipfile.ZipFile(released) as archive:
        assert '\n__version__ = "1.2.3"\n' in archive.read("cli/_version.py").decode()
    assert run(clone, "git", "status", "--porcelain") == "", "what a build writes belongs to no commit"


def test_a_source_tree_that_was_never_built_runs_and_starts_no_git(tree: Path, tmp_path: Path) -> None:
    command = (sys.executable, "-m", "cli.main", "--version")
    said = run(tree, *command, PYTHONPATH=str(tree), PATH=str(tmp_path))
    assert said == f"eos-replicate {NONE}\n"
    (tree / "cli" / "_version.py").write_text('__version__ = "1.2.3"\n')
    assert run(tree, *command, PYTHONPATH=str(tree), PATH=str(tmp_path)) == "eos-replicate 1.2.3\n"


def test_the_image_gets_it_by_an_argument_as_it_has_no_repository() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert len(re.findall(r"^ARG VERSION=0\.0\.0$", text, re.MULTILINE)) == 2, "of each stage"
    assert 'SETUPTOOLS_SCM_PRETEND_VERSION="$VERSION"' in text
    assert 'org.opencontainers.image.version="$VERSION"' in text
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored.index("cli/_version.py") > ignored.index("!cli"), "the version of a former build isn't copied"
