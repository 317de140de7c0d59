"""A flow that was failed over as a whole: jobs say so at once, and don't advise to take it from whoever keeps it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from replicator.config import Flow
from replicator.jobs import position_set, repair
from replicator.jobs.position_set import PositionSet, SetRequest
from replicator.model.errors import FlowFrozen
from replicator.state.claims import Claims
from replicator.state.generation import Kind
from replicator.state.own_file import own_file
from tests.replicator.state.test_own_file import flow, opened

FROZEN = opened(None, kind=Kind.FROZEN, before=opened(own_file(flow(), "id-of-west")))


class Asked:
    """Clients of a flow whose positions a failover keeps: nothing but the flow's own topics may be asked for."""

    def __init__(self) -> None:
        self.state = SimpleNamespace(control_if_any=lambda: FROZEN, claims_if_any=lambda: Claims({}, ()))
        self.plane = SimpleNamespace(connect=lambda: (SimpleNamespace(cluster_id="id-of-west"), None))


def sets_positions(of: Flow) -> None:
    config: Any = None
    PositionSet(of, config, SetRequest(wanted=(), by="ann", why="x"), structlog.get_logger()).plan()


def repairs(of: Flow) -> None:
    repair.check(of, take_over=True)


@pytest.mark.parametrize(("module", "job"), [(position_set, sets_positions), (repair, repairs)])
def test_what_it_waits_for_is_said(monkeypatch: pytest.MonkeyPatch, module: Any, job: Callable[[Flow], None]) -> None:
    monkeypatch.setattr(module, "JobClients", lambda of: nullcontext(Asked()))
    with pytest.raises(FlowFrozen) as refused:
        job(flow())
    assert str(refused.value) == (
        "flow orders was failed over (generation 2, by somebody, at 1970-01-01T00:00:00Z): nothing is copied "
        "until eos-replicate failover --undo --flow orders -c FILE"
    )
