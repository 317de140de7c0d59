"""With exactly the rights that `eos-replicate rights` prints, on both clusters, each command of an operator works."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import ConsumerGroupTopicPartitions

from integration_tests.groups.test_group_sync import begun
from integration_tests.harness import clients
from integration_tests.harness.copying import ASKED_S_MAX, Copying
from integration_tests.harness.granting import grant
from integration_tests.harness.group_reading import deleted
from integration_tests.harness.guarded import USER, login
from integration_tests.harness.processes import wait_until
from integration_tests.harness.replicator import FlowFile, Replicator
from integration_tests.harness.two_topics import TwoTopics, numbered
from integration_tests.partitions.conftest import SecuredPair
from integration_tests.proof.mapped_logs import MappedFlow
from integration_tests.proof.test_repair import damaged
from replicator.model.names import heartbeats_topic, workers_group
from tests.running.users_packages import users_packages

WHY = "the test decides so"
TAKEN_OVER, NOT_ALLOWED = 5, 3
NOW_MS = time.time_ns() // 1_000_000
MISSING = ("the user needs", "authorization failed", "AUTHORIZATION_FAILED", "not authorized")
"""How a missing right is named, by us and by Kafka."""
pytestmark = pytest.mark.tier("long", kafka="long")


class Operator:
    """Types commands on a flow file. None of them may miss a right."""

    def __init__(self, file: Path, flow: str) -> None:
        self._file, self._flow = file, flow
        self.code = 0

    def asked(self, *words: str, codes: tuple[int, ...] = (0,)) -> dict[str, Any]:
        """The JSON of a command that ends with one of these exit codes."""
        done = self._typed(*words, *(() if words[:2] == ("position", "export") else ("--json",)))
        told = f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        self.code = done.returncode
        assert self.code in codes, told
        assert_no_right_is_missing(told)
        return dict(json.loads(done.stdout))

    def refused(self, *words: str) -> str:
        """What a command says that misses a right."""
        done = self._typed(*words)
        assert done.returncode == NOT_ALLOWED, done.stdout + done.stderr
        return " ".join(done.stderr.split())

    def _typed(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "cli.main", *words, "-c", str(self._file)]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=ASKED_S_MAX, env=users_packages()
        )

    def confirmed(self, *words: str, codes: tuple[int, ...] = (0,)) -> dict[str, Any]:
        """The same of a command that has to be confirmed."""
        return self.asked(*words, "--yes-i-mean", self._flow, codes=codes)

    def open_id(self, name: str, topic: str, worker: Replicator) -> str:
        """The id of what is open of a topic, once a lane has written it down."""
        found: list[str] = []

        def there() -> bool:
            listed = self.asked("incident", "list", codes=(0, 4))["incidents"]
            found[:] = [it["id"] for it in listed if (it["name"], it["topic"]) == (name, topic) and it["commands"]]
            return bool(found)

        wait_until(there, f"{name} of {topic} is listed", worker.tail)
        return found[0]

    def resolved(self, id_: str, *command: str, acted: str) -> dict[str, Any]:
        """What `incident resolve` says of an incident that a running flow acts on."""
        done = self.asked("incident", "resolve", id_, *command, "--why", WHY, "--wait", "60")
        assert done["acted"] == acted, done
        return done


def assert_no_right_is_missing(told: str) -> None:
    """Nothing that is told names a missing right."""
    named = [line for line in told.splitlines() if any(word.lower() in line.lower() for word in MISSING)]
    assert not named, "\n".join(named)


def assert_worker_misses_none(worker: Replicator) -> None:
    """Nor does a worker's log."""
    assert_no_right_is_missing("\n".join(json.dumps(it) for it in worker.events))


MakeTwo = Callable[..., tuple[TwoTopics, Operator]]


@pytest.fixture
def make_two(pair: SecuredPair, tmp_path: Path) -> Iterator[MakeTwo]:
    """Makes flows of two topics whose user has exactly what `rights` prints of their settings."""
    source, target = pair
    made: list[Copying] = []

    def make(**settings: Any) -> tuple[TwoTopics, Operator]:
        copying = Copying(
            source, target, tmp_path, partitions=1, source_via=login(source), via=login(target), **settings
        )
        made.append(copying)
        two = TwoTopics(copying)
        grant(source, copying.file.path, "source")
        grant(target, copying.file.path, "target")
        operator = Operator(copying.file.path, copying.name)
        planned = operator.asked("plan")["flows"][0]
        told = [it for it in planned["findings"] if it["kind"] == "right" or it["severity"] == "error"]
        assert told == [], told
        assert planned["coupled_unknown"] == []
        return two, operator

    yield make
    for copying in made:
        copying.close()


