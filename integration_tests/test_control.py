"""`pause`, `resume` and `rate`, typed while the flow runs: by real processes, on both brokers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.compare import assert_exact, wait_key
from integration_tests.harness.copying import Copying
from integration_tests.harness.load import Load
from integration_tests.harness.processes import wait_until
from integration_tests.harness.replicator import Replicator
from integration_tests.test_metrics import observed
from replicator.observe.view import Doing

FULL = pytest.mark.tier("full", kafka="full")
SMOKE = pytest.mark.tier("default", kafka="full")
ASKED_S_MAX = 120.0
OFTEN = 4  # commands that are killed
BYTES_PER_S, RECORD_BYTES, IN_A_BATCH, RECORDS = 20_000, 500, 20, 1_000
FAR_BYTES = 140_000  # takes 7 s less what may be ahead
AHEAD_S = 3.0
"""What was saved up before (1 s), one transaction (1 s, or one batch), and the topic's first one of unknown size."""


def command(flow: Copying, *words: str) -> Sequence[str]:
    return [sys.executable, "-m", "cli.main", *words, "-c", str(flow.file.path), "--flow", flow.name]


def typed(flow: Copying, *words: str) -> dict[str, Any]:
    """What a command that is typed says with --json."""
    done = subprocess.run(
        [*command(flow, *words), "--json"], capture_output=True, text=True, check=False, timeout=ASKED_S_MAX
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def states(flow: Copying) -> set[str]:
    return {row["state"] for row in flow.asked("status")[1]["partitions"]}


def wait_paused(worker: Replicator, flow: Copying, after: int) -> None:
    """Each partition that was copied is said to wait for somebody."""
    for number in range(flow.partitions):
        worker.wait_event("waiting", after=after, reason="paused", partition=number)


@pytest.mark.tier("full")
def test_a_flow_is_paused_over_a_restart_and_resumed(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=2)
    worker = copying.running()
    copying.load.mixed(100)
    copying.wait_copied()
    mark = worker.mark()
    said = typed(copying, "pause", "--why", "the target is moved", "--by", "ann")
    assert (said["changed"], list(said["paused"])) == (True, [""])
    wait_paused(worker, copying, mark)
    ends = copying.target_ends()
    copying.load.mixed(100)
    assert worker.runs_on(2.0)
    assert states(copying) == {"paused"}
    assert copying.target_ends() == ends, "it copies on"
    assert len(worker.seen("lane_started")) == 1, "it has lost its fence for a pause"
    assert worker.stop() == 0
    worker = copying.running()
    assert worker.runs_on(1.0)
    assert states(copying) == {"paused"}
    assert copying.asked("status")[1]["paused"][""]["why"] == "the target is moved"
    assert typed(copying, "pause")["changed"] is False, "it was so before"
    mark = worker.mark()
    assert typed(copying, "resume")["paused"] == {}
    worker.wait_event("copying", after=mark)
    copying.load.mixed(20)
    copying.finish(worker)


@pytest.mark.tier("long", kafka="long")
def test_what_will_stop_a_paused_partition_is_told_everywhere_while_it_is_paused(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=2, limits={"discovery_interval_ms": 1_000})
    asked, worker = observed(copying), copying.running()
    for partition in range(2):
        clients.put(clients.producer(copying.source), copying.topic, *[b"first"] * 5, partition=partition)
    asked.wait("all is copied", lambda it: it.value("eos_flow_records_total", flow=copying.name) == 10)
    mark = worker.mark()
    typed(copying, "pause", "--by", "ann")
    wait_paused(worker, copying, mark)
    clients.put(clients.producer(copying.source), copying.topic, *[b"lost"] * 5, partition=0)
    clients.delete_records(copying.source, copying.topic, 0, 8)
    worker.wait_event("incident", after=mark, name="source_records_gone", partition=0)
    [lost, paused] = copying.asked("status")[1]["partitions"]
    assert (lost["state"], lost["incident"], paused["state"]) == ("records_lost", "source_records_gone", "paused")
    assert lost["occurrence"], "it can be decided about"
    labels = {"flow": copying.name, "topic": copying.topic}
    asked.wait("it is counted", lambda it: it.value("eos_partition_state", **labels, partition="0") == Doing.STOPPED)
    assert asked.value("eos_partition_state", **labels, partition="1") == Doing.PAUSED
    assert asked.value("eos_partition_cause", **labels, partition="0", kind="source_records_gone") == 1
    shown = copying.asked("top")[1]
    assert [(it["state"], it["kind"]) for it in shown["not_copied"]] == [
        ("stopped", "source_records_gone"),
        ("paused", "paused"),
    ]
    assert shown["paused"][""]["by"] == "ann"
    page = asked.get("/")[1]
    assert "source_records_gone" in page
    assert "The flow is paused by ann" in page
    typed(copying, "resume")
    worker.wait_event("copying", after=mark, partition=1)
    assert asked.value("eos_partition_state", **labels, partition="0") == Doing.STOPPED
    assert worker.stop() == 4


@FULL
def test_a_topic_is_paused_alone_and_a_name_that_is_misspelt_is_told(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=2)
    other = f"{copying.name}.other"
    clients.create_topic(copying.source, other, 1)
    copying.file.write(topics=[copying.topic, other])
    load = Load(copying.source, other, 1, seed=5)
    worker = copying.running()
    mark = worker.mark()
    typed(copying, "pause", "--topics", copying.topic)
    wait_paused(worker, copying, mark)
    copying.load.mixed(100)
    load.mixed(100)
    load.finish()
    wait_key(copying.target, f"{other}.copy", 1, load.last)
    assert states(copying) == {"paused", "in_sync"}
    wrong = subprocess.run(
        command(copying, "pause", "--topics", f"{other}x"), capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 2
    assert other in wrong.stderr
    typed(copying, "pause")
    refused = subprocess.run(
        command(copying, "resume", "--topics", copying.topic), capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2, "the whole flow is paused"
    typed(copying, "resume")
    copying.finish(worker)
    assert_exact(copying.source, other, copying.target, f"{other}.copy", 1)


@SMOKE
@pytest.mark.tier("full")
def test_a_rate_holds_while_the_flow_runs_and_is_lifted(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=1)
    asked = observed(copying)
    worker = copying.running()
    typed(copying, "rate", "--records-per-s", "40", "--by", "ann")
    worker.wait_event("settings_taken")
    mark, began_s = worker.mark(), time.monotonic()
    for _ in range(4):
        copying.load.mixed(100)
    assert worker.runs_on(3.0)
    copied = sum(event["records"] for event in worker.seen("committed", after=mark))
    took_s = time.monotonic() - began_s
    assert 0 < copied <= 40 * (took_s + 1) + 40, f"{copied} records in {took_s:.1f} s"
    assert typed(copying, "rate")["rates"][""]["records_per_s"] == 40
    assert asked.value("eos_flow_rate_limit_records_per_second", flow=copying.name) == 40
    assert "The flow is copied with at most 40 records/s, set by ann." in asked.get("/")[1]
    assert copying.asked("top")[1]["rates"][""]["records_per_s"] == 40
    mark = worker.mark()
    assert typed(copying, "rate", "--reset")["rates"] == {}
    worker.wait_event("settings_taken", after=mark)
    assert asked.value("eos_flow_rate_limit_records_per_second", flow=copying.name) is None
    copying.finish(worker)


@FULL
def test_the_rate_of_the_flow_file_and_of_a_topic_by_bytes(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=2, rate={"bytes_per_s": "20kB"})
    worker = copying.running()
    typed(copying, "rate", "--topics", copying.topic, "--records-per-s", "200")
    worker.wait_event("settings_taken")
    copying.load.mixed(600)
    copying.finish(worker)


@pytest.mark.tier("long", kafka="long")
@pytest.mark.parametrize("backlog", [False, True], ids=["as they are written", "of a backlog"])
@pytest.mark.parametrize("of_topic", [False, True], ids=["of the flow file", "of a topic"])
@pytest.mark.parametrize("engine", ["records", "batches"])
def test_a_rate_in_bytes_bounds_what_is_copied(
    make_copying: MakeCopying, engine: str, *, of_topic: bool, backlog: bool
) -> None:
    """At no time was more copied than the rate times the seconds, plus what had been saved up and one transaction."""
    copying = make_copying(partitions=1, engine=engine, **({} if of_topic else {"rate": {"bytes_per_s": "20kB"}}))
    asked, which = observed(copying), ("--topics", copying.topic) if of_topic else ()
    worker = copying.running()
    if of_topic:
        typed(copying, "rate", *which, "--bytes-per-s", "20kB")
        worker.wait_event("settings_taken")
    if backlog:
        typed(copying, "pause")
        wait_paused(worker, copying, 0)
    began_s, writer = time.monotonic(), clients.producer(copying.source)
    for _ in range(RECORDS // IN_A_BATCH):
        clients.put(writer, copying.topic, *[bytes(RECORD_BYTES - 1)] * IN_A_BATCH, key=b"k")
    if backlog:
        typed(copying, "resume")

    def copied() -> float:
        return RECORD_BYTES * (asked.value("eos_flow_records_total", flow=copying.name) or 0)

    def far() -> bool:
        found, took_s = copied(), time.monotonic() - began_s
        assert found <= BYTES_PER_S * (took_s + AHEAD_S), f"{found:.0f} bytes in {took_s:.1f} s"
        return found >= FAR_BYTES

    wait_until(far, "it goes on at its rate", worker.tail)
    typed(copying, "rate", *which, "--bytes-per-s", "1GB")
    wait_until(lambda: copied() == RECORDS * RECORD_BYTES, "the rest is copied", worker.tail)
    assert worker.stop() == 0, worker.tail()


@pytest.mark.tier("long", kafka="long")
def test_a_limited_topic_has_all_of_its_partitions_copied(make_copying: MakeCopying) -> None:
    """One that has much to copy doesn't keep the others waiting, and the rate is that of all of them."""
    copying = make_copying(partitions=4)
    worker = copying.running()
    typed(copying, "rate", "--topics", copying.topic, "--records-per-s", "20")
    worker.wait_event("settings_taken")
    copying.load.mixed(4_000)

    def moved() -> list[int]:
        offsets = [clients.committed(copying.target, copying.group, copying.copy, number).offset for number in range(4)]
        return [max(0, offset) for offset in offsets]

    wait_until(lambda: all(offset >= 100 for offset in moved()), "each partition has had a turn", worker.tail)
    assert sum(moved()) < 3_000, "it was limited all the while"
    typed(copying, "rate", "--topics", copying.topic, "--reset")
    copying.finish(worker)


@pytest.mark.tier("long", kafka="long")
@pytest.mark.parametrize("engine", ["records", "batches"])
def test_partitions_of_a_limited_flow_take_turns_from_the_start(make_copying: MakeCopying, engine: str) -> None:
    """What the first fetch has of one partition is worth minutes."""
    copying = make_copying(partitions=3, engine=engine, rate={"records_per_s": 40})
    writer = clients.producer(copying.source)
    for number in range(3):
        clients.put(writer, copying.topic, *[b"%d" % number] * 2_000, partition=number)
    worker = copying.running()

    def moved() -> list[int]:
        offsets = [clients.committed(copying.target, copying.group, copying.copy, number).offset for number in range(3)]
        return [max(0, offset) for offset in offsets]

    wait_until(lambda: all(offset >= 40 for offset in moved()), "each partition has had a turn", worker.tail)
    assert sum(moved()) < 1_500, "none had all of its records copied"
    assert worker.stop() == 0, worker.tail()


@pytest.mark.tier("long")
def test_a_slow_rate_is_not_taken_for_a_source_that_does_not_serve(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=1)
    worker = copying.running()
    typed(copying, "rate", "--topics", copying.topic, "--records-per-s", "7")
    worker.wait_event("settings_taken")
    clients.put(clients.producer(copying.source), copying.topic, *[b"slow"] * 300)
    wait_until(lambda: sum(it["records"] for it in worker.seen("committed")) == 300, "all is copied", worker.tail)
    assert worker.seen("waiting") == []
    assert worker.stop() == 0, worker.tail()


@pytest.mark.tier("long", kafka="long")
def test_a_topic_that_a_reload_has_excluded_is_told_as_such_everywhere(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=1, rate={"records_per_s": 9_000})
    bills, gone = f"{copying.name}.bills", "no longer in the flow file"
    clients.create_topic(copying.source, bills, 1)
    copying.file.write(topics=[copying.topic, bills])
    clients.put(clients.producer(copying.source), bills, b"bill")
    asked, worker = observed(copying), copying.running()
    worker.wait_event("committed")
    typed(copying, "pause", "--topics", bills, "--by", "ann")
    assert typed(copying, "rate", "--topics", bills, "--records-per-s", "7")["rates"][""]["records_per_s"] == 9_000
    assert copying.asked("status")[1]["rates"][""]["by"] == "", "the flow file's"
    copying.file.write(topics=[copying.topic])
    worker.signal(signal.SIGHUP)
    worker.wait_event("config_reloaded")
    wait_until(lambda: copying.asked("top")[1]["taken_out"] == [bills], "top says so", worker.tail)

    def told(*words: str) -> str:
        done = subprocess.run(
            command(copying, *words), capture_output=True, text=True, check=False, timeout=ASKED_S_MAX
        )
        return done.stdout + done.stderr

    status = subprocess.run(
        [sys.executable, "-m", "cli.main", "status", "-c", str(copying.file.path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=ASKED_S_MAX,
    ).stdout
    for shown in (status, told("rate")):
        assert f"{bills} ({gone}) is paused by ann" in shown
        assert f"{bills} ({gone}) is copied with at most 7 records/s" in shown
    assert f"{bills} ({gone}) is paused by ann" in asked.get("/")[1]
    assert f"{bills}[0] → {bills}.copy ({gone})" in told("position", "show")
    at = ("--partition", f"{bills}:0", "--offset", "0", "--why", "x", "--take-over")
    assert f"it is {gone}" in told("position", "set", *at)
    done = told("resume", "--topics", bills)
    assert done.startswith(f"{copying.name}: no longer paused")
    assert "resumed" not in done
    copying.finish(worker)


@FULL
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "zombie"])
def test_commands_that_die_in_the_middle_leave_a_flow_that_can_be_paused(
    make_copying: MakeCopying, number: signal.Signals
) -> None:
    """Each is killed, or stopped and let go on when another has written, at another moment of its way."""
    copying = make_copying(partitions=1)
    worker = copying.running()
    zombies: list[subprocess.Popen[bytes]] = []
    try:
        for attempt in range(OFTEN):
            process = subprocess.Popen(command(copying, "pause", "--by", "zombie"), stderr=subprocess.PIPE)
            time.sleep(0.4 + 0.25 * attempt)  # where it is then is chance: anywhere has to be right
            os.kill(process.pid, number)
            zombies.append(process)
        mark = worker.mark()
        typed(copying, "resume")
        typed(copying, "pause", "--topics", copying.topic, "--by", "ann")
        for process in zombies:
            if number is signal.SIGSTOP:
                os.kill(process.pid, signal.SIGCONT)
            process.wait(ASKED_S_MAX)
            assert process.returncode in (-signal.SIGKILL, 0, 3, 5), process.stderr and process.stderr.read()
        assert worker.runs_on(1.0)
        settings = typed(copying, "rate")
        assert settings["paused"][copying.topic]["by"] == "ann", "a zombie has undone what was written since"
        assert worker.seen("waiting", after=mark, reason="paused") or states(copying) == {"paused"}
    finally:
        for process in zombies:
            process.kill()
    typed(copying, "resume")
    copying.load.mixed(50)
    copying.finish(worker)


@FULL
def test_two_operators_at_once_lose_nothing_of_each_other(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=1)
    worker = copying.running()
    topics = [f"{copying.name}.{number}" for number in range(3)]
    copying.file.write(topics=[copying.topic, *topics])
    for topic in topics:
        clients.create_topic(copying.source, topic, 1)
    both = [
        subprocess.Popen(command(copying, "pause", "--topics", topic), stderr=subprocess.PIPE, text=True)
        for topic in topics
    ]
    for process in both:
        _, said = process.communicate(timeout=ASKED_S_MAX)
        assert process.returncode == 0, said
    assert set(typed(copying, "rate")["paused"]) == set(topics)
    copying.finish(worker)


@FULL
def test_a_daemon_that_is_killed_while_it_is_paused_and_limited_copies_each_record_once(
    make_copying: MakeCopying,
) -> None:
    copying = make_copying(partitions=2)
    worker = copying.running()
    typed(copying, "rate", "--records-per-s", "100")
    with copying.writing(step=20):
        for words in (("pause",), ("resume",), ("pause", "--topics", copying.topic), ("resume",)):
            typed(copying, *words)
            worker.kill()
            worker = copying.running()
    typed(copying, "rate", "--reset")
    wait_until(lambda: typed(copying, "rate")["rates"] == {}, "no limit", worker.tail)
    copying.finish(worker)


@FULL
def test_a_flow_that_has_never_run_is_not_made_by_a_pause(make_copying: MakeCopying) -> None:
    copying = make_copying()
    done = subprocess.run(command(copying, "pause"), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "never run" in done.stderr
    assert not [topic for topic in clients.topics(copying.target) if copying.name in topic]
