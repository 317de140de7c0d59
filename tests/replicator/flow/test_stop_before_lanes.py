"""A flow that is asked to stop before its lanes run ends without an error, whatever the stop cuts short."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest
import structlog

from replicator.config import Config, Flow, load_text
from replicator.flow.frozen import while_frozen
from replicator.flow.parts import NoConditions, Parts
from replicator.flow.shared_flow import SharedFlow
from replicator.flow.topics import Answers, ControlPlane, Waits
from replicator.flow.worker import FlowWorker
from replicator.kafka.cluster_info import ClusterInfo
from replicator.model.errors import Retriable, Unreachable
from tests.replicator.flow.fakes import FakePlane, run_before, topic

WAIT_S = 10.0
NOWHERE = "127.0.0.1:9"
Worker = FlowWorker | SharedFlow
BOTH = pytest.mark.parametrize("worker", [FlowWorker, SharedFlow])


def config() -> Config:
    return load_text(
        f"""\
clusters:
  a: {{properties: {{bootstrap.servers: "{NOWHERE}"}}}}
  b: {{properties: {{bootstrap.servers: "{NOWHERE}"}}}}
flows:
  f: {{source: a, target: b, topics: [t1]}}
""",
        env={},
    )


class SourceAway(FakePlane):
    """The target answers, and the source doesn't."""

    def connect(
        self,
        waits: Waits = lambda cluster, why, target_answers: None,
        answers: Answers = lambda cluster: None,
    ) -> tuple[ClusterInfo, ClusterInfo]:
        answers(self.flow.target)
        raise Unreachable("the source is away")


def outcome(worker: Callable[..., Worker], parts: Parts, begun: threading.Event) -> int | BaseException:
    """How a worker ends that is asked to stop once that is set."""
    whole, ended = config(), queue.SimpleQueue[int | BaseException]()
    made = worker(whole.flows["f"], whole, parts, structlog.get_logger())

    def run() -> None:
        try:
            ended.put(made.run())
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            ended.put(error)

    threading.Thread(target=run, daemon=True).start()
    assert begun.wait(WAIT_S)
    made.stop()
    return ended.get(timeout=WAIT_S)


@BOTH
def test_while_the_target_is_asked_whether_it_was_failed_over(worker: Callable[..., Worker]) -> None:
    """It answered a moment ago, and doesn't any more."""
    begun = threading.Event()

    def frozen(
        flow: Flow, asked: threading.Event, log: structlog.stdlib.BoundLogger, found: Callable[[], None]
    ) -> bool:
        begun.set()
        return while_frozen(flow, asked, log, found, NoConditions())

    parts = Parts(lambda flow: cast(ControlPlane, SourceAway(flow)), cast(Any, None), frozen=frozen)
    assert outcome(worker, parts, begun) == 0


@BOTH
def test_while_a_step_of_the_setup_is_tried_again(worker: Callable[..., Worker]) -> None:
    begun = threading.Event()

    class NoLeaders(FakePlane):
        def listed_source(self, *_: Any, **__: Any) -> Any:
            begun.set()
            raise Retriable("no leader yet")

    def plane(flow: Flow) -> ControlPlane:
        return cast(ControlPlane, run_before(NoLeaders(flow, {"t1": topic("t1")})))

    assert outcome(worker, Parts(plane, cast(Any, None)), begun) == 0