def states(operator: Operator) -> set[str]:
    """Those of all partitions."""
    return {row["state"] for row in operator.asked("status")["flows"][0]["partitions"]}


def test_while_a_flow_runs_with_all_that_it_can_do(make_two: MakeTwo, unique: Callable[[str], str]) -> None:
    group = unique("readers")
    two, operator = make_two(
        heartbeat="200ms",
        sync_acls=True,
        consolidate_map=True,
        groups={"include": [group], "interval_ms": 200, "deleted": "delete"},
        topic_configs={"sync": True},
        policy={"record_refused": {"decide": "set_aside", "gap_offsets_max_per_day": 2}},
    )
    application = clients.transactional(two.source, unique("application"))
    application.begin_transaction()
    for topic in (two.first, two.second):
        clients.put(application, topic, *numbered("old", 10), key=b"key")
    application.commit_transaction(clients.TIMEOUT_S)
    begun(two.flow, group, 5)
    worker = two.flow.running("", "--shared")
    two.wait_copied(two.first, b"old 9")
    wait_until(lambda: in_sync(operator), "the group stands at the target", worker.tail)
    settings_and_looks(two, operator, worker)
    [(answer)] = operator.asked("translate", "--topic", two.first, "--partition", "0", "--offset", "4")["offsets"]
    assert (answer["to"]["offset"] if "to" in answer else answer["offset"]) == 4, answer
    assert operator.asked("translate", "--group", group)["offsets"]
    assert operator.asked("translate", "--reverse", "--group", group)["offsets"]
    [(coupled)] = operator.asked("coupled")["flows"]
    assert (coupled["unseen"], [it["topics"] for it in coupled["sets"]]) == ([], [sorted((two.first, two.second))])
    assert operator.asked("verify")["verdict"] == "stands"
    assert operator.asked("reconcile", "--local")["verdict"] == "agrees"
    failing_over(two, operator, worker)
    deleted(two.source, group)
    wait_until(lambda: group not in groups_at(two.target), "the group is deleted at the target", worker.tail)
    clients.set_topic_config(two.source, two.first, "retention.ms", "777777777")
    wait_until(
        lambda: clients.topic_configs(two.target, two.copy_of(two.first))["retention.ms"] == "777777777",
        "the config is set", worker.tail,
    )  # fmt: skip
    clients.grow_topic(two.source, two.second, 2)
    two.put(two.second, [b"grown"], partition=1)
    two.wait_copied(two.second, b"grown", partition=1)
    assert operator.asked("status")["flows"][0]["heartbeat_ms"]
    two.assert_stops(worker, 0)
    assert_worker_misses_none(worker)


def in_sync(operator: Operator) -> bool:
    """Whether a group is there, and stands at the target where it stands at the source."""
    [flow] = operator.asked("groups", codes=(0, 1))["flows"]
    return bool(flow["groups"]) and operator.code == 0


def groups_at(bootstrap: str) -> set[str]:
    """All groups of a cluster."""
    listed = clients.admin(bootstrap).list_consumer_groups().result(clients.TIMEOUT_S)
    return {it.group_id for it in listed.valid}


def settings_and_looks(two: TwoTopics, operator: Operator, worker: Replicator) -> None:
    """Who works, positions, pausing, rates, and another file."""
    [flow] = operator.asked("workers")["flows"]
    assert len(flow["workers"]) == 1, flow
    rows = operator.asked("position", "show")["flows"][0]["partitions"]
    assert {row["position"] is not None for row in rows} == {True}
    exported = {row["topic"] for row in operator.asked("position", "export")["positions"]}
    assert exported == {two.first, two.second, heartbeats_topic(two.name)}
    assert list(operator.asked("pause", "--why", WHY)["paused"]) == [""]
    wait_until(lambda: states(operator) == {"paused"}, "all is paused", worker.tail)
    assert operator.asked("resume")["paused"] == {}
    assert operator.asked("rate", "--records-per-s", "4000")["rates"][""]["records_per_s"] == 4000
    assert operator.asked("rate", "--reset")["rates"] == {}
    before = yaml.safe_load(two.flow.file.path.read_text())["flows"][two.name]["commit"]
    two.flow.file.write(commit={"interval_ms": 50})
    assert operator.asked("apply", "--dry-run")["opened"] is False
    applied = operator.asked("apply")
    assert (applied["opened"], applied["workers"]) == (True, 1)
    worker.wait_event("lane_started", generation=applied["generation"])
    two.flow.file.write(commit=before)
    again = operator.asked("apply")
    worker.wait_event("lane_started", generation=again["generation"])
    two.assert_second_goes_on()


