"""docs/testing-with-the-broker.md: all its examples run, and every method it names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from embedded_broker.testing import Fault, FaultInjector, KafkaBroker

pytestmark = pytest.mark.tier("default")  # brokers in processes

pytest_plugins = ["pytester"]

DOCUMENT = (Path(__file__).parents[3] / "docs/testing-with-the-broker.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)


@pytest.mark.tier("full")
def test_every_example_runs(pytester: pytest.Pytester) -> None:
    tests = [block for block in BLOCKS if "def test_" in block]
    for number, block in enumerate(tests):
        pytester.makepyfile(**{f"test_example_{number}": block})
    assert len(tests) >= 4
    pytester.runpytest_subprocess("--strict-markers").assert_outcomes(
        passed=sum(block.count("def test_") for block in tests)
    )


@pytest.mark.parametrize("block", [block for block in BLOCKS if "def test_" not in block])
def test_every_script_runs(block: str) -> None:
    exec(compile(block, "example", "exec"), {"__name__": "example"})


def test_every_method_is_named() -> None:
    for kind in (KafkaBroker, Fault, FaultInjector):
        internal = {"add_fault", "release_fault", "remove_faults", "record_hit"}
        names = {name for name in vars(kind) if not name.startswith("_")} - internal
        assert not {name for name in names if f"{name}" not in DOCUMENT}, kind
