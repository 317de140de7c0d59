"""Environments as an operator installs them: the wheel of this tree and what it requires, and nothing else.

Nothing is downloaded. The files of the requirements are those of the environment that runs the tests, as links where
the disk allows; the tree itself is installed from a wheel, so that an environment works where there is no checkout.
"""

from __future__ import annotations

import compileall
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Mapping
from importlib import metadata
from importlib.util import cache_from_source
from pathlib import Path

from cli import __version__

ROOT = Path(__file__).parents[2]
PACKAGES = ("replicator", "embedded_broker", "kafka_records", "cli")
VERSION = "SETUPTOOLS_SCM_PRETEND_VERSION"
"""Tells the build a version where there is no repository."""
BUILT_S_MAX = 60
PYTHON = f"python{sys.version_info[0]}.{sys.version_info[1]}"
"""The directory of an environment's packages is called after it."""
_PINNED = re.compile(r"^([a-z0-9-]+)==", re.MULTILINE)


def wheel(directory: Path, tree: Path | None = None) -> Path:
    """Built from a copy of this tree, or in another one, by the backend that pyproject.toml names, which writes the
    version into a file of it. Processes of other tests run from this tree, and tell the version that stands there: it
    stays what it is, and the wheel has the same, also where files have changed since."""
    if tree is None:
        with tempfile.TemporaryDirectory() as copy:
            return _built(directory, copied(Path(copy)), {VERSION: __version__})
    return _built(directory, tree, {})


def _built(directory: Path, tree: Path, more: Mapping[str, str]) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(command, cwd=tree, env={**os.environ, **more}, check=True, capture_output=True, timeout=BUILT_S_MAX)
    (built,) = directory.glob("*.whl")
    return built


def copied(tree: Path, *more: str) -> Path:
    """Copy to `tree` what a wheel is made of, and `more` files; that directory. It has no repository, nor the version
    of a former build: the version must be told."""
    ignored = shutil.ignore_patterns("_version.py", "__pycache__")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tree / package, ignore=ignored, copy_function=shutil.copyfile)
    for name in ("pyproject.toml", "README.md", "LICENSE", *more):
        shutil.copyfile(ROOT / name, tree / name)
    return tree


def pinned(constraints: str) -> list[str]:
    """Names of the packages in one of the lists `constraints*.txt`."""
    return _PINNED.findall((ROOT / constraints).read_text())


def install(directory: Path, built: Path, constraints: str) -> None:
    """Make an environment that may be mounted anywhere where the same Python is under the same path.

    Args:
        directory: which doesn't exist yet.
        built: see `wheel`.
        constraints: the list of the packages that it has besides.
    """
    paths = {"base": str(directory), "platbase": str(directory)}
    site = Path(sysconfig.get_path("purelib", "venv", vars=paths))
    programs = Path(sysconfig.get_path("scripts", "venv", vars=paths))
    for made in (site, programs):
        made.mkdir(parents=True)
    base = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
    (directory / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n")
    (programs / "python").symlink_to(base)
    for name in pinned(constraints):
        _link(name, site)
    with zipfile.ZipFile(built) as archive:
        archive.extractall(site)
        own = {name.split("/")[0] for name in archive.namelist()}
    for name in own:
        compileall.compile_dir(site / name, quiet=2)


def make_older(directory: Path, version: str, without: str) -> None:
    """Make an environment look like one of an older version, which had no directory `without` yet."""
    site = directory / "lib" / PYTHON / "site-packages"
    (about,) = site.glob("eos_replicate-*.dist-info/METADATA")
    about.write_text(re.sub(r"^Version: .*$", f"Version: {version}", about.read_text(), count=1, flags=re.MULTILINE))
    shutil.rmtree(site / without)


def _link(name: str, site: Path) -> None:
    """The files of one package, with the bytecode that there is for them."""
    files = metadata.distribution(name).files
    assert files, name
    for file in files:
        path, target = (os.path.normpath(place) for place in (file.locate(), site / file))
        _copy(path, target)
        if path.endswith(".py") and os.path.exists(cache_from_source(path)):
            _copy(cache_from_source(path), cache_from_source(target))


def _copy(path: str, target: str) -> None:
    if os.path.lexists(target):
        return  # bytecode may be listed as a file of the package
    os.makedirs(os.path.dirname(target), exist_ok=True)
    try:
        os.link(path, target)
    except OSError:  # another file system
        shutil.copy2(path, target)
