"""The process: signals, flows that are started again, and the exit code."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NoReturn, cast

import pytest
from structlog.testing import capture_logs

from replicator.config import Flow, load_text
from replicator.flow import daemon as module
from replicator.flow.daemon import SIGNALS, Daemon
from replicator.flow.parts import Parts
from replicator.model.errors import Incident, TakenOver, Unreachable
from replicator.state.flow_end import FlowEnd

Attempt = Callable[["Script"], int]
HANGS_S = 30.0
"""Longer than a test: one in which the process waits for what hangs fails."""


class Left(SystemExit):
    """The process has left."""


class Script:
    """Stands in for FlowWorker: does what the next attempt of its flow says."""

    attempts: dict[str, list[Attempt]] = {}  # noqa: RUF012 - set by each test
    over = threading.Event()  # the test is over: what hangs ends

    def __init__(
        self,
        flow: Any,
        config: Any,
        parts: Parts,
        log: Any,
        *,
        take_over: bool,
        exit_on_incident: bool,
        told_before: bool,
        told: dict[str, float],
    ) -> None:
        self.name = flow.name
        self.asked = threading.Event()
        self._told: Callable[[], None] | None = None
        self.stopped_early = False

    def lanes_started(self) -> None:
        told, self._told = self._told, None
        if told is not None:
            told()

    def stop(self) -> None:
        self.asked.set()

    def take(self, config: Any) -> None:
        """Another state of the file."""

    def run(self, lanes_started: Callable[[], None]) -> int:
        self._told = lanes_started
        return self.attempts[self.name].pop(0)(self)


def copies(script: Script) -> int:
    """Runs until asked to stop."""
    script.lanes_started()
    assert script.asked.wait(10)
    return 0


def hangs(script: Script) -> int:
    script.lanes_started()
    Script.over.wait(HANGS_S)
    return 0


def connects(script: Script) -> int:
    """Never gets to its lanes."""
    Script.over.wait(HANGS_S)
    return 0


def raises(error: BaseException) -> Attempt:
    def attempt(script: Script) -> int:
        raise error

    return attempt


def signals(number: int, then: Attempt = copies) -> Attempt:
    """Sends the process a signal once it copies."""

    def attempt(script: Script) -> int:
        script.lanes_started()
        os.kill(os.getpid(), number)
        return then(script)

    return attempt


@pytest.fixture(autouse=True)
def _handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored if the tests themselves were started by nohup
    monkeypatch.setattr(module, "FlowWorker", Script)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(gc, "set_threshold", lambda *of: None)
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    Script.over = threading.Event()
    yield
    Script.over.set()
    for number, handler in before.items():
        signal.signal(number, handler)


NoteEnd = Callable[[Flow, FlowEnd], None]


def run(
    stop_timeout_ms: int = 10_000,
    note_end: NoteEnd = lambda flow, end: None,
    *,
    exit_on_incident: bool = False,
    **attempts: list[Attempt],
) -> tuple[int, list[dict[str, Any]]]:
    """The exit code of a process with these flows, and its log. Flows look for topics every 100 ms."""
    limits = f"limits: {{stop_timeout_ms: {stop_timeout_ms}, discovery_interval_ms: 100}}"
    flows = "\n".join(f"  {name}: {{source: a, target: b, topics: [{name}], {limits}}}" for name in attempts)
    config = load_text(
        f"""\
clusters:
  a: {{properties: {{bootstrap.servers: "a:1"}}}}
  b: {{properties: {{bootstrap.servers: "b:1"}}}}
