"""The pages as a site: zensical and mkdocs build it strictly, every page is in it, and a link that leads nowhere ends
the build."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PAGES = sorted(path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md"))
BUILT_S_MAX = 300
REQUIREMENTS = ROOT / "constraints-site.txt"
"""Of mkdocs, in an environment of its own."""


def pages_of(entry: Any) -> Iterator[str]:
    """The pages of a part of `nav`."""
    if isinstance(entry, str):
        yield entry
    else:
        for part in entry.values() if isinstance(entry, dict) else entry:
            yield from pages_of(part)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A copy of what the site is made of: builders leave files beside it."""
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    return tmp_path


@pytest.fixture(scope="module")
def mkdocs(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program, from the package index."""
    directory = tmp_path_factory.mktemp("mkdocs")
    subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True, timeout=BUILT_S_MAX)
    install = ["-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(REQUIREMENTS)]
    done = subprocess.run([directory / "bin" / "python", *install], capture_output=True, text=True, timeout=BUILT_S_MAX)
    assert done.returncode == 0, done.stderr
    return str(directory / "bin" / "mkdocs")


def build(program: str, site: Path) -> subprocess.CompletedProcess[str]:
    command = [program, "build", "--strict"]
    return subprocess.run(command, cwd=site, capture_output=True, text=True, check=False, timeout=BUILT_S_MAX)


def assert_built(done: subprocess.CompletedProcess[str], site: Path) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    built = site / "dist" / "site"
    assert [page for page in PAGES if not (built / page.with_suffix(".html")).exists()] == []
    assert "Getting started" in (built / "index.html").read_text()


def break_a_link(site: Path) -> None:
    page = site / "docs" / "concepts.md"
    page.write_text(page.read_text() + "\n[nowhere](nowhere.md)\n")


def zensical() -> str:
    return str(Path(sys.executable).with_name("zensical"))


@pytest.mark.tier("default")
def test_zensical_builds_all_pages(site: Path) -> None:
    assert_built(build(zensical(), site), site)


@pytest.mark.tier("full")
def test_zensical_ends_at_a_link_that_leads_nowhere(site: Path) -> None:
    break_a_link(site)
    done = build(zensical(), site)
    assert done.returncode != 0
    assert "does not exist" in done.stdout + done.stderr


@pytest.mark.tier("full")
def test_mkdocs_builds_all_pages_and_ends_at_a_link_that_leads_nowhere(mkdocs: str, site: Path) -> None:
    assert_built(build(mkdocs, site), site)
    break_a_link(site)
    done = build(mkdocs, site)
    assert (done.returncode != 0, "nowhere.md" in done.stdout + done.stderr) == (True, True)


def test_every_page_has_its_place_in_the_navigation() -> None:
    named = list(pages_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    assert sorted(named) == [str(page) for page in PAGES]
