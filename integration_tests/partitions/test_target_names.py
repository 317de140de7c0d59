"""A topic whose target can't be created under its name stops alone, at the first start too."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from integration_tests.harness import clients
from integration_tests.harness.copying import Copying
from integration_tests.harness.two_topics import TwoTopics, numbered
from integration_tests.partitions.conftest import MakeTwoTopics

NAME_MAX = 249
FOUND_S = 120.0


def plan(copying: Copying) -> tuple[int, list[str]]:
    """The exit code of `plan`, and what its errors say."""
    command = [sys.executable, "-m", "cli.main", "plan", "-c", str(copying.file.path), "--json"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    findings = [found for flow in json.loads(shown.stdout)["flows"] for found in flow["findings"]]
    return shown.returncode, [found["message"] for found in findings if found["severity"] == "error"]


def too_long(two: TwoTopics) -> tuple[str, str]:
    """A source topic whose copy would have one character too many; the incident that it makes."""
    return two.name.ljust(NAME_MAX + 1 - len(".copy"), "x"), "target_topic_name_invalid"


def colliding(two: TwoTopics) -> tuple[str, str]:
    """A source topic whose copy would differ from another one by `.` and `_` only, which Kafka refuses to create."""
    name = f"{two.name}.third"
    clients.create_topic(two.target, f"{two.name}.third_copy")
    return name, "refused_by_cluster"


@pytest.mark.tier("extended")
@pytest.mark.parametrize(
    ("of", "state"),
    [
        pytest.param(too_long, "stopped", id="too_long", marks=pytest.mark.tier("full")),
        pytest.param(colliding, "not_started", id="colliding"),
    ],
)
def test_the_other_topics_are_copied(make_two_topics: MakeTwoTopics, of: object, state: str) -> None:
    """`state` is what `status` shows of it: only the attempt to create the topic shows that two names collide."""
    two = make_two_topics()
    assert callable(of)
    refused, incident = of(two)
    clients.create_topic(two.source, refused)
    two.flow.file.write(topics=[f"^{two.name}.*"])
    code, errors = plan(two.flow)
    assert code == 4
    assert len(errors) == 1
    assert incident in errors[0]
    assert refused in errors[0]
    for topic in (two.first, two.second):
        two.put(topic, numbered("old", 10))
    worker = two.flow.running()
    found = worker.wait_event("incident", name=incident, topic=refused, partition=0, timeout_s=FOUND_S)
    assert found["advice"]
    for topic in (two.first, two.second):
        two.wait_copied(topic, b"old 9")
    shown = {row["source_topic"]: row["state"] for row in two.status()["partitions"]}
    assert shown == {two.first: "in_sync", two.second: "in_sync", refused: state}
    two.assert_stops(worker)
