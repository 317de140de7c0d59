"""Fixtures for the commands."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a Java that Spark takes: commands look for it before they do what needs none. It runs nothing."""
    executable = tmp_path / "java17" / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    executable.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(executable.parent.parent))
