"""A topic that is deleted at the source, as `deleted_topics` says: what `status`, `plan` and the log show of it, and
what becomes of another topic under its name."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.copying import ASKED_S_MAX
from integration_tests.harness.two_topics import TwoTopics, numbered


def asked(two: TwoTopics, *words: str) -> tuple[int, dict[str, Any], str]:
    """Exit code of a command, its JSON and what it says on stderr."""
    command = [sys.executable, "-m", "cli.main", *words, "-c", str(two.flow.file.path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=ASKED_S_MAX)
    return done.returncode, json.loads(done.stdout), done.stderr


@pytest.mark.tier("full")
@pytest.mark.parametrize(
    ("does", "reason", "state", "unwell"),
    [("report", "source_topic_gone", "topic_missing", 1), ("keep", "copy_kept", "kept", 0)],
)
def test_the_flow_goes_on_and_another_topic_under_the_name_stops(
    make_copying: MakeCopying, does: str, reason: str, state: str, unwell: int
) -> None:
    two = TwoTopics(make_copying(partitions=1, deleted_topics=does, limits={"recommit_interval_ms": 1_000}))
    worker = two.running(10)
    clients.delete_topic(two.source, two.first)
    told = worker.wait_event("waiting", topic=two.first, reason=reason)
    assert told["level"] == ("info" if does == "keep" else "warning")
    two.assert_kept_alive(two.first)
    two.assert_second_goes_on()
    two.assert_stops(worker, 0)

    mark = (worker := two.flow.running()).mark()  # it is named in the flow file, and not there
    two.assert_kept_alive(two.first)
    assert worker.seen("incident") == []
    (row,) = [row for row in two.status()["partitions"] if row["source_topic"] == two.first]
    assert (row["state"], row["incident"], row["position"]) == (state, "", 10)
    code, _, _ = asked(two, "status", "--check")
    assert code == unwell
    code, planned, said = asked(two, "plan")
    assert code == 0, said
    actions = {it["source"]: it["action"] for it in planned["flows"][0]["topics"]}
    assert actions == {two.first: "gone", two.second: "keep"}
    named = [it for it in planned["flows"][0]["findings"] if two.first in it["message"]]
    assert bool(named) is (does == "report"), named
    assert asked(two, "incident", "list")[0] == 0

    clients.create_topic(two.source, two.first)
    two.put(two.first, numbered("new", 15))
    worker.wait_event("incident", after=mark, name="source_topic_recreated", topic=two.first)
    two.assert_second_goes_on()
    assert two.values(two.first) == numbered("old", 10)
    two.assert_stops(worker)
