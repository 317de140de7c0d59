"""What waits for the clusters of a flow before it is opened, on real sockets: for how long, and what is said of it."""

from __future__ import annotations

import itertools
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, cast

import pytest
import structlog
from structlog.testing import capture_logs

from replicator.config import Config, Flow, load_text
from replicator.flow import connecting
from replicator.flow.connecting import Connecting
from replicator.flow.parts import Parts
from replicator.flow.shared_flow import SharedFlow
from replicator.flow.topics import ControlPlane
from replicator.flow.worker import FlowWorker
from replicator.kafka import topic_questions
from replicator.model.errors import Unreachable
from replicator.observe.conditions import ObservedConditions
from tests.replicator.flow.fakes import FakePlane


@pytest.fixture
def refusing() -> Iterator[str]:
    """An address that refuses connections."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))  # and doesn't listen
        yield f"127.0.0.1:{made.getsockname()[1]}"


def config(address: str, patience_ms: int) -> Config:
    text = f"""\
clusters:
  a: {{properties: {{bootstrap.servers: "{address}"}}}}
  b: {{properties: {{bootstrap.servers: "{address}"}}}}
flows:
  f: {{source: a, target: b, topics: [t]}}
"""
    loaded = load_text(text, env={})
    flow = loaded.flows["f"]
    shorter = flow.model_copy(update={"limits": flow.limits.model_copy(update={"connect_timeout_ms": patience_ms})})
    return loaded.model_copy(update={"flows": {"f": shorter}})


def flow(address: str, patience_ms: int) -> Flow:
    return config(address, patience_ms).flows["f"]


def test_a_stop_ends_the_wait_for_clusters_that_do_not_answer(refusing: str) -> None:
    asked = threading.Event()
    stopping = threading.Timer(0.1, asked.set)
    stopping.start()
    with ControlPlane(flow(refusing, 3_600_000)) as plane, pytest.raises(Unreachable, match="was asked to stop"):
        Connecting(asked, structlog.get_logger()).connect(plane)
    stopping.join()


@pytest.mark.parametrize("worker", [FlowWorker, SharedFlow])
def test_a_target_that_does_not_answer_is_not_asked_a_second_time_for_a_failover(
    refusing: str, worker: Callable[..., FlowWorker | SharedFlow]
) -> None:
    whole = config(refusing, 200)
    asked: list[float] = []

    def frozen(*_: object) -> bool:
        asked.append(time.monotonic())
        return False

    parts = Parts(ControlPlane, cast(Any, queue.SimpleQueue), frozen=frozen)
    with pytest.raises(Unreachable, match="did not answer within"):
        worker(whole.flows["f"], whole, parts, structlog.get_logger()).run()
    assert asked == []


def test_a_silent_cluster_is_told_once_for_all_attempts_and_again_after_a_failover_was_undone(
    refusing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "TOLD_S", 0.0)
    monkeypatch.setattr(topic_questions, "SLICE_S", 0.01)
    made = Connecting(threading.Event(), structlog.get_logger(), told_before=True)

    def told() -> list[tuple[str, str]]:
        with ControlPlane(flow(refusing, 60)) as plane, capture_logs() as logs, pytest.raises(Unreachable):
            made.connect(plane)
        return sorted((it["log_level"], it["cluster"]) for it in logs if it["event"] == "unreachable")

    assert told() == [("debug", "a"), ("debug", "b")], "why an earlier worker has ended is known"
    assert told() == []
    made.tell_again()
    assert told() == [("error", "a"), ("error", "b")]
    made.leave_to_watch()
    made.tell_again()
    assert told() == [("debug", "a"), ("debug", "b")], "who watches them tells it"


def test_a_worker_that_comes_after_tells_once_that_a_cluster_answers_again_with_the_whole_time(
    refusing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flow has ended, and its process has started it again."""
    monkeypatch.setattr(connecting, "TOLD_S", 0.0)
    monkeypatch.setattr(topic_questions, "SLICE_S", 0.01)
    parts, whole = Parts(ControlPlane, cast(Any, queue.SimpleQueue)), config(refusing, 60)
    told: dict[str, float] = {}

    def lines(told_before: bool, made: type[FlowWorker] | type[SharedFlow]) -> list[tuple[str, str, str]]:
        worker = made(whole.flows["f"], whole, parts, structlog.get_logger(), told_before=told_before, told=told)
        with capture_logs() as logs, pytest.raises(Unreachable):
            worker.run()
        return sorted((it["event"], it["log_level"], it["cluster"]) for it in logs if "unreachable_s" in it)

    assert lines(False, FlowWorker) == [("unreachable", "error", "a"), ("unreachable", "error", "b")]
    assert lines(True, SharedFlow) == [("unreachable", "debug", "a"), ("unreachable", "debug", "b")]
    told["a"] -= 100
    for expected in ([("a", "warning", 100), ("b", "warning", 0)], []):
        after = Connecting(threading.Event(), structlog.get_logger(), told_before=True, told=told)
        with capture_logs() as logs, closing(FakePlane(whole.flows["f"])) as answers:
            after.connect(cast(ControlPlane, answers))
        found = [(it["cluster"], it["log_level"], it["unreachable_s"]) for it in logs if it["event"] == "recovered"]
        assert sorted(found) == expected


