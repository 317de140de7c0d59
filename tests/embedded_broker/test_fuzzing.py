"""A short run of the fuzzer with fixed choices, or a long one with new choices each time; see CONTRIBUTING.md."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from tests.budget import LONG, budget
from tests.embedded_broker.fuzzing import fuzz

pytestmark = pytest.mark.tier("extended")  # thousands of requests

EXAMPLES = budget(1_500, 20_000)
GROWTH_KIB_MAX = 100 * 1024


@pytest.mark.parametrize("authorizer", [pytest.param(False, marks=pytest.mark.tier("full")), True])
def test_mutated_requests_break_nothing(tmp_path: Path, authorizer: bool) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    fuzz(tmp_path, EXAMPLES, derandomize=not LONG, authorizer=authorizer)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GROWTH_KIB_MAX
