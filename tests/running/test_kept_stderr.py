"""What a process that aborts has written last can be read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ABORTS = """
import os

def test_it_ends_well():
    os.write(2, b"said before")

def test_it_aborts():
    os.write(2, b"*** what is asserted ***")
    os.abort()
"""


@pytest.mark.tier("default")
def test_the_last_words_of_a_process_that_aborts_are_kept(tmp_path: Path) -> None:
    (tmp_path / "test_aborts.py").write_text(ABORTS)
    kept = tmp_path / "kept"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.running.kept_stderr", "-n", "1", "test_aborts.py"]
    env = {**os.environ, "EOS_KEEP_STDERR": str(kept), "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, check=False, timeout=240)
    assert done.returncode == 1
    assert any(b"*** what is asserted ***" in file.read_bytes() for file in kept.iterdir())
