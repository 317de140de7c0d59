"""Java is looked for where Spark's launcher looks, and what is wrong with it is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from replicator.model.errors import ConfigError
from replicator.spark import java


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "24-ea" 2025-03-18', 24),
        ("no such thing", None),
    ],
)
def test_the_version_is_read_from_what_java_says(said: str, version: int | None) -> None:
    assert java.major(said) == version


def fake(directory: Path, body: str) -> dict[str, str]:
    """An environment whose JAVA_HOME has a `java` that runs `body`."""
    program = directory / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return {"JAVA_HOME": str(directory), "PATH": "/nowhere"}


def test_a_java_that_fits(tmp_path: Path) -> None:
    assert java.check(fake(tmp_path, "echo 'openjdk version \"21.0.1\"' >&2")) == 21


def test_a_java_on_path(tmp_path: Path) -> None:
    fake(tmp_path, "echo 'openjdk version \"17\"' >&2")
    assert java.check({"PATH": str(tmp_path / "bin")}) == 17


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("echo 'openjdk version \"11.0.2\"' >&2", r"Java 17 or later, and .*/bin/java \(by JAVA_HOME\) is Java 11"),
        ("echo 'cannot allocate heap' >&2; exit 1", "does not tell its version: cannot allocate heap"),
    ],
)
def test_a_java_that_does_not_fit(tmp_path: Path, body: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        java.check(fake(tmp_path, body))


def test_no_java_at_all(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none on PATH and no JAVA_HOME; install a Java runtime 17"):
        java.check({"PATH": str(tmp_path)})
    with pytest.raises(ConfigError, match="has no bin/java"):
        java.check({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin"})
