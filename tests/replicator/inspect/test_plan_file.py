"""What `plan` says of a file that isn't the one the flow's workers run."""

from __future__ import annotations

import json
from dataclasses import replace

from replicator.inspect.flow_plan import FlowPlan
from replicator.inspect.plan_file import file_findings, new_settings
from replicator.state.control_topic import Control
from replicator.state.generation import Kind
from replicator.state.own_file import own_file
from replicator.workers.settings import OwnFile
from tests.replicator.state.test_own_file import flow, opened

HERE = "id-of-west"


def said(control: Control, more: str = "", source_cluster: str = HERE) -> list[str]:
    return [found.message for found in file_findings(flow(more), control, source_cluster)]


def test_a_flow_that_never_ran_or_runs_this_file_has_nothing_to_say() -> None:
    for control in (Control(), opened(None), opened(own_file(flow(), HERE))):
        assert said(control) == []
        assert new_settings(flow(), control) == {}


def test_a_new_file_is_taken_and_what_it_changes_is_shown() -> None:
    control = opened(own_file(flow("commit: {interval_ms: 7}"), HERE))
    assert said(control, "lanes: 3") == []
    assert new_settings(flow("lanes: 3"), control) == {"commit.interval_ms": ("7", ""), "lanes": ("", "3")}


def test_a_former_file_is_not_taken() -> None:
    control = opened(own_file(flow("lanes: 3"), HERE), before=opened(own_file(flow(), HERE)))
    assert new_settings(flow(), control) == {}
    (message,) = said(control)
    assert "generation 2, which differ in lanes" in message
    assert "eos-replicate apply" in message


def test_what_a_worker_would_stand_by_for_is_said() -> None:
    own = own_file(flow(), HERE)
    newer = json.dumps({**json.loads(own.settings), "teleport": True})
    former = opened(own)
    cases = {
        "has the id another, the flow is copied from id-of-west": (former, "another"),
        "a backfill has it": (opened(None, kind=Kind.BACKFILL, before=former), HERE),
        "it was failed over (generation 2, by somebody, at 1970-01-01T00:00:00Z): nothing is copied until": (
            opened(None, kind=Kind.FROZEN, before=former),
            HERE,
        ),
        "doesn't know: teleport": (opened(OwnFile(hash="", settings=newer), before=former), HERE),
    }
    for text, (control, source_cluster) in cases.items():
        (message,) = said(control, source_cluster=source_cluster)
        assert message.startswith("run would stand by: "), message
        assert text in message
        assert new_settings(flow(), control) == {}
        plan = FlowPlan("orders", "west", "east", findings=file_findings(flow(), control, source_cluster))
        assert (plan.exit_code(), plan.ready()) == (0, False)
    assert said(opened(replace(own, source_cluster="")), source_cluster="another") == [], "an older version opened it"
