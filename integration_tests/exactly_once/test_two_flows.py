"""Several flows in one file and one process: what befalls one is none of the other's business."""

from __future__ import annotations

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.compare import assert_exact, wait_key
from integration_tests.harness.copying import Copying
from integration_tests.harness.load import Load
from integration_tests.harness.processes import wait_until
from integration_tests.harness.proxy import Proxy

WRONG_FILE, INCIDENT = 2, 4


def pair(make_copying: MakeCopying) -> tuple[Copying, Copying]:
    """Two flows; the first one's file has both. The second one's target holds a record that no position covers."""
    sound, doomed = make_copying(), make_copying(partitions=1)
    clients.create_topic(doomed.target, doomed.copy)
    clients.put(clients.producer(doomed.target), doomed.copy, b"somebody's")
    sound.file.include(doomed.file)
    return sound, doomed


def test_a_flow_that_an_incident_ends_leaves_the_other_alone(make_copying: MakeCopying) -> None:
    sound, doomed = pair(make_copying)
    worker = sound.run()
    worker.wait_event("incident", flow=doomed.name, name="target_not_empty")
    worker.wait_event("lane_started", flow=sound.name)
    sound.load.mixed(300)
    sound.wait_copied()
    assert worker.stop() == INCIDENT
    assert worker.seen("stopped")[-1]["flows"] == {sound.name: 0, doomed.name: INCIDENT}
    sound.assert_exact()
    assert clients.values(clients.read(doomed.target, doomed.copy)) == [b"somebody's"]


@pytest.mark.tier("extended")
def test_the_other_one_survives_the_kill_of_the_process_too(make_copying: MakeCopying) -> None:
    sound, doomed = pair(make_copying)
    sound.load.mixed(200)
    with sound.writing():
        worker = sound.run("before_end_txn@3=kill")
        worker.wait_exit()
    worker = sound.run()
    worker.wait_event("incident", flow=doomed.name, name="target_not_empty")
    sound.load.mixed(100)
    sound.wait_copied()
    assert worker.stop() == INCIDENT
    sound.assert_exact()


@pytest.mark.tier("full")
def test_status_says_how_a_flow_has_ended_in_a_process_that_goes_on(make_copying: MakeCopying) -> None:
    sound, doomed = make_copying(), make_copying(limits={"discovery_interval_ms": 500})
    sound.file.include(doomed.file)
    worker = sound.run()
    for flow in (sound, doomed):
        worker.wait_event("lane_started", flow=flow.name)
    code, before = doomed.asked("status")
    assert (code, before["ended"]) == (0, None)
    assert [runner["owner"].split(":")[1] for runner in before["run_by"]] == [str(worker.pid)]
    clients.delete_topic(doomed.target, f"__eos.{doomed.name}.control")
    worker.wait_event("flow_ended", flow=doomed.name)
    wait_until(lambda: doomed.asked("status")[1]["ended"] is not None, "the end is noted", worker.tail)
    ended = doomed.asked("status")[1]["ended"]
    assert (ended["kind"], ended["exit_code"], ended["owner"].split(":")[1]) == ("Incident", INCIDENT, str(worker.pid))
    assert ended["detail"].startswith("control_topic_lost")
    assert sound.asked("status")[1]["ended"] is None
    worker.kill()


@pytest.mark.tier(embedded="full")
def test_status_says_who_has_taken_a_flow_over(make_copying: MakeCopying) -> None:
    kept, taken = make_copying(), make_copying(limits={"discovery_interval_ms": 500})
    kept.file.include(taken.file)
    first = kept.run()
    for flow in (kept, taken):
        first.wait_event("lane_started", flow=flow.name)
    second = taken.running()
    first.wait_event("flow_over", flow=taken.name)
    found = taken.asked("status")[1]
    assert [runner["owner"].split(":")[1] for runner in found["run_by"]] == [str(second.pid)]
    assert found["run_by"][0]["since"] is not None
    assert [runner["owner"].split(":")[1] for runner in kept.asked("status")[1]["run_by"]] == [str(first.pid)]
    assert second.stop() == 0
    released = taken.asked("status")[1]
    assert released["run_by"] == []
    assert released["released_ms"] >= found["run_by"][0]["since_ms"]
    first.stop()


