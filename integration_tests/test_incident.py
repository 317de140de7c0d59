"""`incident list` and `incident show` on a flow that runs, that doesn't, and whose incident is over."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.processes import wait_until
from integration_tests.harness.two_topics import INCIDENT, TwoTopics

NO_SUCH = 1


def asked(path: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """Exit code of a command about incidents, and its JSON, if it has any."""
    command = [sys.executable, "-m", "cli.main", "incident", *words, "-c", str(path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else {}


@pytest.mark.tier("full")
def test_an_incident_is_listed_and_shown_until_it_is_over(make_copying: MakeCopying) -> None:
    two = TwoTopics(make_copying(partitions=1))
    path, copy = two.flow.file.path, two.copy_of(two.first)
    clients.create_topic(two.target, copy, 1, {"cleanup.policy": "compact"})
    worker = two.flow.running()
    assert asked(path, "list") == (0, {"incidents": [], "errors": {}})
    writer = clients.producer(two.source)
    clients.put(writer, two.first, b"before", key=b"key")
    clients.put(writer, two.first, b"refused", key=None)
    told = worker.wait_event("incident", name="record_refused")
    wait_until(lambda: asked(path, "list")[0] == INCIDENT, "the lane has written it down", worker.tail)
    code, found = asked(path, "list")
    assert (code, found["errors"]) == (INCIDENT, {})
    (it,) = found["incidents"]
    assert (it["flow"], it["name"], it["topic"], it["partition"]) == (two.name, "record_refused", two.first, 0)
    assert (it["position"], it["advice"]) == (told["offset"], told["advice"].replace(" ID ", f" {it['id']} "))
    assert it["detail"].startswith(f"{told['detail']} (found by ")
    assert asked(path, "show", it["id"]) == (0, it)

    two.put(two.first, [b"more"])
    code, again = asked(path, "list")
    assert (code, [each["id"] for each in again["incidents"]]) == (INCIDENT, [it["id"]]), "more to copy is no other one"
    assert worker.stop() == INCIDENT, worker.tail()
    code, stopped = asked(path, "show", it["id"])
    assert (code, stopped["detail"]) == (0, it["detail"])

    clients.set_topic_config(two.target, copy, "cleanup.policy", "delete")
    worker = two.flow.running()
    two.wait_copied(two.first, b"more")
    assert asked(path, "list") == (0, {"incidents": [], "errors": {}})
    assert asked(path, "show", it["id"]) == (NO_SUCH, {})
    assert worker.stop() == 0, worker.tail()
