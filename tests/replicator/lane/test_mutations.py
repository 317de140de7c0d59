"""Each bug that is planted into a lane is found by tests of this directory."""

from __future__ import annotations

import pytest

from tests.replicator.lane import decision_mutations, map_mutations
from tests.replicator.lane.mutations import MUTATIONS, Mutation

pytestmark = pytest.mark.tier("extended")

assert decision_mutations.ALL_MUTATIONS is map_mutations.ALL_MUTATIONS  # both have put theirs on the list


@pytest.mark.parametrize("planted", MUTATIONS, ids=lambda planted: planted.name)
def test_it_is_found(planted: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    planted.assert_found(monkeypatch, AssertionError)
