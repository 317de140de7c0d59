"""A failover that is killed or interrupted at any of its steps, and its hooks: the same command, or --undo, goes on."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen
from typing import Any, NoReturn

import pytest

from cli import main
from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.copying import Copying
from integration_tests.harness.failing_over import Hook, asked, failover, started, wait_gone, wait_stopped, words
from integration_tests.harness.processes import wait_until
from integration_tests.harness.replicator import Replicator
from replicator import config
from replicator.failover.failover import FailoverRun
from replicator.failover.hook_runner import HookRunner
from replicator.failover.steps import DONE, RUN, UNDO, Steps
from replicator.flow.topics import ControlPlane
from replicator.model import names
from replicator.state.control import Changer

HOOK_FAILED, INTERRUPTED = 6, 130
RUN_STEPS = [*(step.failpoint for step in RUN), "failover_write", DONE]
UNDO_STEPS = [*(step.failpoint for step in UNDO), DONE]


@pytest.fixture
def hooks(tmp_path: Path) -> dict[str, Hook]:
    return {name: Hook(tmp_path, name) for name in ("on_freeze", "on_verdict", "on_undo")}


def of_file(hooks: dict[str, Hook], **more: int) -> dict[str, object]:
    """The section of the flow file."""
    return {**{name: hook.command for name, hook in hooks.items()}, **more}


def running_copy(make_copying: MakeCopying, records: int = 100, **settings: Any) -> tuple[Copying, Replicator]:
    """A flow that a worker has copied so far, and goes on copying."""
    copying = make_copying(**settings)
    copying.load.mixed(records)
    worker = copying.running("", "--shared")
    copying.wait_copied()
    return copying, worker


def killed(process: Popen[str]) -> None:
    """The process reaches its failpoint and is dead."""
    _, said = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL, said


def interrupted(process: Popen[str]) -> None:
    """The process has stopped itself at its failpoint; there it gets a ^C."""
    wait_stopped(process)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == INTERRUPTED, said


@pytest.mark.tier("long", kafka="long")
@pytest.mark.parametrize(
    ("action", "end"),
    [
        pytest.param("kill", killed, id="killed"),
        pytest.param("stop", interrupted, id="interrupted"),
    ],
)
def test_at_whatever_step_it_ends_the_same_command_goes_on(
    make_copying: MakeCopying, hooks: dict[str, Hook], action: str, end: Callable[[Popen[str]], None]
) -> None:
    copying, worker = running_copy(make_copying, records=200, failover=of_file(hooks))
    copying.wait_positions()
    for step in RUN_STEPS:
        end(started(copying, failpoints=f"{step}@1={action}"))
        if step == RUN_STEPS[1]:  # frozen from the next step on
            copying.wait_copied()
            copying.wait_positions()
            before = copying.target_ends()
            frozen_before = copying.wait_stable()
    code, verdict = failover(copying)
    assert code == 1, "the source's ends were never noted: no groups"
    copying.load.mixed(100)
    assert [row["position"] for row in verdict["partitions"]] == copying.wait_stable() == frozen_before
    assert copying.target_ends() == before
    code, kept = failover(copying, "--show")
    assert (kept["sha256"], kept["generation"], kept["stands"]) == (verdict["sha256"], verdict["generation"], True)
    assert all({told["generation"] for told in hook.told} <= {verdict["generation"]} for hook in hooks.values())
    assert hooks["on_verdict"].told[-1]["sha256"] == verdict["sha256"]
    for step in UNDO_STEPS[:-1]:
        end(started(copying, "--undo", failpoints=f"{step}@1={action}"))
        assert copying.wait_stable() == frozen_before
    end(started(copying, "--undo", failpoints=f"{UNDO_STEPS[-1]}@1={action}"))
    assert failover(copying, "--undo") == (0, {"flow": copying.name, "generation": None})
    assert failover(copying, "--show")[1]["stands"] is False
    copying.finish(worker)


@pytest.mark.tier("long", kafka="long")
def test_an_interrupt_ends_a_hook_with_all_that_it_has_started(
    make_copying: MakeCopying, hooks: dict[str, Hook], tmp_path: Path
) -> None:
    copying = make_copying(failover=of_file({"on_freeze": hooks["on_freeze"]}))
    copying.load.mixed(100)
    worker = copying.running()
    pids = tmp_path / "pids"
    hanging = f"trap '' INT TERM HUP\nsleep 600 & echo $! $$ > {pids}.new\nmv {pids}.new {pids}\nwait\nsleep 600"
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        hooks["on_freeze"].then(hanging)
        pids.unlink(missing_ok=True)
        process = started(copying)
        wait_until(pids.exists, "the hook runs", lambda: "")
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
        assert process.returncode == (INTERRUPTED if number == signal.SIGINT else -number), said
        if number == signal.SIGINT:
            assert "the same command goes on from there" in said
        wait_gone(pids)
    hooks["on_freeze"].then("exit 0")
    _, verdict = failover(copying)
    assert len(hooks["on_freeze"].told) == 4
    assert {told["generation"] for told in hooks["on_freeze"].told} == {verdict["generation"]}
    failover(copying, "--undo")
    worker.kill()
    copying.finish(copying.running())


@pytest.mark.tier("long", kafka="long")
def test_what_a_hook_that_fails_leaves(make_copying: MakeCopying, hooks: dict[str, Hook]) -> None:
    copying, worker = running_copy(make_copying, failover=of_file(hooks, hook_timeout_ms=2_000))
    on_freeze, on_verdict, on_undo = hooks["on_freeze"], hooks["on_verdict"], hooks["on_undo"]

    rehearsed = failover(copying, "--rehearse")[1]["hooks"]
    assert [(it["hook"], it["problem"]) for it in rehearsed] == [(name, "") for name in hooks]
    on_freeze.path.chmod(0o644)
    code, said = failover(copying, "--rehearse")
    assert code == HOOK_FAILED
    assert [it["problem"] for it in said["hooks"] if it["problem"]] == [f"{on_freeze.path} is not executable"]
    done = asked(copying)
    assert (done.returncode, "Nothing was changed" in done.stderr) == (HOOK_FAILED, True), done.stderr
    assert not on_undo.told

    for then, why in (("echo can not; exit 9", "exit code 9"), ("sleep 600", "within 2 s")):
        on_freeze.then(then)
        done = asked(copying)
        assert done.returncode == HOOK_FAILED
        assert why in done.stderr
        assert "all is undone: the flow runs again" in done.stderr
    assert [told["reason"] for told in on_undo.told] == ["on_freeze_failed"] * 2
    assert not on_verdict.told
    copying.load.mixed(50)
    copying.wait_copied()  # it runs again

    on_undo.then("exit 4")
    done = asked(copying)
    assert done.returncode == HOOK_FAILED
    assert "stays failed over" in done.stderr
    assert "exit code 4" in done.stderr
    on_undo.then("exit 0")
    done = asked(copying)
    assert done.returncode == HOOK_FAILED
    assert "because an earlier call had stopped it" in done.stderr
    on_freeze.then("exit 0")
    on_verdict.then("exit 5")
    done = asked(copying, "--json")
    assert done.returncode == HOOK_FAILED
    assert "its verdict is kept" in done.stderr
    verdict = json.loads(done.stdout)
    assert on_verdict.told[-1]["sha256"] == verdict["sha256"] == failover(copying, "--show")[1]["sha256"]
    runs = len(on_freeze.told), len(on_verdict.told)
    assert failover(copying, "--no-hooks")[0] == 1
    assert (len(on_freeze.told), len(on_verdict.told)) == runs
    on_undo.then("exit 4")
    done = asked(copying, "--undo")
    assert (done.returncode, "; the flow is failed over (generation" in done.stderr) == (HOOK_FAILED, True)
    assert failover(copying, "--undo", "--no-hooks")[0] == 0
    copying.finish(worker)


@pytest.mark.tier("long", kafka="long")
def test_two_operators_at_once_end_with_one_generation_and_one_verdict(make_copying: MakeCopying) -> None:
    copying, worker = running_copy(make_copying, records=200)
    for _ in range(2):
        both = [started(copying, "--json") for _ in range(2)]
        ended = [(process.communicate(timeout=120), process.returncode) for process in both]
        assert [code for _, code in ended] == [1, 1], ended
        first, second = (json.loads(out) for (out, _), _ in ended)
        kept = failover(copying, "--show")[1]
        assert first["generation"] == second["generation"] == kept["generation"]
        assert first["sha256"] == second["sha256"] == kept["sha256"]
        failover(copying, "--undo")
    copying.finish(worker)


@pytest.mark.tier("long", kafka="long")
def test_a_call_undoes_nothing_once_another_one_has_written_its_verdict(
    make_copying: MakeCopying, hooks: dict[str, Hook], tmp_path: Path
) -> None:
    copying, worker = running_copy(make_copying, failover=of_file({"on_freeze": hooks["on_freeze"]}))
    begun, go_on = tmp_path / "begun", tmp_path / "go-on"
    hooks["on_freeze"].then_wait(begun, go_on, "exit 1")
    first = started(copying)
    wait_until(begun.exists, "the first call has frozen the flow", lambda: "")
    code, verdict = failover(copying, "--no-hooks")
    assert code == 1
    go_on.touch()
    _, said = first.communicate(timeout=120)
    assert first.returncode == HOOK_FAILED
    assert "another call has ended with a verdict meanwhile" in said
    kept = failover(copying, "--show")[1]
    assert (kept["sha256"], kept["stands"]) == (verdict["sha256"], True)

    process = started(copying, "--no-hooks", failpoints="failover_verdict@1=stop")
    wait_stopped(process)
    failover(copying, "--undo")
    process.send_signal(signal.SIGCONT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 5, said
    assert "undone meanwhile" in said
    assert failover(copying, "--show")[1] == {**kept, "stands": False}
    copying.finish(worker)


@pytest.mark.tier("long", kafka="long")
def test_an_undo_leaves_a_failover_that_was_repeated_during_its_hook(
    make_copying: MakeCopying, hooks: dict[str, Hook], tmp_path: Path
) -> None:
    copying, worker = running_copy(make_copying, failover=of_file({"on_undo": hooks["on_undo"]}))
    failover(copying)
    begun, go_on = tmp_path / "begun", tmp_path / "go-on"
    for then, code, why in (("exit 0", 5, "another call has ended with a verdict"), ("exit 1", HOOK_FAILED, "code 1")):
        hooks["on_undo"].then_wait(begun, go_on, then)
        undoing = started(copying, "--undo")
        wait_until(begun.exists, "the hook runs", lambda: "")
        _, verdict = failover(copying)
        go_on.touch()
        _, said = undoing.communicate(timeout=120)
        assert (undoing.returncode, why in said) == (code, True), said
        kept = failover(copying, "--show")[1]
        assert (kept["sha256"], kept["stands"]) == (verdict["sha256"], True)
        begun.unlink()
        go_on.unlink()
    hooks["on_undo"].then_wait(begun, go_on, "exit 1")
    undoing = started(copying, "--undo")
    wait_until(begun.exists, "the hook runs", lambda: "")
    _, undone = failover(copying, "--undo", "--no-hooks")
    go_on.touch()
    _, said = undoing.communicate(timeout=120)
    assert undoing.returncode == HOOK_FAILED
    assert f"another call has opened generation {undone['generation']} meanwhile" in said
    copying.finish(worker)


@pytest.mark.tier("long", kafka="long")
def test_an_interrupt_while_the_flow_is_opened_says_so_and_the_next_call_says_why_it_waits(
    make_copying: MakeCopying, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copying = make_copying()
    copying.load.mixed(100)
    copying.running("", "--shared").kill()
    failover(copying)

    def interrupted(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Changer, "_finish", interrupted)
        assert main.invoke(words(copying, "--undo")[3:]) == INTERRUPTED
    said = capsys.readouterr().err
    assert "was being opened again: it runs, or is failed over still (generation 2)" in said
    assert "the same command goes on from there" in said
    done = asked(copying, "--undo")
    assert (done.returncode, "has begun generation 3: waiting for that to end" in done.stderr) == (0, True), done.stderr
    copying.finish(copying.running())


@pytest.mark.tier("long", kafka="long")
def test_the_kept_rows_fit_the_topic_and_are_checked_when_they_are_read(
    make_copying: MakeCopying, tmp_path: Path
) -> None:
    copying, _ = running_copy(make_copying, partitions=12)
    done = asked(copying, "--show")
    assert (done.returncode, "it was never failed over" in done.stderr) == (2, True)
    topic = names.cutovers_topic(copying.name)
    clients.create_topic(copying.target, topic, 1, {"cleanup.policy": "compact", "max.message.bytes": "2000"})
    page = tmp_path / "page.html"
    _, verdict = failover(copying, "--html", str(page))
    assert verdict["sha256"] in page.read_text()
    records = clients.read(copying.target, topic, 0)
    assert len(records) > 1
    assert max(len(it.value() or b"") for it in records) < 2_000
    code, kept = failover(copying, "--show", "--html", str(page))
    assert (code, kept) == (1, {**verdict, "stands": True})
    forged = json.loads(records[0].value() or b"")
    forged["partitions"][0]["position"] += 1
    writer = clients.producer(copying.target)
    writer.produce(topic, json.dumps(forged).encode(), records[0].key(), 0)
    writer.flush()
    done = asked(copying, "--show")
    assert (done.returncode, "SHA-256" in done.stderr) == (4, True), done.stderr
    assert failover(copying)[1]["sha256"] == verdict["sha256"]
    assert failover(copying, "--show")[1]["sha256"] == verdict["sha256"]


class Died(Exception):
    """In the place of a SIGKILL between two records of a change."""


@pytest.mark.tier("long", kafka="long")
def test_a_change_of_generations_that_was_left_half_done_is_finished(
    make_copying: MakeCopying, monkeypatch: pytest.MonkeyPatch
) -> None:
    copying = make_copying()
    copying.load.mixed(200)
    copying.running().kill()
    flow = config.load(copying.file.path).flows[copying.name]

    def died(*_: object) -> NoReturn:
        raise Died

    def half_done(change: Callable[[FailoverRun], object]) -> None:
        steps = Steps()
        with ControlPlane(flow) as plane, monkeypatch.context() as patched:
            plane.target.connect()
            patched.setattr(Changer, "_finish", died)
            with pytest.raises(Died):
                change(FailoverRun(flow, plane, "me", steps, HookRunner(flow.failover, steps)))

    half_done(FailoverRun.run)
    code, verdict = failover(copying)
    assert (code, verdict["generation"]) == (1, 2)
    before = copying.wait_stable()
    half_done(FailoverRun.undo)
    assert copying.wait_stable() == before
    assert failover(copying, "--undo") == (0, {"flow": copying.name, "generation": 3})
    copying.finish(copying.running())