def failing_over(two: TwoTopics, operator: Operator, worker: Replicator) -> None:
    """All of the flow, and one topic of it, and back."""
    assert operator.asked("failover", "--rehearse", codes=(0, 1))["partitions"]
    verdict = operator.confirmed("failover", codes=(0, 1))
    assert operator.asked("failover", "--show", codes=(0, 1))["sha256"] == verdict["sha256"]
    worker.wait_event("failed_over")
    assert operator.asked("verify", "--without-source", codes=(0, 4))["verdict"] != "broken"
    operator.confirmed("failover", "--undo")
    two.assert_second_goes_on()
    operator.confirmed("failover", "--topics", two.first, "--split", two.first, codes=(0, 1))
    two.assert_second_goes_on()
    two.put(two.first, [b"kept back"])
    operator.confirmed("failover", "--undo", "--topics", two.first)
    two.wait_copied(two.first, b"kept back")


def test_incidents_are_decided(make_two: MakeTwo) -> None:
    """skip, set-aside, retry, adopt and restart-topic."""
    two, operator = make_two()
    copy = two.copy_of(two.first)
    clients.create_topic(two.target, copy, 1, {"cleanup.policy": "compact"})
    worker = two.running(10)
    two.put(two.first, [b"kept"])
    for word in (b"refused", b"late"):
        clients.put(clients.producer(two.source), two.first, word, key=None)
    id_ = operator.open_id("record_refused", two.first, worker)
    assert operator.asked("incident", "show", id_)["position"] == 11
    assert operator.resolved(id_, "--set-aside", acted="set-aside")["kept"] == "whole"
    [aside] = clients.read(two.target, f"__eos.{two.name}.aside")
    assert aside.value() == b"refused"
    id_ = operator.open_id("record_refused", two.first, worker)
    clients.set_topic_config(two.target, copy, "cleanup.policy", "delete")
    operator.resolved(id_, "--retry", acted="retried")
    two.wait_copied(two.first, b"late")

    two.assert_stops(worker, 0)  # one that only stands still has asked for what comes
    two.put(two.first, numbered("unread", 10))
    clients.delete_records(two.source, two.first, 0, 15)
    worker = two.flow.running()
    id_ = operator.open_id("source_records_gone", two.first, worker)
    assert operator.resolved(id_, "--skip", acted="skipped")["moved"] == [13, 15]
    two.wait_copied(two.first, b"unread 9")

    clients.recreate_topic(two.source, two.first)
    two.put(two.first, numbered("new", 10))
    id_ = operator.open_id("source_topic_recreated", two.first, worker)
    assert operator.resolved(id_, "--restart-topic", acted="restarted")["moved"] == [23, 0]
    two.wait_copied(two.first, b"new 9")
    two.assert_stops(worker, 0)
    assert_worker_misses_none(worker)

    admin, kept = clients.admin(two.target), two.position(two.second)
    admin.delete_consumer_groups([two.flow.group])[two.flow.group].result(clients.TIMEOUT_S)
    again = ConsumerGroupTopicPartitions(two.flow.group, [kept])
    admin.alter_consumer_group_offsets([again])[two.flow.group].result(clients.TIMEOUT_S)
    worker = two.flow.running()
    id_ = operator.open_id("position_expired", two.first, worker)
    operator.resolved(id_, "--adopt", "map", acted="adopted")
    two.put(two.first, [b"on"])
    two.wait_copied(two.first, b"on")
    two.assert_stops(worker, 0)
    assert_worker_misses_none(worker)


def test_status_names_the_right_that_a_running_flow_lacks(make_two: MakeTwo, pair: SecuredPair) -> None:
    """Without it the worker can't write down on the target what it has found."""
    two, _ = make_two()
    worker = two.running(10)
    pair[1].take_away(USER, "TOPIC", two.copy_of(two.first), "WRITE")
    two.put(two.first, [b"not copied"])
    rows: list[dict[str, Any]] = []

    def told() -> bool:
        rows[:] = two.status()["partitions"]
        return any(row["state"] == "waiting" for row in rows)

    wait_until(told, "it waits", worker.tail)
    [waiting] = [row for row in rows if row["source_topic"] == two.first]
    assert f"needs Write on topic '{two.copy_of(two.first)}'" in waiting["detail"]
    assert {row["state"] for row in rows if row["source_topic"] == two.second} == {"in_sync"}
    pair[1].allow(USER, "TOPIC", two.copy_of(two.first), "WRITE")
    two.wait_copied(two.first, b"not copied")
    two.assert_stops(worker, 0)


