"""The flow file is read again by a process that runs: changed flows are started anew, and no other notices."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.copying import Copying
from integration_tests.harness.processes import wait_until
from integration_tests.harness.replicator import DEFAULT
from replicator.model import names

FULL = pytest.mark.tier("full", kafka="full")
INCIDENT = 4
NOWHERE = "127.0.0.1:9"
TOLD_S_MAX = 12.0
SMOKE = pytest.mark.tier("default", kafka="full")


def with_flows(file: Copying, **flows: object) -> None:
    """Write the file with other settings of flows, in one step; None removes one."""
    content = yaml.safe_load(file.file.path.read_text())
    for name, changes in flows.items():
        if changes is None:
            del content["flows"][name]
        else:
            content["flows"][name] = {**content["flows"].get(name, {}), **changes}  # type: ignore[dict-item]
    beside = file.file.path.with_suffix(".new")
    beside.write_text(yaml.safe_dump(content, sort_keys=False))
    beside.rename(file.file.path)


def owners(flow: Copying) -> set[str | None]:
    """Who runs each partition, as `status` says."""
    return {row["owner"] for row in flow.asked("status")[1]["partitions"]}


@SMOKE
def test_a_changed_flow_starts_anew_and_the_other_keeps_its_session(make_copying: MakeCopying) -> None:
    kept, changed = make_copying(), make_copying()
    kept.file.include(changed.file)
    worker = kept.run()
    for it in (kept, changed):
        worker.wait_event("lane_started", flow=it.name)
    with kept.writing(), changed.writing():
        with_flows(kept, **{changed.name: {"commit": {"interval_ms": 50}}})
        worker.signal(signal.SIGHUP)
        told = worker.wait_event("config_reloaded")
        assert (told["changed"], told["unchanged"]) == ([changed.name], [kept.name])
        after = worker.mark()
        worker.wait_event("lane_started", flow=changed.name, after=worker.events.index(told))
        worker.wait_event("committed", flow=kept.name, after=after)
    kept.wait_copied()
    changed.wait_copied()
    assert len(worker.seen("lane_started", flow=kept.name)) == 1, "it was fenced anew, for nothing"
    assert worker.stop() == 0, worker.tail()
    kept.assert_exact()
    changed.assert_exact()


@FULL
def test_flows_come_and_go_with_a_file_that_is_watched(make_copying: MakeCopying) -> None:
    kept, late = make_copying(), make_copying()
    kept.file.include(late.file)
    with_both = kept.file.path.read_text()
    with_flows(kept, **{late.name: None})
    worker = kept.run("", "--watch-config")
    worker.wait_event("lane_started", flow=kept.name)
    late.load.mixed(100)
    kept.file.path.write_text(with_both)
    assert worker.wait_event("config_reloaded")["added"] == [late.name]
    worker.wait_event("lane_started", flow=late.name)
    with late.writing(), kept.writing():
        worker.wait_event("committed", flow=late.name)
        mark = worker.mark()
        with_flows(kept, **{late.name: None})
        assert worker.wait_event("config_reloaded", after=mark)["removed"] == [late.name]
        wait_until(lambda: owners(late) == {None}, "its positions are released", worker.tail)
        committed = len(worker.seen("committed", flow=late.name))
        worker.wait_event("committed", flow=kept.name, after=worker.mark())
        assert len(worker.seen("committed", flow=late.name)) == committed, "it copies on"
    kept.wait_copied()
    assert worker.stop() == 0
    assert worker.seen("stopped")[-1]["flows"] == {kept.name: 0}, "a removed flow is none of the process any more"
    kept.assert_exact()
    late.finish(late.running())


@FULL
def test_a_file_with_a_fault_changes_nothing_and_status_says_so(make_copying: MakeCopying) -> None:
    copying = make_copying()
    worker = copying.running()
    sound = copying.file.path.read_text()
    copying.file.path.write_text(sound.replace("topics:", "topix:"))
    worker.signal(signal.SIGHUP)
    told = worker.wait_event("config_not_reloaded")
    assert "topix" in told["detail"]
    assert "\n" not in told["detail"]
    copying.file.path.write_text(sound)
    wait_until(lambda: copying.asked("status")[1]["config_fault"] is not None, "status shows the fault", worker.tail)
    assert "topix" in copying.asked("status")[1]["config_fault"]["detail"]
    worker.signal(signal.SIGHUP)
    assert worker.wait_event("config_reloaded")["unchanged"] == [copying.name]
    wait_until(lambda: copying.asked("status")[1]["config_fault"] is None, "status shows that it is over", worker.tail)
    copying.load.mixed(50)
    copying.finish(worker)
    assert len(worker.seen("lane_started")) == 1


@FULL
@pytest.mark.parametrize("when", ["config_reloaded", "connecting"])
def test_a_kill_in_the_middle_of_a_reload_loses_nothing(make_copying: MakeCopying, when: str) -> None:
    copying = make_copying()
    worker = copying.running()
    with copying.writing():
        for interval_ms in (60, 70):
            with_flows(copying, **{copying.name: {"commit": {"interval_ms": interval_ms}}})
            mark = worker.mark()
            worker.signal(signal.SIGHUP)
            worker.wait_event(when, after=mark)
            worker.kill()
            worker = copying.running()
    copying.finish(worker)


@pytest.mark.tier("long", kafka="long")
@pytest.mark.parametrize("cluster", ["here", "there"])
@pytest.mark.parametrize("options", [("--standalone",), ("--shared",)], ids=["alone", "shared"])
def test_a_wrong_address_is_told_in_seconds_and_a_corrected_file_is_taken_at_once(
    make_copying: MakeCopying, options: tuple[str, ...], cluster: str
) -> None:
    copying = make_copying(limits={"connect_timeout_ms": 120_000})
    worker = copying.running("", *options)
    right = copying.file.path.read_text()
    if cluster == "here":
        copying.file.log_in(NOWHERE)
    else:
        copying.file.write_to_target({"bootstrap.servers": NOWHERE})
    worker.signal(signal.SIGHUP)
    worker.wait_event("config_reloaded")
    told = worker.wait_event("unreachable", cluster=cluster, timeout_s=TOLD_S_MAX)
    assert NOWHERE in told["reason"]
    copying.file.path.write_text(right)
    mark = worker.mark()
    worker.signal(signal.SIGHUP)
    worker.wait_event("config_reloaded", after=mark)
    worker.wait_event("lane_started", after=mark, timeout_s=TOLD_S_MAX)
    assert worker.seen("flow_ended") == [], "an attempt that the correction has ended is no error"
    copying.load.mixed(50)
    copying.finish(worker)


@pytest.mark.tier("long", kafka="long")
@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.1, 0.2, 0.3])
def test_a_control_topic_that_goes_while_a_flow_is_started_anew_is_told_within_seconds(
    make_copying: MakeCopying, after_s: float
) -> None:
    """Wherever the start is: it lists, reads the topic or writes it. With the product's own time-outs, which are
    long."""
    copying = make_copying(limits=dict.fromkeys(("request_timeout_ms", "transaction_timeout_ms"), DEFAULT))
    worker = copying.running()
    with_flows(copying, **{copying.name: {"commit": {"interval_ms": 60}}})
    mark = worker.mark()
    worker.signal(signal.SIGHUP)
    worker.wait_event("connecting", after=mark)
    time.sleep(after_s)  # whatever the start has come to
    clients.delete_topic(copying.target, names.control_topic(copying.name))
    began_s = time.monotonic()
    worker.wait_event("incident", name="control_topic_lost", after=mark)
    assert time.monotonic() - began_s < TOLD_S_MAX
    assert worker.wait_exit() == INCIDENT


@pytest.mark.tier("long", kafka="long")
def test_commands_that_write_the_control_topic_while_a_flow_is_started_anew_do_not_end_it(
    make_copying: MakeCopying,
) -> None:
    """Each of them initialises the control id, under which a process that runs alone opens its generation."""
    copying = make_copying()
    worker = copying.running()
    enough = threading.Event()

    def fence() -> None:
        while not enough.wait(0.1):
            clients.transactional(copying.target, names.control_id(copying.name))

    commands = threading.Thread(target=fence)
    commands.start()
    try:
        with_flows(copying, **{copying.name: {"commit": {"interval_ms": 60}}})
        mark = worker.mark()
        worker.signal(signal.SIGHUP)
        worker.wait_event("generation_tried_again", after=mark)
    finally:
        enough.set()
        commands.join()
    worker.wait_event("lane_started", after=mark)
    copying.load.mixed(50)
    copying.finish(worker)


@FULL
def test_a_terminal_that_is_closed_stops_the_process_cleanly(make_copying: MakeCopying) -> None:
    """And what it logs then, into a terminal that has gone, does no harm."""
    copying = make_copying()
    command = [sys.executable, "-m", "cli.main", "run", "-c", str(copying.file.path)]
    pid, master = pty.fork()
    if pid == 0:
        os.execv(sys.executable, command)
    shown = b""
    while b"lane_started" not in shown:
        shown += os.read(master, 4096)
    copying.load.mixed(100)
    os.close(master)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert owners(copying) == {None}
    copying.finish(copying.running())


@FULL
def test_under_nohup_it_outlives_its_terminal_and_reloads(make_copying: MakeCopying) -> None:
    copying = make_copying()
    log = copying.file.path.with_suffix(".log")
    log.touch()
    command = f"exec nohup {sys.executable} -m cli.main run -c {copying.file.path} --log-format json > {log} 2>&1"
    pid, master = pty.fork()
    if pid == 0:
        os.execv("/bin/sh", ["sh", "-c", command])
    try:
        wait_until(lambda: "lane_started" in log.read_text(), "it runs", log.read_text)
        os.close(master)
        wait_until(lambda: log.read_text().count("config_reloaded") == 1, "the hang-up is a reload", log.read_text)
        copying.load.mixed(100)
        copying.wait_copied()
        os.kill(pid, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        subprocess.run(["kill", "-9", str(pid)], check=False, capture_output=True)
    copying.assert_exact()


@pytest.mark.tier("long")
def test_a_reload_that_is_asked_for_while_it_starts_is_done_once_it_runs(make_copying: MakeCopying) -> None:
    """As soon as the process has any handler; before it has one, the system ends it."""
    copying = make_copying()
    log, process = _starting(copying)
    try:
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: log.read_text().count("config_reloaded") == 1, "it is reloaded", log.read_text)
        copying.load.mixed(50)
        copying.wait_copied()
        process.send_signal(signal.SIGTERM)
        assert process.wait(clients.TIMEOUT_S) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


@pytest.mark.tier("long")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_that_is_asked_for_while_it_starts_is_a_clean_one(
    make_copying: MakeCopying, number: signal.Signals
) -> None:
    copying = make_copying()
    log, process = _starting(copying)
    try:
        process.send_signal(number)
        assert process.wait(clients.TIMEOUT_S) == 0, log.read_text()
        said = [json.loads(line) for line in log.read_text().splitlines()]
        assert (said[-1]["event"], said[-1]["exit_code"]) == ("stopped", 0)
    finally:
        process.kill()
        process.wait()


def _starting(copying: Copying) -> tuple[Path, subprocess.Popen[bytes]]:
    """Its log, and a process of `run` as soon as it has any handler, before it does anything else."""
    log = copying.file.path.with_suffix(".log")
    command = [sys.executable, "-m", "cli.main", "run", "-c", str(copying.file.path), "--log-format", "json"]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=file, start_new_session=True)
    status = Path(f"/proc/{process.pid}/status")

    def hears() -> bool:
        caught = next(line for line in status.read_text().splitlines() if line.startswith("SigCgt:"))
        return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)

    wait_until(hears, "it hears signals", log.read_text)
    assert "connecting" not in log.read_text()
    return log, process
