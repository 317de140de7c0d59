"""Metrics and health of a running process: they say what its partitions do, and what was copied is what was counted."""

from __future__ import annotations

import base64
import socket
from pathlib import Path

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle, free_port
from integration_tests.harness.copying import Copying
from integration_tests.harness.observed import Observed
from integration_tests.harness.replicator import FlowFile, Replicator
from integration_tests.harness.two_topics import INCIDENT, TwoTopics, numbered

BAD_CONFIG = 2
COPYING, WAITING, STOPPED = 1.0, 2.0, 3.0
RUNNING, OVER = 1.0, 3.0


def observed(copying: Copying, **settings: str) -> Observed:
    """Have the flow's file say that its process listens, and ask it from then on."""
    address = f"127.0.0.1:{free_port()}"
    copying.file.listen(address, **settings)
    return Observed(address)


@pytest.mark.tier("full")
def test_what_is_copied_is_counted_and_what_is_not_is_lag(make_copying: MakeCopying, source: BrokerHandle) -> None:
    two = TwoTopics(make_copying(partitions=1))
    asked = observed(two.flow)
    worker = two.running(50)
    one, other = ({"flow": two.name, "topic": topic, "partition": "0"} for topic in (two.first, two.second))
    asked.wait("it is ready", lambda it: it.ready()[0])
    asked.wait("no lag", lambda it: it.value("eos_flow_lag_records", flow=two.name) == 0)
    for labels in (one, other):
        assert asked.value("eos_partition_records_total", **labels) == 50
        assert asked.value("eos_partition_position", **labels) == 50
        assert asked.value("eos_partition_state", **labels) == COPYING
    assert asked.value("eos_flow_records_total", flow=two.name) == 100
    assert asked.value("eos_flow_lag_seconds", flow=two.name) == 0
    lane = {"flow": two.name, "lane": "0"}
    assert (asked.value("eos_lane_transaction_seconds_count", **lane) or 0) >= 1
    assert asked.value("eos_lane_sessions_total", **lane) == 1

    worker.suspend()
    two.put(two.first, numbered("more", 7))
    worker.resume()
    asked.wait("the rest is copied", lambda it: it.value("eos_partition_records_total", **one) == 57)
    assert asked.value("eos_partition_records_total", **other) == 50

    open_ = clients.producer(two.source, transactional_id=f"{two.name}.open")
    open_.init_transactions()
    open_.begin_transaction()
    clients.put(open_, two.second, b"not committed")
    asked.wait("it is held back", lambda it: it.value("eos_partition_held_back_records", **other) == 1)
    assert asked.value("eos_partition_lag_records", **other) == 0
    open_.abort_transaction()

    source.kill()
    asked.wait("partitions wait", lambda it: it.value("eos_partition_state", **one) == WAITING)
    ready, flows = asked.ready()
    assert not ready
    assert flows[two.name]["causes"] == dict.fromkeys((f"{two.first}[0]", f"{two.second}[0]"), "no_answer")
    asked.wait("the lag is unknown", lambda it: it.value("eos_flow_lag_records", flow=two.name) is None)
    source.restart()
    asked.wait("it is ready again", lambda it: it.ready()[0])
    assert asked.value("eos_partition_records_total", **one) == 57, "a counter went back"
    assert worker.stop() == 0, worker.tail()


def test_a_stopped_partition_names_its_incident(make_copying: MakeCopying) -> None:
    two = TwoTopics(make_copying(partitions=1))
    asked = observed(two.flow)
    clients.create_topic(two.target, two.copy_of(two.first), 1, {"cleanup.policy": "compact"})
    worker = two.flow.running()
    writer = clients.producer(two.source)
    clients.put(writer, two.first, b"before", key=b"key")
    clients.put(writer, two.first, b"refused", key=None)
    worker.wait_event("incident", name="record_refused")
    two.assert_second_goes_on()
    stopped, other = ({"flow": two.name, "topic": topic, "partition": "0"} for topic in (two.first, two.second))
    asked.wait("it is stopped", lambda it: it.value("eos_partition_state", **stopped) == STOPPED)
    assert asked.value("eos_partition_cause", **stopped, kind="record_refused") == 1
    assert asked.value("eos_partition_state", **other) == COPYING
    assert asked.value("eos_flow_partitions", flow=two.name, state="stopped") == 1
    asked.wait("one record is left", lambda it: it.value("eos_partition_lag_records", **stopped) == 1)
    first = asked.value("eos_partition_lag_seconds", **stopped)
    assert first is not None
    asked.wait("it gets older", lambda it: (it.value("eos_partition_lag_seconds", **stopped) or 0) > first + 0.1)
    ready, flows = asked.ready()
    assert not ready
    assert flows[two.name]["causes"] == {f"{two.first}[0]": "record_refused"}
    _, told = two.flow.asked("top")
    assert (told["partitions"], told["lag_records"], told["ready"]) == ({"stopped": 1, "copying": 1}, 1, False)
    assert [(each["topic"], each["kind"]) for each in told["not_copied"]] == [(two.first, "record_refused")]
    status, page = asked.get("/")
    assert status == 200
    assert all(said in page for said in (two.first, two.second, "record_refused", "1 partition"))
    aborts = {key: value for key, value in asked.samples().items() if key[0] == "eos_lane_aborts_total"}
    assert sum(aborts.values()) >= 1
    assert worker.stop() == INCIDENT, worker.tail()


