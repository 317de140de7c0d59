"""Whatever `status` and the metrics can say of a partition, a test compares what it is in all that tell of it."""

from __future__ import annotations

from typing import get_args

from integration_tests import test_told_everywhere as everywhere
from integration_tests import test_told_of_states as states
from integration_tests.harness.told import IN_SYNC
from replicator.inspect.flow_status import State
from replicator.observe.view import Doing

EXPECTED = (
    IN_SYNC,
    *everywhere.EXPECTED.values(),
    *everywhere.DELETED.values(),
    *states.CONTRADICTED.values(),
    states.AWAY,
    *states.STANDING.values(),
    *states.BEGUN.values(),
)


def test_every_state_of_status_is_compared_with_what_the_others_tell() -> None:
    assert {each.state for each in EXPECTED} | set(states.LONG.values()) == set(get_args(State))


def test_all_that_a_partition_can_do_is_compared_with_what_status_tells() -> None:
    assert {each.doing for each in EXPECTED} == set(Doing)