def test_who_watches_the_clusters_once_lanes_run_goes_on_with_what_was_told(refusing: str) -> None:
    """Also between two generations of a shared flow: then it is the one to say that a cluster answers."""
    whole, told = config(refusing, 60), {"a": time.monotonic() - 100}
    made = Connecting(threading.Event(), structlog.get_logger(), told=told)
    assert made.told is told
    made.leave_to_watch()
    with capture_logs() as logs, closing(FakePlane(whole.flows["f"])) as answers:
        made.connect(cast(ControlPlane, answers))
    assert (logs, told.keys()) == ([], {"a"})


def test_who_asks_the_process_hears_which_cluster_keeps_it_from_starting_and_since_when(
    refusing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "TOLD_S", 0.0)
    monkeypatch.setattr(topic_questions, "SLICE_S", 0.01)
    now_ms, asked = itertools.count(10_000, 1_000), threading.Event()
    conditions = ObservedConditions(lambda: next(now_ms))
    conditions.cluster_unreachable("of another file", 1.0)

    def connect(plane: ControlPlane) -> None:
        """By a worker of its own, as after a flow has ended."""
        with plane:
            Connecting(asked, structlog.get_logger(), conditions).connect(plane)

    of = flow(refusing, 60)
    with pytest.raises(Unreachable):
        connect(ControlPlane(of))
    first = conditions.now().unreachable_ms
    assert first.keys() == {"a", "b"}, "also between two attempts"
    with pytest.raises(Unreachable):
        connect(ControlPlane(of))
    assert conditions.now().unreachable_ms == first, "since the first attempt"
    with closing(FakePlane(of)) as answers:
        Connecting(asked, structlog.get_logger(), conditions).connect(cast(ControlPlane, answers))
    assert not conditions.now()
    with pytest.raises(Unreachable):
        connect(ControlPlane(of))
    assert conditions.now()
    asked.set()
    with pytest.raises(Unreachable):
        connect(ControlPlane(of))
    assert not conditions.now(), "nobody asks any more"


def test_a_token_command_that_has_no_token_yet_is_waited_for_as_a_cluster_is(refusing: str) -> None:
    """A client of librdkafka, which can't be made without a token, isn't needed to find out whether a cluster
    answers."""
    wanted, told = flow(refusing, 1_500), list[str]()
    clusters = {
        side: getattr(wanted, side).model_copy(update={"token_command": ("false",)}) for side in ("source", "target")
    }
    began_s = time.monotonic()
    with (
        ControlPlane(wanted.model_copy(update=clusters)) as plane,
        pytest.raises(Unreachable, match=r"did not answer within 1\.5 s"),
    ):
        plane.connect(lambda cluster, why, _: told.append(cluster.name))
    assert time.monotonic() - began_s >= 1.5
    assert set(told) == {"a", "b"}