@pytest.mark.tier("full")
def test_a_flow_can_be_run_without_the_others(make_copying: MakeCopying) -> None:
    sound, doomed = pair(make_copying)
    worker = sound.run("", "--flow", sound.name)
    sound.load.mixed(100)
    sound.finish(worker)
    assert worker.seen("stopped")[-1]["flows"] == {sound.name: 0}
    assert not [event for event in worker.events if event.get("flow") == doomed.name]
    worker = sound.run("", "--flow", doomed.name)
    assert worker.wait_exit() == INCIDENT, "nothing is left to do for it"
    assert worker.seen("stopped")[-1]["flows"] == {doomed.name: INCIDENT}


def test_a_flow_that_is_not_in_the_file_is_refused(make_copying: MakeCopying) -> None:
    sound, doomed = pair(make_copying)
    worker = sound.run("", "--flow", sound.name, "--flow", "nobody")
    assert worker.wait_exit() == WRONG_FILE
    assert "no flow nobody" in worker.tail()
    assert doomed.name in worker.tail(), "it says which there are"
    assert sound.copy not in clients.topics(sound.target), "the other one began nevertheless"


def test_two_flows_that_name_one_target_topic_are_refused(make_copying: MakeCopying) -> None:
    one, other = make_copying(), make_copying()
    other.file.write(topics=[one.topic])
    one.file.include(other.file)
    worker = one.run()
    assert worker.wait_exit() == WRONG_FILE
    assert f"would write '{one.copy}'" in worker.tail()
    assert one.copy not in clients.topics(one.target)


def overlapping(make_copying: MakeCopying) -> tuple[Copying, Copying]:
    """Two flows whose patterns look harmless: only a topic NAME.x-y is in both."""
    one, other = make_copying(), make_copying()
    one.file.write(topics=[one.topic, f"^{one.name}\\.x.*"])
    other.file.write(topics=[other.topic, f"^{one.name}\\..*-y"])
    one.file.include(other.file)
    return one, other


@pytest.mark.tier("extended")
def test_a_topic_that_two_flows_select_is_copied_by_the_first_only_from_the_start(make_copying: MakeCopying) -> None:
    """The conflict is the topic's: whatever else the later flow copies goes on."""
    one, other = overlapping(make_copying)
    name = f"{one.name}.x-y"
    clients.create_topic(one.source, name, 2)
    both = Load(one.source, name, 2, seed=5)
    worker = one.run()
    worker.wait_event("incident", flow=other.name, name="flows_in_conflict", topic=name)
    both.mixed(100)
    both.finish()
    wait_key(one.target, f"{name}.copy", 2, both.last)
    for flow in (one, other):
        flow.load.mixed(100)
        flow.wait_copied()
    assert worker.stop() == INCIDENT
    for flow in (one, other):
        flow.assert_exact()
    assert assert_exact(one.source, name, one.target, f"{name}.copy", 2) == both.committed


@pytest.mark.tier("full")
def test_a_topic_that_appears_in_two_flows_is_copied_by_the_first_only(make_copying: MakeCopying) -> None:
    one, other = overlapping(make_copying)
    worker = one.run()
    for flow in (one, other):
        worker.wait_event("lane_started", flow=flow.name)
    name = f"{one.name}.x-y"
    clients.create_topic(one.source, name, 2)
    both = Load(one.source, name, 2, seed=5)
    both.mixed(100)
    both.finish()
    worker.wait_event("incident", flow=other.name, name="flows_in_conflict")
    wait_key(one.target, f"{name}.copy", 2, both.last)
    for flow in (one, other):
        flow.load.mixed(100)
        flow.wait_copied()
    assert worker.stop() == INCIDENT
    for flow in (one, other):
        flow.assert_exact()
    assert assert_exact(one.source, name, one.target, f"{name}.copy", 2) == both.committed

    other.file.write(exclude=[name])
    one.file.write()
    worker = one.run()
    for flow in (one, other):
        worker.wait_event("lane_started", flow=flow.name)
        flow.load.mixed(100)
        flow.wait_copied()
    assert worker.seen("incident") == []
    assert worker.stop() == 0


def test_a_flow_that_feeds_itself_is_refused(target: BrokerHandle, proxy: Proxy, make_copying: MakeCopying) -> None:
    """Two names and two addresses of one cluster: only its id tells, and only the topics which come back."""
    copying = make_copying(source_via=target.bootstrap, via=proxy.bootstrap)
    clients.create_topic(target.bootstrap, copying.topic)
    copying.file.write(topics=[f"^{copying.name}\\..*"])
    worker = copying.run()
    assert worker.wait_exit() == INCIDENT
    assert "would feed itself" in worker.tail()
    assert copying.copy not in clients.topics(target.bootstrap)