def test_while_a_flow_stands_still(make_two: MakeTwo, pair: SecuredPair, tmp_path: Path) -> None:
    """position set, with and without a file, and by force; then the control topic is lost."""
    two, operator = make_two()
    two.assert_stops(two.running(10), 0)
    kept = tmp_path / "positions.json"
    kept.write_text(json.dumps(operator.asked("position", "export")))
    at = ("--partition", f"{two.first}:0", "--offset", "6")
    [row] = operator.confirmed("position", "set", *at, "--why", WHY)["partitions"]
    assert (row["before"], row["after"]) == (10, 6)
    rows = operator.confirmed("position", "set", "--file", str(kept), "--why", WHY)["partitions"]
    assert [row["after"] for row in rows if row["topic"] == two.first] == [10]
    clients.delete_topic(two.target, two.control_topic)
    workers = workers_group(two.name)
    pair[1].take_away(USER, "GROUP", workers, "READ", "DESCRIBE")
    refused = operator.refused("rebuild-control", "--dry-run")
    assert f"Describe on group '{workers}'" in refused, "nobody would see whether it has members"
    pair[1].allow(USER, "GROUP", workers, "READ", "DESCRIBE")
    assert operator.asked("rebuild-control", "--dry-run")["rebuilt"] is False
    assert operator.confirmed("rebuild-control")["rebuilt"] is True
    worker = two.flow.running()
    operator.confirmed("position", "set", *at, "--why", WHY, "--take-over")
    assert worker.wait_exit() == TAKEN_OVER, worker.tail()
    assert_worker_misses_none(worker)
    worker = two.flow.running()
    two.wait_position(two.first, 10)
    assert two.values(two.first) == [*numbered("old", 10), *numbered("old", 10)[6:]]
    two.assert_second_goes_on()
    two.assert_stops(worker, 0)
    assert_worker_misses_none(worker)


def granted(pair: SecuredPair, file: FlowFile) -> Operator:
    """Log a flow in on both sides as the user, who has what is printed."""
    source, target = pair
    file.log_in(login(source))
    file.write_to_target(login(target))
    grant(source, file.path, "source")
    grant(target, file.path, "target")
    return Operator(file.path, file.flow)


def test_what_is_missing_is_copied_again(pair: SecuredPair, tmp_path: Path, unique: Callable[[str], str]) -> None:
    """reconcile --local --repair."""
    flow = damaged(MappedFlow(*pair, tmp_path, unique("repaired"), [7, 8], ("skipped", "lost")))
    lost = [len(truth.skipped | truth.lost) for truth in flow.truths]
    operator = granted(pair, flow.file)
    planned = operator.asked("reconcile", "--local", "--repair", "plan", codes=(1,))["repair"]
    to_copy = {row["source"]["partition"]: row["to_copy"] for row in planned["partitions"]}
    assert to_copy == {number: records for number, records in enumerate(lost) if records}
    done = operator.asked("reconcile", "--local", "--repair", "apply", codes=(1,))["repair"]
    assert sum(row["copied"] for row in done["partitions"]) == sum(lost) > 0


def test_a_copy_of_another_program_is_taken_over(make_two: MakeTwo, pair: SecuredPair) -> None:
    """adopt-mm2, without the offsets of Kafka Connect."""
    two, operator = make_two()
    for topic in (two.first, two.second):
        clients.create_topic(two.target, two.copy_of(topic), 1)
        for bootstrap, name, records in ((two.source, topic, 10), (two.target, two.copy_of(topic), 6)):
            clients.put(clients.producer(bootstrap), name, *numbered("old", records), key=b"key", timestamp=NOW_MS)
    adopting = ("adopt-mm2", "--alias", "here")
    refused = operator.refused(*adopting, "--dry-run")
    assert "Describe on group 'here-mm2'" in refused, "nobody would see whether it has members"
    pair[1].allow(USER, "GROUP", "here-mm2", "DESCRIBE")
    shown = operator.asked(*adopting, "--dry-run")
    assert [row["position"] for row in shown["partitions"]] == [6, 6]
    operator.confirmed(*adopting)
    worker = two.flow.running()
    two.wait_copied(two.first, b"old 9")
    assert two.values(two.first) == numbered("old", 10)
    two.assert_stops(worker, 0)
    assert_worker_misses_none(worker)
