"""Requests over HTTP: who may ask what, and what is answered."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from wsgiref.util import setup_testing_defaults

import pytest

from replicator.flow.group_members import FlowWorkers, HeldLane, ShownWorker
from replicator.flow.restarts import Stage
from replicator.model.partition import Partition
from replicator.observe.conditions import FlowConditions
from replicator.observe.figures import PartitionFigures
from replicator.observe.metrics import Metrics
from replicator.observe.view import Doing, FlowView, PartitionView
from replicator.observe.web import LISTED_MAX, Web
from replicator.observe.worker_figures import ObservedWorker
from replicator.workers.lane_stages import LaneStage


def partition(number: int, doing: Doing, kind: str = "") -> PartitionView:
    return PartitionView(Partition("t", number), doing, kind, "", PartitionFigures(), None)


def flow(*partitions: PartitionView, stage: Stage = Stage.RUNNING) -> FlowView:
    return FlowView("f", "a", "b", stage, partitions, {})


READY = flow(partition(0, Doing.COPYING))


def get(
    path: str, flows: Sequence[FlowView] = (READY,), token: str = "", method: str = "GET", authorization: str = ""
) -> tuple[int, dict[str, str], bytes]:
    environ: dict[str, Any] = {"PATH_INFO": path, "REQUEST_METHOD": method, "HTTP_AUTHORIZATION": authorization}
    setup_testing_defaults(environ)
    answered: list[Any] = []
    web = Web(lambda: flows, Metrics(lambda: flows, "1", 10), lambda: b"<p>", dict, token)
    body = b"".join(web(environ, lambda status, headers, error=None: answered.extend((status, headers)) or bytes))  # type: ignore[func-returns-value]
    return int(answered[0].split()[0]), dict(answered[1]), body


def test_pages() -> None:
    assert get("/healthz")[::2] == (200, b'{"status": "ok"}\n')
    status, headers, body = get("/metrics")
    assert (status, headers["Content-Type"].partition(";")[0]) == (200, "text/plain")
    assert b'eos_flow_ready{flow="f"} 1\n' in body
    assert get("/nowhere")[0] == 404
    assert get("/metrics", method="POST")[0] == 405


def test_head_has_no_body() -> None:
    status, headers, body = get("/metrics", method="HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["Content-Length"]) > 0


def test_ready_only_if_every_flow_is() -> None:
    assert get("/readyz")[0] == 200
    status, _, body = get("/readyz", [READY, flow(stage=Stage.OVER)])
    assert status == 503
    assert not json.loads(body)["ready"]


def test_what_keeps_the_whole_flow_from_being_ready_is_named() -> None:
    for conditions, said in (
        (FlowConditions({"b": 7}), {"unreachable": ["b"]}),
        (FlowConditions({}, "by ann"), {"failed_over": "by ann"}),
        (FlowConditions(being_failed_over="by ann"), {"being_failed_over": "by ann"}),
    ):
        status, _, body = get("/readyz", [replace(READY, conditions=conditions)])
        assert status == 503
        found = json.loads(body)["flows"]["f"]
        assert found.items() >= said.items()
        assert {"unreachable", "failed_over", "being_failed_over"} & found.keys() == said.keys()
    assert get("/readyz/lanes", [replace(READY, conditions=FlowConditions({"b": 7}))])[0] == 200
    body = get("/readyz", [replace(READY, stage=Stage.ENDED, cause="no login")])[2]
    assert json.loads(body)["flows"]["f"] == {"ready": False, "stage": "ended", "cause": "no login"}


def test_clusters_that_do_not_answer_are_metrics() -> None:
    body = get("/metrics", [replace(READY, conditions=FlowConditions({"b": 7}))])[2]
    assert b'eos_flow_cluster_unreachable{flow="f",cluster="a"} 0\n' in body
    assert b'eos_flow_cluster_unreachable{flow="f",cluster="b"} 1\n' in body
    assert b'eos_flow_failed_over{flow="f"} 0\n' in body
    assert (
        b'eos_flow_failed_over{flow="f"} 1\n'
        in get("/metrics", [replace(READY, conditions=FlowConditions({}, "by ann"))])[2]
    )
    half = get("/metrics", [replace(READY, conditions=FlowConditions(being_failed_over="by ann"))])[2]
    assert b'eos_flow_failed_over{flow="f"} 0\n' in half, "other workers may still copy"


def test_what_keeps_a_flow_from_being_ready_is_named_within_bounds() -> None:
    stopped = [partition(number, Doing.STOPPED, "record_refused") for number in range(LISTED_MAX + 5)]
    said = json.loads(get("/readyz", [flow(*stopped, partition(999, Doing.COPYING))])[2])["flows"]["f"]
    assert said["not_copied"] == LISTED_MAX + 5
    assert said["partitions"] == LISTED_MAX + 6
    assert said["causes"]["t[0]"] == "record_refused"
    assert len(said["causes"]) == LISTED_MAX


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("authorization", "allowed"),
    [
        ("", False),
        ("Bearer s3cret", True),
        ("bearer s3cret", True),
        ("Bearer s3cre", False),
        ("Bearer", False),
        ("s3cret", False),
        (basic("me:s3cret"), True),
        (basic(":s3cret"), True),
        (basic("s3cret"), False),
        (basic("s3cret:"), False),
        ("Basic s3cret", False),
        ("Basic //8=", False),
        ("Bearer ßecret", False),
    ],
)
def test_the_token(authorization: str, allowed: bool) -> None:
    for path in ("/", "/flows", "/metrics", "/readyz", "/nowhere"):
        assert (get(path, token="s3cret", authorization=authorization)[0] != 401) == allowed
    assert get("/healthz", token="s3cret")[0] == 200


def test_a_worker_is_ready_once_it_runs_the_lanes_that_it_was_given() -> None:
    """Not before its first assignment, and whatever becomes of partitions; asked without a token."""
    stopped = partition(0, Doing.STOPPED, "record_refused")
    worker = ObservedWorker()
    seen = []

    def look() -> None:
        seen.append(get("/readyz/lanes", [replace(flow(stopped), worker=worker.figures)], token="secret")[0])

    look()
    worker.rebalanced()
    worker.stages({0: LaneStage.RUNNING, 1: LaneStage.STARTING}, assigned=True)
    look()
    worker.stages({0: LaneStage.RUNNING, 1: LaneStage.RUNNING, 2: LaneStage.OUTGOING}, assigned=True)
    worker.handed_over(0.5)
    look()
    worker.standing_by("a backfill has it")
    look()
    assert seen == [503, 503, 200, 503]
    assert get("/readyz/lanes", [flow(stopped)])[0] == 200, "nobody shares it: its lanes run"


def lanes_ready(worker: ObservedWorker) -> int:
    return get("/readyz/lanes", [replace(READY, worker=worker.figures)])[0]


def test_a_worker_that_has_lost_its_membership_is_not_ready() -> None:
    """Not while its lanes go on without it, and not once they have ended; but as soon as it has them again."""
    worker = ObservedWorker()
    worker.rebalanced()
    worker.stages({0: LaneStage.RUNNING}, assigned=True)
    assert lanes_ready(worker) == 200
    worker.stages({0: LaneStage.DETACHED}, assigned=False)
    assert lanes_ready(worker) == 503
    worker.stages({}, assigned=False)
    assert lanes_ready(worker) == 503
    worker.stages({0: LaneStage.RUNNING}, assigned=True)
    assert lanes_ready(worker) == 200


def test_a_worker_without_lanes_is_ready_while_other_members_have_them_all() -> None:
    worker = ObservedWorker()
    worker.rebalanced()
    worker.stages({}, assigned=True)
    assert lanes_ready(worker) == 503, "who has them isn't known"
    other = ShownWorker(host="other", pid=1, address="", lanes=(HeldLane(lane=0, since_ms=None),))
    worker.members(FlowWorkers(flow="f", generation=1, lanes=2, workers=(other,), unassigned=(1,)), 0)
    assert lanes_ready(worker) == 503, "nobody has lane 1"
    worker.members(FlowWorkers(flow="f", generation=1, lanes=1, workers=(other,), unassigned=()), 0)
    assert lanes_ready(worker) == 200
    worker.stages({}, assigned=False)
    assert lanes_ready(worker) == 503, "what was known of the group holds no more"


def test_metrics_of_a_worker() -> None:
    worker = ObservedWorker()
    worker.rebalanced()
    worker.stages({0: LaneStage.RUNNING, 2: LaneStage.OUTGOING}, assigned=True)
    worker.handed_over(0.5)
    body = get("/metrics", [replace(READY, worker=worker.figures)])[2].decode()
    for line in (
        'eos_lane_held{flow="f",lane="0"} 1',
        'eos_lane_held{flow="f",lane="2"} 0',
        'eos_lane_outgoing{flow="f",lane="2"} 1',
        'eos_flow_rebalances_total{flow="f"} 1',
        'eos_flow_handovers_total{flow="f"} 1',
        'eos_flow_handover_seconds_total{flow="f"} 0.5',
        'eos_flow_standing_by{flow="f"} 0',
    ):
        assert line in body.splitlines()
    assert "eos_lane_held{" not in get("/metrics")[2].decode(), "nobody shares it"
