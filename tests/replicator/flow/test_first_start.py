"""Invariant 2: the control topic is made only for a flow that has neither a claim nor a position."""

from __future__ import annotations

import pytest

from replicator.flow.first_start import is_first_start
from replicator.model.errors import Incident
from replicator.state.control_topic import Control
from replicator.state.generation import Generation, LaneAssignment, Phase
from tests.replicator.flow.fakes import opened

PREPARING = Control().apply(Control().prepare(LaneAssignment(1), {}, 1))
CLOSED = Control({1: Generation(1, Phase.CLOSED, 1)})


@pytest.mark.parametrize("claims", [False, True])
@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize("control", [opened(), PREPARING])
def test_a_flow_with_a_generation_has_run(claims: bool, positions: bool, control: Control) -> None:
    assert not is_first_start("f", has_claims=claims, has_positions=positions, control=control)


@pytest.mark.parametrize("control", [None, Control()])
def test_a_flow_with_nothing_may_be_opened(control: Control | None) -> None:
    assert is_first_start("f", has_claims=False, has_positions=False, control=control)


@pytest.mark.parametrize(("claims", "positions"), [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("control", [None, Control(), CLOSED])
def test_a_flow_that_has_run_never_gets_a_new_control_topic(
    claims: bool, positions: bool, control: Control | None
) -> None:
    with pytest.raises(Incident, match="control_topic_lost") as caught:
        is_first_start("f", has_claims=claims, has_positions=positions, control=control)
    assert caught.value.topic == "__eos.f.control"
