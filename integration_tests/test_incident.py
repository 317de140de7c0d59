"""`incident list` and `incident show` on a flow that runs, that doesn't, and whose incident is over."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.processes import wait_until
from integration_tests.harness.two_topics import INCIDENT, TwoTopics, numbered

NO_SUCH, AWAY = 1, 3


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
    place = f". The ID is shown by eos-replicate incident list --flow {it['flow']} -c FILE"
    assert told["advice"].endswith(place), "it has none yet"
    advice = told["advice"].removesuffix(place).replace(" ID ", f" {it['id']} ")
    assert (it["position"], it["advice"].rstrip(".")) == (told["offset"], advice)
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


def without_source(two: TwoTopics, directory: Path) -> Path:
    """The flow's file, of a source that is away."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    sections = yaml.safe_load(two.flow.file.path.read_text())
    sections["clusters"]["here"]["properties"]["bootstrap.servers"] = address
    path = directory / "away.yaml"
    path.write_text(yaml.safe_dump(sections))
    return path


@pytest.mark.tier("long", kafka="long")
def test_while_the_source_is_away_what_the_target_knows_is_shown(make_copying: MakeCopying, tmp_path: Path) -> None:
    two = TwoTopics(make_copying(partitions=1))
    clients.create_topic(two.target, two.copy_of(two.first), 1, {"cleanup.policy": "compact"})
    worker = two.running(5)
    clients.put(clients.producer(two.source), two.first, b"refused", key=None)
    worker.wait_event("incident", name="record_refused")
    wait_until(lambda: asked(two.flow.file.path, "list")[0] == INCIDENT, "the lane has written it down", worker.tail)
    _, before = asked(two.flow.file.path, "list")
    owners = two.owners()
    path = without_source(two, tmp_path)

    code, after = asked(path, "list")
    (it,), (was,) = after["incidents"], before["incidents"]
    assert (code, it["id"], it["position"], it["commands"]) == (AWAY, was["id"], was["position"], was["commands"])
    assert "cluster 'here'" in after["errors"][two.name]
    assert asked(path, "show", it["id"]) == (0, it)

    command = [sys.executable, "-m", "cli.main", "status", "-c", str(path)]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    (flow,) = json.loads(done.stdout)["flows"]
    rows = {row["source_topic"]: row for row in flow["partitions"]}
    first, second = rows[two.first], rows[two.second]
    assert (done.returncode, flow["lag_records"]) == (AWAY, None)
    assert (first["state"], first["incident"], first["occurrence"]) == ("stopped", "record_refused", it["id"])
    assert (second["state"], second["position"], second["source_end"]) == ("waiting", 5, None)
    assert {first["owner"], second["owner"]} == owners
    assert second["last_commit"]

    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == AWAY
    assert f"incident resolve {it['id']} --set-aside --why TEXT" in done.stdout
    assert done.stderr.startswith(f"error: flow {two.name}: cluster 'here' (127.0.0.1:")
    assert asked(path, "resolve", it["id"], "--skip", "--why", "nobody reads it")[0] == 0
    assert worker.stop() == 0, worker.tail()


@pytest.mark.tier("long", kafka="long")
def test_what_keeps_a_flow_without_claims_from_starting_is_listed_as_plan_and_status_tell_it(
    make_copying: MakeCopying,
) -> None:
    copying = make_copying(partitions=1)
    path, control = copying.file.path, f"__eos.{copying.name}.control"
    assert asked(path, "list")[0] == 0
    clients.create_topic(copying.target, control, 1, {"cleanup.policy": "delete"})
    assert copying.asked("plan")[0] == INCIDENT
    assert copying.asked("status")[1]["incident"] == "control_topic_unfit"
    code, found = asked(path, "list")
    (it,) = found["incidents"]
    assert (code, it["name"], it["topic"]) == (INCIDENT, "control_topic_unfit", "")
    assert f"eos-replicate rebuild-control --flow {copying.name} -c FILE" in it["advice"]
    assert asked(path, "show", it["id"]) == (0, it)
    worker = copying.run()
    worker.wait_incident("control_topic_unfit")
    assert worker.wait_exit() == INCIDENT, worker.tail()
    assert asked(path, "show", it["id"]) == (0, it)
    clients.set_topic_config(copying.target, control, "cleanup.policy", "compact")
    assert asked(path, "list")[0] == 0


@pytest.mark.tier("long", kafka="long")
def test_what_has_ended_a_flow_without_claims_is_listed_until_it_runs_again(make_copying: MakeCopying) -> None:
    """Of a flow that selects no topic yet, in a process that goes on with another one."""
    copying = make_copying(partitions=1, limits={"discovery_interval_ms": 600_000})  # until it is started again
    other = make_copying(partitions=1)
    copying.file.write(topics=[f"^{copying.name}[.]later.*"])
    copying.file.include(other.file)
    path, control = copying.file.path, f"__eos.{copying.name}.control"
    worker = copying.run("", "--shared")
    worker.wait_event("generation_opened", flow=copying.name)
    clients.delete_topic(copying.target, control)
    worker.wait_event("flow_ended", flow=copying.name)

    def listed() -> list[dict[str, Any]]:
        return [it for it in asked(path, "list")[1]["incidents"] if it["flow"] == copying.name]

    wait_until(lambda: bool(listed()), "its end is noted", worker.tail)
    (it,) = listed()
    assert (it["name"], it["topic"]) == ("control_topic_lost", "")
    assert asked(path, "show", it["id"])[0] == 0
    copying.file.write(limits={"discovery_interval_ms": 1_000})
    worker.signal(signal.SIGHUP)  # a flow whose file has changed is started at once
    wait_until(lambda: not listed(), "it runs again", worker.tail)
    assert worker.stop() == 0, worker.tail()


@pytest.mark.tier("long", kafka="long")
def test_the_id_that_was_listed_before_a_worker_has_written_it_down_stays_good(make_copying: MakeCopying) -> None:
    two = TwoTopics(make_copying(partitions=1))
    path = two.flow.file.path
    two.assert_stops(two.running(10), 0)
    two.put(two.first, numbered("unread", 10))
    clients.delete_records(two.source, two.first, 0, 15)
    (before,) = asked(path, "list")[1]["incidents"]
    assert (before["name"], before["commands"]) == ("source_records_gone", [])
    skip = ("resolve", before["id"], "--skip", "--why", "nobody reads them")
    assert asked(path, *skip)[0] == 1, "nobody has written it down"
    worker = two.flow.running()
    wait_until(lambda: bool(asked(path, "list")[1]["incidents"][0]["commands"]), "it is written down", worker.tail)
    (after,) = asked(path, "list")[1]["incidents"]
    assert after["id"] != before["id"]
    assert asked(path, "show", before["id"]) == (0, after)
    assert asked(path, *skip)[1]["moved"] == [10, 15]
    two.wait_copied(two.first, b"unread 9")
    assert asked(path, "list")[0] == 0
    two.assert_stops(worker, 0)
