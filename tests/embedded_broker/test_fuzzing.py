"""A short run of the fuzzer with fixed choices; CONTRIBUTING.md says how to make a long one."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from tests.embedded_broker.fuzzing import fuzz

EXAMPLES = 1_500
GROWTH_KIB_MAX = 100 * 1024


@pytest.mark.parametrize("authorizer", [False, True])
def test_mutated_requests_break_nothing(tmp_path: Path, authorizer: bool) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    fuzz(tmp_path, EXAMPLES, derandomize=True, authorizer=authorizer)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GROWTH_KIB_MAX
