"""What is loaded when a broker starts."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

PROGRAM = """
import sys
from cli.quick_imports import quick_imports
with quick_imports():
    import embedded_broker.broker
print("hypothesis" in sys.modules)
import hypothesis
print(hypothesis.__name__)
"""


@pytest.mark.tier("default")
def test_a_package_for_tests_is_left_out_and_can_be_imported_later() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "hypothesis"]


@pytest.mark.tier("default")
def test_how_packages_are_described_is_left_out_and_can_be_imported_later() -> None:
    program = """
import sys
from cli.quick_imports import quick_imports
with quick_imports():
    import embedded_broker.broker
import crc32c
print(crc32c.crc32c(b"123456789") == 0xE3069283, {"importlib.metadata", "email", "zipfile"} & {*sys.modules})
from importlib import metadata
print(metadata.version("pytest") > "")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "set()", "True"]


@pytest.mark.tier("default")
def test_the_daemon_leaves_it_out_too() -> None:
    program = """
import sys
from cli.main import invoke
print(invoke(["run", "-c", "/nonexistent"]), "kio" in sys.modules, "hypothesis" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "True", "False"]


def test_a_process_that_has_it_keeps_it_and_its_collector() -> None:
    import hypothesis

    from cli.quick_imports import quick_imports

    with quick_imports():
        assert not gc.isenabled()
        assert sys.modules["hypothesis"] is hypothesis
    assert gc.isenabled()
    assert sys.modules["hypothesis"] is hypothesis
