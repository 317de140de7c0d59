"""A flow's control topic was deleted, or lost records: `rebuild-control` makes it anew, and the flow goes on exactly
once, whatever is killed meanwhile and whoever wakes up afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.advised import advised
from integration_tests.harness.copying import ASKED_S_MAX, Copying
from integration_tests.harness.processes import wait_until
from integration_tests.harness.two_topics import INCIDENT, TwoTopics
from integration_tests.partitions.test_plan_and_run import foreign_record, internal
from integration_tests.test_incidents_played import asked
from replicator import config
from replicator.flow.topics import ControlPlane
from replicator.model.incident_kinds import KINDS
from tests.running.users_packages import users_packages

pytestmark = pytest.mark.tier("long", kafka="long")

REFUSED, TAKEN_OVER = 1, 5
COMPACT = {"cleanup.policy": "compact"}


def rebuilt(copying: Copying, *words: str) -> tuple[int, dict[str, Any], str]:
    """What `rebuild-control` says."""
    return asked(copying, "rebuild-control", "--yes-i-mean", copying.name, *words)


def killed(copying: Copying, failpoint: str) -> int:
    """The exit code of `rebuild-control` that is killed there."""
    command = [sys.executable, "-m", "cli.main", "rebuild-control", "-c", str(copying.file.path)]
    environment = {**users_packages(), "EOS_FAILPOINTS": f"{failpoint}@1=kill"}
    words = ["--yes-i-mean", copying.name]
    done = subprocess.run([*command, *words], env={**os.environ, **environment}, check=False, timeout=ASKED_S_MAX)
    return done.returncode


def copied(copying: Copying, records: int = 300) -> None:
    """Have a worker copy so many more, and stop."""
    worker = copying.running()
    copying.load.mixed(records)
    copying.finish(worker)


def lose_control(copying: Copying) -> None:
    clients.delete_topic(copying.target, internal(copying, "control"))


def generation_of(copying: Copying) -> int:
    """The generation that is open."""
    flow = config.load(copying.file.path).flows[copying.name]
    with ControlPlane(flow) as plane:
        plane.target.connect()
        found = plane.state.control().open
    assert found is not None
    return found.number


def test_the_topic_is_deleted_under_a_running_flow_and_made_anew(make_copying: MakeCopying) -> None:
    """control_topic_lost: as docs/operate/incidents.md says."""
    copying = make_copying(lanes=2)
    copied(copying)
    before = generation_of(copying)
    worker = copying.running()
    lose_control(copying)
    found = worker.wait_incident("control_topic_lost")
    assert "rebuild-control" in found["advice"]
    assert worker.wait_exit() == INCIDENT, worker.tail()
    (listed,) = asked(copying, "incident", "list")[1]["incidents"]
    assert (listed["name"], "rebuild-control" in listed["advice"]) == ("control_topic_lost", True)

    code, shown, said = asked(copying, "rebuild-control", "--dry-run")
    assert (code, shown["rebuilt"], shown["generation"] > before) == (0, False, True), said
    assert {"generation": before, "lanes": 2} in shown["fenced"]
    assert len(shown["not_restored"]) == 5
    assert internal(copying, "control") not in clients.topics(copying.target), "nothing was changed"
    assert asked(copying, "rebuild-control")[0] == 2, "it isn't confirmed"

    code, done, said = rebuilt(copying)
    assert (code, done["rebuilt"], done["generation"]) == (0, True, shown["generation"]), said
    assert generation_of(copying) == done["generation"]
    assert asked(copying, "incident", "list")[0] == 0
    copied(copying)
    copying.assert_exact()
    code, _, said = rebuilt(copying)
    assert (code, "nothing_lost" in said) == (REFUSED, True), said


def test_a_flow_with_a_stopped_partition_that_has_ended_by_it_needs_no_take_over(make_copying: MakeCopying) -> None:
    """Its lane finds it out: it looks for decisions there. The advice works as it is printed."""
    copying = make_copying(partitions=2)
    copied(copying)
    copying.load.mixed(300)
    gone = clients.stable_end(copying.source, copying.topic)
    clients.delete_records(copying.source, copying.topic, 0, gone)
    worker = copying.running()
    worker.wait_incident("source_records_gone")
    lose_control(copying)
    worker.wait_incident("control_topic_lost")
    assert worker.wait_exit() == INCIDENT, worker.tail()
    assert {it["owner"] for it in copying.asked("status")[1]["partitions"]} == {None}, worker.tail()
    code, done, said = rebuilt(copying)
    assert (code, done.get("rebuilt")) == (0, True), said


@pytest.mark.parametrize("failpoint", ["rebuild_begun", "rebuild_listed", "rebuild_prepared", "rebuild_opened"])
def test_killed_at_each_step_it_was_done_once_or_not_at_all(make_copying: MakeCopying, failpoint: str) -> None:
    copying = make_copying(lanes=2)
    copied(copying)
    lose_control(copying)
    assert killed(copying, failpoint) == -9
    done = failpoint in ("rebuild_prepared", "rebuild_opened")
    if not done:
        worker = copying.run()
        worker.wait_incident("control_topic_lost")
        assert worker.wait_exit() == INCIDENT, worker.tail()
        code, _, said = rebuilt(copying)
        assert code == 0, said
    copied(copying)
    copying.assert_exact()
    generations = generation_of(copying)
    assert rebuilt(copying)[0] == REFUSED
    copied(copying)
    copying.assert_exact()
    assert generation_of(copying) == generations, "it opened one"


def test_a_worker_that_sleeps_meanwhile_wakes_up_and_writes_nothing_more(make_copying: MakeCopying) -> None:
    """In the middle of a transaction, under a generation of which no topic knows any more."""
    copying = make_copying(partitions=1)
    copied(copying)
    zombie = copying.run("before_end_txn@3=stop")
    zombie.wait_event("lane_started")
    copying.load.mixed(200)
    zombie.wait_stopped()
    lose_control(copying)
    code, _, said = rebuilt(copying)
    assert (code, "--take-over" in said) == (TAKEN_OVER, True), said
    code, _, said = rebuilt(copying, "--take-over")
    assert code == 0, said
    worker = copying.running()
    copying.load.mixed(200)
    copying.wait_copied()
    zombie.resume()
    assert zombie.wait_exit() in (INCIDENT, TAKEN_OVER), zombie.tail()
    assert worker.stop() == 0, worker.tail()
    copying.assert_exact()


def test_members_of_the_new_protocol_are_members(make_copying: MakeCopying) -> None:
    """DescribeGroups knows no such group, in which workers may be, too: only ConsumerGroupDescribe (KIP-848) does."""
    copying = make_copying(partitions=1)
    copied(copying)
    group, lanes = f"eos-replicate.{copying.name}.workers", internal(copying, "lanes.1")
    clients.create_topic(copying.target, lanes, 1)
    member = clients.consumer(copying.target, group_id=group, group_protocol="consumer", enable_partition_eof=False)
    member.subscribe([lanes])
    wait_until(lambda: member.poll(0.1) is None and bool(member.assignment()), "it has the lane", str)
    lose_control(copying)
    code, _, said = rebuilt(copying)
    assert (code, "1 member of its group" in said) == (TAKEN_OVER, True), said
    member.close()
    code, _, said = rebuilt(copying)
    assert code == 0, said


@pytest.mark.parametrize("foreign", [False, True], ids=["created by somebody", "with a record of somebody"])
def test_one_that_somebody_else_made_is_used_or_has_to_go(make_copying: MakeCopying, *, foreign: bool) -> None:
    """control_topic_lost, control_topic_unreadable."""
    copying = make_copying(partitions=1)
    copied(copying)
    if foreign:
        foreign_record(copying, "control")
        code, _, said = rebuilt(copying)
        assert (code, "control_topic_unreadable" in said, "delete that topic" in said) == (INCIDENT, True, True), said
        lose_control(copying)
    else:
        clients.recreate_topic(copying.target, internal(copying, "control"), 1, COMPACT)
    code, _, said = rebuilt(copying)
    assert code == 0, said
    copied(copying)
    copying.assert_exact()


def test_records_of_it_were_lost(make_copying: MakeCopying) -> None:
    """position_newer_than_control: it knows the first generation, and positions are of the second."""
    copying = make_copying(partitions=1, lanes=1)
    copied(copying)
    first = [(m.key(), m.value()) for m in clients.read(copying.target, internal(copying, "control"))]
    copying.file.write(lanes=2)
    copied(copying)
    clients.recreate_topic(copying.target, internal(copying, "control"), 1, COMPACT)
    writer = clients.producer(copying.target)
    for key, value in first:
        clients.put(writer, internal(copying, "control"), value, key=key)
    copying.file.write(lanes=1)
    worker = copying.run()
    worker.wait_incident("position_newer_than_control")
    worker.stop()
    code, done, said = rebuilt(copying)
    assert (code, done["lost"][:22]) == (0, "it knows generation 1,"), said
    copied(copying)
    copying.assert_exact()


def test_what_contradicts_itself_or_may_be_failed_over_is_refused(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=1)
    code, _, said = rebuilt(copying)
    assert (code, "claims_topic_lost" in said or "nothing_lost" in said) in ((REFUSED, True), (INCIDENT, True)), said
    copied(copying)
    code, _, said = rebuilt(copying)
    assert (code, "nothing_lost" in said) == (REFUSED, True), said
    lose_control(copying)
    cutovers = internal(copying, "cutovers")
    clients.create_topic(copying.target, cutovers, 1, COMPACT)
    code, _, said = rebuilt(copying)
    assert (code, "failed_over" in said) == (REFUSED, True), said
    assert internal(copying, "control") not in clients.topics(copying.target)
    clients.delete_topic(copying.target, internal(copying, "claims"))
    code, _, said = rebuilt(copying, "--failover-was-undone")
    assert (code, "claims_topic_lost" in said) == (INCIDENT, True), said
    assert internal(copying, "control") not in clients.topics(copying.target)


def test_records_of_it_are_lost_under_a_running_flow(make_copying: MakeCopying) -> None:
    """control_topic_behind: it knows the first generation, and lanes run under the second."""
    copying = make_copying(partitions=1, lanes=1, limits={"discovery_interval_ms": 1_000})
    copied(copying)
    first = [(m.key(), m.value()) for m in clients.read(copying.target, internal(copying, "control"))]
    copying.file.write(lanes=2)
    worker = copying.running()
    copying.load.mixed(100)
    copying.wait_copied()
    worker.suspend()
    clients.recreate_topic(copying.target, internal(copying, "control"), 1, COMPACT)
    writer = clients.producer(copying.target)
    for key, value in first:
        clients.put(writer, internal(copying, "control"), value, key=key)
    worker.resume()
    found = worker.wait_incident("control_topic_behind")
    assert "lanes run under generation 2, the control topic knows 1" in found["detail"]
    assert worker.wait_exit() == INCIDENT, worker.tail()

    meaning = KINDS["control_topic_behind"].advice
    for advice in (found["advice"], meaning.replace("FLOW", copying.name)):
        words = advised(advice, "rebuild-control")
        assert words == ["rebuild-control", "--flow", copying.name]
    code, done, said = asked(copying, *words, "--yes-i-mean", copying.name)
    assert (code, done.get("rebuilt")) == (0, True), said
    copying.file.write(lanes=1)
    copied(copying)
    copying.file.write(lanes=2)
    copied(copying)
    copying.assert_exact()


def test_a_lane_that_wakes_up_after_the_topic_was_made_anew_ends(make_copying: MakeCopying) -> None:
    """A newer generation has taken over by then, and its positions are no longer the lane's."""
    two = TwoTopics(make_copying(partitions=1))
    worker = two.running(10)
    worker.suspend()
    clients.recreate_topic(two.target, internal(two.flow, "control"), 1, COMPACT)
    code, _, said = rebuilt(two.flow, "--take-over")
    assert code == 0, said
    worker.resume()
    assert worker.wait_exit() in (INCIDENT, TAKEN_OVER), worker.tail()
    worker = two.flow.running()
    for topic in (two.first, two.second):
        two.put(topic, [b"goes on"])
        two.wait_copied(topic, b"goes on")
        assert two.values(topic)[-1] == b"goes on"
        assert len(two.values(topic)) == 11
    two.assert_stops(worker, 0)
