"""Incidents decided as an operator types it, and what is refused of what is typed."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.replicator import Replicator
from integration_tests.harness.two_topics import TwoTopics, numbered
from integration_tests.test_incident_resolve import REFUSED, WHY, asked, lose, open_id


@pytest.mark.tier("long", kafka="long")
def test_an_overrun_of_retention_is_decided_in_three_commands(make_copying: MakeCopying) -> None:
    """As an operator types them: list, show, resolve; then the flow runs again, and no restart was needed."""
    two = TwoTopics(make_copying(partitions=1))
    worker = two.running(10)
    worker.suspend()
    lose(two, 10, 15)
    worker.resume()
    decided_in_three_commands(two, worker)


def decided_in_three_commands(two: TwoTopics, worker: Replicator) -> None:
    """Offsets 10 to 15 were lost."""
    path = two.flow.file.path
    worker.wait_event("incident", name="source_records_gone", topic=two.first)
    began_s = time.monotonic()
    id_ = open_id(path, "source_records_gone", worker)
    assert "--skip" in asked(path, "show", id_)[1]["commands"]
    code, done, said = asked(path, "resolve", id_, "--skip", "--why", WHY)
    assert (code, done["moved"]) == (0, [10, 15]), said
    two.wait_copied(two.first, b"unread 9")
    print(f"decided, and running again, {time.monotonic() - began_s:.1f} s after it was found")
    assert two.values(two.first) == [*numbered("old", 10), *numbered("unread", 10)[5:]]
    two.assert_stops(worker, 0)


@pytest.mark.tier("long", kafka="long")
def test_what_can_not_be_decided_is_refused_with_what_helps_and_nothing_is_written(make_copying: MakeCopying) -> None:
    two = TwoTopics(make_copying(partitions=1))
    path = two.flow.file.path
    clients.create_topic(two.target, two.copy_of(two.first), 1, {"cleanup.policy": "compact"})
    worker = two.flow.running()
    clients.put(clients.producer(two.source), two.first, b"refused")
    id_ = open_id(path, "record_refused", worker)
    end = clients.stable_end(two.target, two.control_topic, 0)
    refused = [
        (("0123456789ab", "--retry"), f"unknown: no incident of a partition has the id 0123456789ab; open: {id_}"),
        ((id_, "--adopt", "3", "--why", WHY), "wrong_command: --adopt doesn't apply to record_refused"),
        ((id_, "--restart-topic", "--why", WHY), "use --retry or --skip or --set-aside"),
    ]
    for words, said in refused:
        code, _, error = asked(path, "resolve", *words)
        assert (code, said in error) == (REFUSED, True), error
    assert asked(path, "resolve", id_, "--skip")[0] == 2, "it doesn't say why"

    clients.set_topic_config(two.target, two.copy_of(two.first), "cleanup.policy", "delete")
    two.assert_stops(worker)
    worker = two.flow.running()
    two.wait_copied(two.first, b"refused")
    two.assert_stops(worker, 0)
    code, _, error = asked(path, "resolve", id_, "--skip", "--why", WHY)
    assert (code, "outdated" in error, "its facts have changed" in error) == (REFUSED, True, True), error
    code, _, error = asked(path, "resolve", "0123456789ab", "--retry")
    assert (code, "open: none" in error) == (REFUSED, True), error
    decisions = [m for m in clients.read(two.target, two.control_topic) if (m.key() or b"").startswith(b"decision/")]
    assert (decisions, clients.stable_end(two.target, two.control_topic, 0) >= end) == ([], True)

    two.flow.file.write(policy={"record_refusd": {"decide": "skip", "gap_offsets_max_per_day": 1}})
    validate = [sys.executable, "-m", "cli.main", "validate", "-c", str(path)]
    done = subprocess.run(validate, capture_output=True, text=True, check=False)
    assert (done.returncode, "did you mean 'record_refused'?" in done.stderr + done.stdout) == (2, True), done.stderr


@pytest.mark.tier("long", kafka="long")
def test_a_worker_that_shares_its_flow_also_ends_with_4_while_an_incident_waits(make_copying: MakeCopying) -> None:
    """After a signal, and by itself where it was asked to."""
    copying = make_copying(partitions=2)
    worker = copying.running("", "--shared")
    copying.load.mixed(20)
    copying.wait_copied()
    assert worker.stop() == 0, worker.tail()
    copying.load.plain(
        20
    )  # a transaction's marker may come later than the answer to its commit: the end would be before it
    clients.delete_records(copying.source, copying.topic, 0, clients.stable_end(copying.source, copying.topic, 0) - 1)
    worker = copying.running("", "--shared")
    worker.wait_event("incident", name="source_records_gone", partition=0)
    assert worker.stop() == 4, worker.tail()
    worker = copying.running("", "--shared", "--exit-on-incident")
    assert worker.wait_exit() == 4, worker.tail()
