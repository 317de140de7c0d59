"""Each bug that is planted into a lane is found by tests of this directory."""

from __future__ import annotations

import pytest

from tests.replicator.lane.map_mutations import ALL_MUTATIONS
from tests.replicator.lane.mutations import Mutation


@pytest.mark.parametrize("planted", ALL_MUTATIONS, ids=lambda planted: planted.name)
def test_it_is_found(planted: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    for finder in planted.finders:
        finder()
    planted.plant(monkeypatch)
    for finder in planted.finders:
        with pytest.raises((AssertionError, LookupError, ValueError)):
            finder()
