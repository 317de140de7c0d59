"""Heartbeats through a flow that runs: shown by metrics, `top` and `status`, and compared like all else."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from integration_tests.conftest import MakeCopying, Pair
from integration_tests.harness import clients
from integration_tests.harness.broker import free_port
from integration_tests.harness.copying import ASKED_S_MAX, Copying
from integration_tests.harness.observed import Observed
from integration_tests.harness.processes import wait_until

pytestmark = pytest.mark.tier("full")


def asked(copying: Copying, *words: str) -> tuple[int, dict[str, Any], str]:
    """Exit code of a command, its JSON, if it has any, and what it says on stderr."""
    command = [sys.executable, "-m", "cli.main", *words, "-c", str(copying.file.path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=ASKED_S_MAX)
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def test_latency_is_measured_from_the_source_to_a_reader_of_the_target(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=1, heartbeat="200ms", new_topics="ignore", rename="{flow}.copied")
    topic, copy = f"eos-heartbeat.{copying.name}", f"eos-heartbeat.{copying.name}.copy"
    port = free_port()
    copying.file.listen(f"127.0.0.1:{port}")
    code, planned, said = asked(copying, "plan")
    assert (code, [it["name"] for it in planned["flows"][0]["at_source"]]) == (0, [topic]), said
    assert topic not in clients.topics(copying.source)
    worker = copying.running()
    seen = Observed(f"127.0.0.1:{port}")
    seen.wait(
        "a heartbeat has arrived", lambda it: it.value("eos_flow_end_to_end_seconds", flow=copying.name) is not None
    )
    took_s = seen.value("eos_flow_end_to_end_seconds", flow=copying.name)
    assert took_s is not None
    assert 0 < took_s < 30
    first = seen.value("eos_flow_heartbeat_timestamp_seconds", flow=copying.name)
    assert first is not None
    assert abs(time.time() - first) < 60
    seen.wait(
        "another one has",
        lambda it: (it.value("eos_flow_heartbeat_timestamp_seconds", flow=copying.name) or 0) > first,
    )
    (status,) = asked(copying, "status")[1]["flows"]
    assert status["heartbeat_ms"] >= first * 1000 - 1
    rows = {row["source_topic"]: row["target_topic"] for row in status["partitions"]}
    assert rows == {copying.topic: f"{copying.name}.copied", topic: copy}
    assert asked(copying, "top")[1]["flows"][0]["end_to_end_s"] > 0
    clients.put(clients.producer(copying.source), copying.topic, b"one", key=b"k")
    clients.wait_value(copying.target, f"{copying.name}.copied", 0, b"one")
    assert worker.stop() == 0, worker.tail()
    assert worker.seen("heartbeats_failed") == []
    configs = clients.topic_configs(copying.source, topic)
    assert (configs["retention.ms"], configs["cleanup.policy"]) == ("86400000", "delete")
    code, found, said = asked(copying, "reconcile", "--local")
    assert (code, found["verdict"]) == (0, "agrees"), said
    assert {topic in str(one["source"]) for one in found["partitions"]} == {True, False}

    copying.file.write(heartbeat=0)
    worker = copying.running()
    end = clients.stable_end(copying.source, topic)
    clients.put(clients.producer(copying.source), copying.topic, b"two", key=b"k")
    clients.wait_value(copying.target, f"{copying.name}.copied", 0, b"two")
    assert clients.stable_end(copying.source, topic) == end, "none is written any more"
    assert worker.stop() == 0, worker.tail()


def test_flows_in_both_directions_copy_no_heartbeats_of_each_other(
    brokers: Pair, make_copying: MakeCopying, tmp_path: Path
) -> None:
    there = make_copying(partitions=1, heartbeat="200ms")
    back = Copying(brokers.target, brokers.source, tmp_path, partitions=1, heartbeat="200ms")
    try:
        for flow in (there, back):
            flow.file.write(topics=["^.*heartbeat.*", flow.topic], rename="{source}.{topic}")
        workers = [flow.running() for flow in (there, back)]
        for flow in (there, back):
            copy = f"eos-heartbeat.{flow.name}.copy"
            wait_until(lambda flow=flow, copy=copy: copy in clients.topics(flow.target), copy, str)  # type: ignore[misc]
        time_up = time.monotonic() + 4  # some discoveries, each a second
        while time.monotonic() < time_up:
            for flow in (there, back):
                clients.put(clients.producer(flow.source), flow.topic, b"on", key=b"k")
        mine = (there.name, back.name)
        beats = {
            name
            for cluster in (there.source, there.target)
            for name in clients.topics(cluster)
            if "heartbeat" in name and any(one in name for one in mine)
        }
        assert beats == {f"eos-heartbeat.{name}{end}" for name in mine for end in ("", ".copy")}
        for worker in workers:
            assert worker.seen("incident") == []
            assert worker.stop() == 0, worker.tail()
    finally:
        back.close()