flows:
{flows}
""",
        env={},
    )
    Script.attempts = {name: list(each) for name, each in attempts.items()}

    left, parts = list[int](), Parts(cast(Any, None), cast(Any, None), note=cast(Any, note_end))

    def leave(code: int) -> NoReturn:
        left.append(code)
        raise Left  # in the main thread, or in the one that hears signals

    with capture_logs() as logs:
        flows_made = list(config.flows.values())
        made = Daemon(config, flows_made, lambda log: parts, exit_on_incident=exit_on_incident, leave=leave)
        with suppress(Left):
            left.append(made.run())
    return left[0], cast(list[dict[str, Any]], logs)


def test_a_stop_right_after_a_flow_was_started_again_leaves_the_code_of_the_time_before() -> None:
    """Its lanes have not come as far as the incident again."""

    def early(script: Script) -> int:
        script.stopped_early = True
        return copies(script)

    incident = raises(Incident("control_topic_lost", "it is not there"))
    code, logs = run(f=[incident, signals(signal.SIGTERM, early)], other=[copies])
    assert code == 4
    assert logs[-1]["flows"] == {"f": 4, "other": 0}
    assert run(f=[incident, signals(signal.SIGTERM)], other=[copies])[0] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_each_signal_stops_cleanly(number: signal.Signals) -> None:
    code, logs = run(f=[signals(number)])
    assert code == 0
    assert [entry["event"] for entry in logs] == ["stopped"]


def test_a_signal_that_comes_when_all_is_done_leaves_the_exit_code() -> None:
    """At its end Python restores the default of each handler that is a function, and the default kills."""
    run(f=[lambda script: Incident.exit_code])
    assert {signal.getsignal(number) for number in SIGNALS} == {signal.SIG_IGN}


@pytest.mark.parametrize("had", [signal.SIG_IGN, signal.SIG_DFL], ids=["nohup", "not"])
def test_a_hang_up_ends_nothing_without_a_terminal(had: signal.Handlers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "has_terminal", lambda: False)
    signal.signal(signal.SIGHUP, had)

    def then(script: Script) -> int:
        assert not script.asked.wait(0.2)
        os.kill(os.getpid(), signal.SIGTERM)
        return copies(script)

    assert run(f=[signals(signal.SIGHUP, then)])[0] == 0


@pytest.mark.parametrize("had", [signal.SIG_DFL, signal.SIG_IGN], ids=["closed", "closed under nohup"])
def test_a_hang_up_stops_cleanly_when_the_terminal_was_closed(
    had: signal.Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = [True]
    monkeypatch.setattr(module, "has_terminal", lambda: there[0])
    signal.signal(signal.SIGHUP, had)

    def attempt(script: Script) -> int:
        script.lanes_started()
        os.kill(os.getpid(), signal.SIGHUP)
        assert not script.asked.wait(0.2), "the terminal is there: the file is read again"
        there[0] = False
        os.kill(os.getpid(), signal.SIGHUP)
        if had is signal.SIG_IGN:
            assert not script.asked.wait(0.2), "nohup"
            os.kill(os.getpid(), signal.SIGTERM)
        return copies(script)

    assert run(f=[attempt])[0] == 0


def test_a_signal_that_is_delivered_twice_is_one_request() -> None:
    def then(script: Script) -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        return copies(script)

    assert run(f=[signals(signal.SIGTERM, then)])[0] == 0


@pytest.mark.tier("full")
def test_a_second_signal_leaves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAME_SIGNAL_S", 0.0)

    def then(script: Script) -> int:
        assert script.asked.wait(10)
        os.kill(os.getpid(), signal.SIGTERM)
        return hangs(script)

    assert run(f=[signals(signal.SIGTERM, then)])[0] == 128 + signal.SIGTERM


def test_the_process_is_gone_in_time_whatever_hangs() -> None:
    began_s = time.monotonic()
    code, logs = run(stop_timeout_ms=500, f=[signals(signal.SIGTERM, hangs)])
    assert time.monotonic() - began_s < HANGS_S
    assert code == 3, "something was not finished"
    assert logs[-1]["flows"] == {"f": 3}


def test_before_lanes_have_started_there_is_nothing_to_finish() -> None:
    def attempt(script: Script) -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        return connects(script)

    began_s = time.monotonic()
    assert run(f=[attempt])[0] == 0
    assert time.monotonic() - began_s < HANGS_S


def test_a_flow_that_connects_is_not_waited_for_once_the_others_are_finished() -> None:
    began_s = time.monotonic()
    assert run(f=[signals(signal.SIGTERM)], g=[connects])[0] == 0
    assert time.monotonic() - began_s < HANGS_S


@pytest.mark.parametrize("error", [Unreachable("away"), Incident("target_not_empty", "there")])
def test_a_flow_that_ended_is_started_again_while_another_copies(error: Exception) -> None:
    back = signals(signal.SIGTERM)
    code, logs = run(f=[copies], g=[raises(error), raises(error), back])
    assert code == 0
    told = [entry["log_level"] for entry in logs if entry["event"] == "flow_ended"]
    assert told == ["error", "debug"], "the same cause is told once"
    assert [entry["flow"] for entry in logs if entry["event"] == "flow_started_again"] == ["g"]


def test_how_a_flow_has_ended_is_noted_once_while_another_copies() -> None:
    """Not after it was taken over: another process has it, and this one writes nothing any more."""
    noted: list[tuple[str, str, str, int]] = []

    def note(flow: Flow, end: FlowEnd) -> None:
        noted.append((flow.name, end.kind, end.detail, end.exit_code))

    away, back = raises(Unreachable("away")), signals(signal.SIGTERM)
    assert run(note_end=note, f=[copies], g=[away, away, back])[0] == 0
    assert noted == [("g", "Unreachable", "away", 3)]
    noted.clear()
    run(note_end=note, f=[signals(signal.SIGTERM)], g=[raises(TakenOver("by another"))])
    run(note_end=note, f=[raises(Unreachable("away"))])
    assert noted == []


def test_the_incident_of_a_whole_flow_is_noted_by_its_name() -> None:
    noted: list[str] = []
    unfit = Incident("control_topic_unfit", "why", topic="__eos.g.control")
    for error in (unfit, Incident("record_refused", "why", topic="t", partition=0), Unreachable("away")):
        run(
            note_end=lambda _, end: noted.append(end.incident),
            f=[copies],
            g=[raises(error), signals(signal.SIGTERM)],
        )
    assert noted == ["control_topic_unfit", "", ""]


def test_an_end_that_cannot_be_noted_is_told() -> None:
    def note(flow: Flow, end: FlowEnd) -> None:
        raise Unreachable("the target is away")

    code, logs = run(note_end=note, f=[copies], g=[raises(Unreachable("away")), signals(signal.SIGTERM)])
    assert code == 0
    told = [(entry["flow"], entry["reason"]) for entry in logs if entry["event"] == "end_not_noted"]
    assert told == [("g", "the target is away")]


def test_a_flow_that_was_taken_over_is_not_started_again() -> None:
    def attempt(script: Script) -> int:
        script.lanes_started()
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
        return copies(script)

    code, logs = run(f=[attempt], g=[raises(TakenOver("by another"))])
    assert code == 5
    assert "flow_started_again" not in [entry["event"] for entry in logs]
    told = [entry for entry in logs if entry["event"] == "flow_over"]
    assert len(told) > 1, "again and again"
    assert {(entry["flow"], entry["detail"], entry["exit_code"]) for entry in told} == {("g", "by another", 5)}


def test_when_all_flows_have_ended_the_process_leaves_with_the_worst_code() -> None:
    code, logs = run(f=[raises(Unreachable("away"))], g=[raises(Incident("target_not_empty", "there"))])
    assert code == 4
    told = next(entry for entry in logs if entry["event"] == "incident")
    assert told["advice"]
    assert logs[-1]["flows"] == {"f": 3, "g": 4}


def test_a_bug_ends_the_process() -> None:
    code, logs = run(f=[copies], g=[raises(ValueError("a bug"))])
    assert code == 70
    assert "bug" in [entry["event"] for entry in logs]


@pytest.mark.parametrize("ends", [raises(Incident("target_not_empty", "there")), lambda script: 4])
def test_an_incident_of_one_flow_ends_all_if_that_is_wanted(ends: Attempt) -> None:
    code, logs = run(f=[copies], g=[ends], exit_on_incident=True)
    assert code == 4
    assert logs[-1]["flows"] == {"f": 0, "g": 4}
    code, logs = run(f=[copies], g=[raises(Unreachable("away")), signals(signal.SIGTERM)], exit_on_incident=True)
    assert code == 0, "what may pass is waited for"
