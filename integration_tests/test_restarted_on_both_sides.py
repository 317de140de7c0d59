"""`incident resolve --restart-topic`, typed as it is offered where a topic was created again on both sides."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.two_topics import TwoTopics, numbered
from integration_tests.test_incident_resolve import WHY, asked, created_again, listed, open_id


@pytest.mark.tier("long", kafka="long")
def test_what_is_offered_copies_the_new_source_topic_into_the_new_target_topic(make_copying: MakeCopying) -> None:
    two = TwoTopics(make_copying(partitions=1))
    path = two.flow.file.path
    two.assert_stops(two.running(10), 0)
    clients.recreate_topic(two.target, two.copy_of(two.first))
    created_again(two, "new")
    worker = two.flow.running()
    id_ = open_id(path, "target_topic_recreated", worker)
    code, shown, _ = asked(path, "show", id_)
    assert (code, "--restart-topic" in shown["commands"]) == (0, True)
    assert f"incident resolve {id_} --restart-topic --why TEXT" in shown["advice"]
    code, done, said = asked(path, "resolve", id_, "--restart-topic", "--why", WHY)
    assert (code, done["acted"], done["moved"]) == (0, "restarted", [-1, 0]), said
    two.wait_copied(two.first, b"new 9")
    assert two.values(two.first) == numbered("new", 10)
    assert listed(path) == []
    (adopted,) = two.status()["adoptions"]
    assert adopted["former_topic_id"]
    assert adopted["former_other_id"]
    two.assert_second_goes_on()
    two.assert_stops(worker, 0)
    words = [sys.executable, "-m", "cli.main", "verify", "-c", str(path), "--json"]
    verified = subprocess.run(words, capture_output=True, text=True, check=False, timeout=90)
    assert (verified.returncode, json.loads(verified.stdout)["verdict"]) == (0, "stands"), verified.stdout
