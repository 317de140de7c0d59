"""Each bug that breaks an invariant is found by the tests of `invariant_mutations`."""

from __future__ import annotations

import pytest

from tests.replicator.lane.invariant_mutations import INVARIANT_MUTATIONS
from tests.replicator.lane.mutations import Mutation


@pytest.mark.parametrize("planted", INVARIANT_MUTATIONS, ids=lambda planted: planted.name)
def test_it_is_found(planted: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    planted.assert_found(monkeypatch, (AssertionError, pytest.fail.Exception))
