"""The pages as a site: zensical and mkdocs build it strictly, every page is in it and fits a phone, and a link that
leads nowhere ends the build."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PAGES = sorted(path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md"))
BUILT_S_MAX, SHOWN_S_MAX = 300, 300
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PHONE = 390
"""Pixels."""
MEASURE = """<!doctype html><meta charset="utf-8"><title></title><body><script>
const reachable = (element, inside, root) => {
  for (let at = element.parentElement; at && at !== root && at.tagName !== "BODY"; at = at.parentElement)
    if (inside.getComputedStyle(at).overflowX !== "visible") return true;
  return false;
};
(async () => {
  const found = {};
  for (const page of PAGES) {
    const frame = document.createElement("iframe");
    frame.width = WIDTH; frame.height = 800; frame.style.border = 0;
    const loaded = new Promise(done => frame.onload = done);
    frame.src = page; document.body.append(frame); await loaded;
    const inside = frame.contentWindow, root = frame.contentDocument.documentElement;
    await frame.contentDocument.fonts.ready;
    const right = element => element.getBoundingClientRect().right;
    const beyond = [...frame.contentDocument.querySelectorAll("article *")].filter(
      element => right(element) > root.clientWidth + 1 && !reachable(element, inside, root));
    found[page] = [root.scrollWidth, root.clientWidth, beyond.slice(0, 3).map(it => it.outerHTML.slice(0, 80))];
    frame.remove();
  }
  document.title = JSON.stringify(found);
})()</script>"""
"""Shows each page in a frame that is as wide as a phone. Found are the widths of page and frame, and what ends beyond
it and is in nothing that can be scrolled by itself."""
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
    assert {page.name: found for page in built.rglob("*.html") if (found := shown_as_text(page.read_text()))} == {}


def shown_as_text(page: str) -> list[str]:
    """Rows of tables that stand on a page as they were written."""
    outside = re.sub(r"<(pre|code|script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    return re.findall(r"^\s*(?:<[^>]*>)*\|.*\|", outside, re.MULTILINE)


def break_a_link(site: Path) -> None:
    page = site / "docs" / "concepts.md"
    page.write_text(page.read_text() + "\n[nowhere](nowhere.md)\n")


def zensical() -> str:
    return str(Path(sys.executable).with_name("zensical"))


@pytest.mark.tier("default")
def test_zensical_builds_all_pages(site: Path) -> None:
    assert_built(build(zensical(), site), site)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Leave stderr to pytest."""


def shown(directory: Path, profile: Path) -> dict[str, Any]:
    """What `MEASURE` finds of each page. The browser reaches nothing but this site: it has no name to look up."""
    pages = [page.with_suffix(".html").as_posix() for page in PAGES]
    script = MEASURE.replace("PAGES", json.dumps(pages)).replace("WIDTH", str(PHONE))
    (directory / "measure.html").write_text(script)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(directory))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert CHROMIUM is not None
        done = subprocess.run(
            [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=120000", "--dump-dom",
             "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", f"--user-data-dir={profile}",
             f"http://127.0.0.1:{server.server_port}/measure.html"],
            capture_output=True, text=True, timeout=SHOWN_S_MAX, check=True,
        )  # fmt: skip
        server.shutdown()
    title = re.search(r"<title>(.+?)</title>", done.stdout)
    assert title is not None, done.stderr
    found: dict[str, Any] = json.loads(html.unescape(title[1]))
    assert list(found) == pages
    return {page: said for page, said in found.items() if said[0] > said[1] or said[2]}


@pytest.mark.tier("full")
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_every_page_can_be_read_on_a_phone(site: Path, tmp_path: Path) -> None:
    """Nothing is wider than the screen but what can be scrolled by itself, as tables and code."""
    page = site / "docs" / "concepts.md"
    kept = page.read_text()
    page.write_text(f'{kept}\n<p style="width: 500px">wide</p>\n')
    assert build(zensical(), site).returncode == 0
    assert list(shown(site / "dist" / "site", tmp_path / "profile")) == ["concepts.html"]
    page.write_text(kept)
    assert_built(build(zensical(), site), site)
    assert shown(site / "dist" / "site", tmp_path / "profile") == {}


@pytest.mark.tier("full")
def test_a_row_that_no_builder_shows_as_one_is_found(site: Path) -> None:
    page = site / "docs" / "concepts.md"
    page.write_text(page.read_text() + "\n- an item\n| `one` | two |\n")
    assert build(zensical(), site).returncode == 0
    assert shown_as_text((site / "dist" / "site" / "concepts.html").read_text()) == ["|  | two |"]


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
