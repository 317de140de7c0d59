"""The lists of pinned packages: hashed, without hosts, and the smaller ones parts of the whole one."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WHOLE = "constraints.txt"
PARTS = ("constraints-run.txt", "constraints-spark.txt")
PINNED = re.compile(r"^([a-z0-9-]+)==(\S+)(.*(?:\n .*)*)", re.MULTILINE)
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def pinned(name: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Package → version and hashes."""
    found = PINNED.findall((ROOT / name).read_text())
    return {package: (version, frozenset(HASH.findall(rest))) for package, version, rest in found}


def required(dependencies: list[str]) -> set[str]:
    """The names in a list of requirements."""
    return {re.split(r"[^A-Za-z0-9-]", each)[0].lower() for each in dependencies}


@pytest.mark.parametrize("name", [WHOLE, *PARTS])
def test_every_package_has_a_hash_and_no_host_is_named(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "://" not in text
    assert "index-url" not in text
    packages = pinned(name)
    assert len(packages) == len(re.findall(r"^\S+==", text, re.MULTILINE)), "each is understood"
    assert [package for package, (_, hashes) in packages.items() if not hashes] == []


@pytest.mark.parametrize("name", PARTS)
def test_a_smaller_list_has_the_versions_of_the_whole_one(name: str) -> None:
    whole = pinned(WHOLE)
    for package, (version, hashes) in pinned(name).items():
        assert whole[package][0] == version, package
        assert whole[package][1] & hashes, package


def test_each_list_has_what_it_is_for() -> None:
    run, spark, whole = (pinned(name).keys() for name in ("constraints-run.txt", "constraints-spark.txt", WHOLE))
    extras = PROJECT["optional-dependencies"]
    assert required(PROJECT["dependencies"]) <= run
    assert run | required(extras["spark"]) <= spark
    assert spark | required(extras["dev"]) <= whole
    assert not run & required(extras["spark"] + extras["dev"]), "the demo's environment stays small"


@pytest.mark.parametrize("name", [WHOLE, *PARTS])
def test_each_list_has_the_dependencies_of_what_is_in_it(name: str) -> None:
    """The demo's is installed without looking for any."""
    packages = pinned(name).keys()
    checked = 0
    for package in packages:
        try:
            needed = [Requirement(each) for each in metadata.requires(package) or ()]
        except metadata.PackageNotFoundError:  # one for another system
            continue
        here = [
            each.name.lower().replace("_", "-")
            for each in needed
            if each.marker is None or each.marker.evaluate({"extra": ""})
        ]
        assert set(here) <= packages, package
        checked += 1
    assert checked > len(packages) * 0.8