@pytest.mark.tier("full")
def test_what_a_target_does_not_take_is_seen_in_the_queue(make_copying: MakeCopying, target: BrokerHandle) -> None:
    copying = make_copying(partitions=1)
    asked = observed(copying)
    worker = copying.running()
    lane = {"flow": copying.name, "lane": "0"}
    asked.wait("nothing is to be written", lambda it: it.value("eos_lane_queued_bytes", **lane) == 0)
    target.suspend()
    copying.load.plain(500)
    asked.wait("records wait", lambda it: (it.value("eos_lane_queued_bytes", **lane) or 0) > 0)
    target.resume()
    copying.finish(worker)


@pytest.mark.tier("full")
def test_a_flow_that_was_taken_over_is_told_while_another_one_runs(make_copying: MakeCopying, tmp_path: Path) -> None:
    copying = make_copying(partitions=1)
    (tmp_path / "alone").mkdir()
    alone = FlowFile(tmp_path / "alone", copying.name, copying.source, copying.target, topics=[copying.topic])
    other = FlowFile(
        tmp_path,
        f"{copying.name}-other",
        copying.source,
        copying.target,
        topics=[copying.topic],
        rename="other.{topic}",
    )
    copying.file.include(other)
    asked = observed(copying)
    copying.running()
    asked.wait("both run", lambda it: it.ready()[0])
    successor = Replicator(alone)
    try:
        asked.wait("it is over", lambda it: it.value("eos_flow_stage", flow=copying.name) == OVER)
        assert asked.value("eos_flow_stage", flow=other.flow) == RUNNING
        ready, flows = asked.ready()
        assert not ready
        assert "has taken over" in flows[copying.name].pop("cause")
        assert flows[copying.name] == {"ready": False, "stage": "over"}
        assert flows[other.flow]["ready"]
        assert asked.get("/healthz")[0] == 200
    finally:
        successor.close()


def test_who_asks_must_know_the_token(make_copying: MakeCopying, tmp_path: Path) -> None:
    copying = make_copying(partitions=1)
    (tmp_path / "token").write_text("s3cret\n")
    asked = observed(copying, token=f"file:{tmp_path / 'token'}")
    copying.running().wait_event("metrics_served")
    for path in ("/", "/flows", "/metrics", "/readyz"):
        assert asked.get(path)[0] == 401
        assert asked.get(path, {"Authorization": "Bearer wrong"})[0] == 401
        assert asked.get(path, {"Authorization": "Bearer s3cret"})[0] == 200
        basic = base64.b64encode(b"anybody:s3cret").decode()
        assert asked.get(path, {"Authorization": f"Basic {basic}"})[0] == 200
    assert asked.get("/healthz")[0] == 200


def test_a_port_that_is_taken_is_said_before_anything_runs(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        copying.file.listen(f"127.0.0.1:{taken.getsockname()[1]}")
        worker = Replicator(copying.file)
        try:
            assert worker.wait_exit() == BAD_CONFIG
            assert "metrics.listen: cannot listen on 127.0.0.1" in "\n".join(worker.other_lines)
            assert not worker.events
        finally:
            worker.close()


def test_strange_requests_harm_nobody(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=1)
    asked = observed(copying)
    worker = copying.running()
    worker.wait_event("metrics_served")
    for request in (b"", b"GET /metrics", b"\x16\x03\x01\x02", b"POST /metrics HTTP/1.1\r\n\r\n"):
        with socket.create_connection(asked.address) as stranger:
            stranger.sendall(request)
            assert asked.get("/healthz")[0] == 200
        assert asked.get("/metrics")[0] == 200
    assert worker.stop() == 0, worker.tail()
