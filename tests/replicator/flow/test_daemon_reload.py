"""The process when its flow file is read again: which flows are stopped and started, and which are left alone."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from replicator.config import Config, load_text
from replicator.flow import daemon as module
from replicator.flow.config_watch import ConfigReader, ReadConfig
from replicator.flow.daemon import SIGNALS, Daemon
from replicator.flow.parts import Parts
from replicator.flow.restarts import Stage
from replicator.model.errors import ConfigError, Unreachable
from replicator.state.config_fault import ConfigFault
from replicator.state.flow_end import FlowEnd

WAIT_S = 10.0


class Attempts:
    """Stands in for FlowWorker, and keeps what every attempt was."""

    stopped_early = False
    made: list[Attempts] = []  # noqa: RUF012 - set by each test
    refused: set[str] = set()  # noqa: RUF012 - topics with which a flow can't log in
    arrived = threading.Condition()

    def __init__(
        self,
        flow: Any,
        config: Any,
        parts: Any,
        log: Any,
        *,
        take_over: bool,
        exit_on_incident: bool,
        told_before: bool,
        told: dict[str, float],
    ) -> None:
        self.flow, self.configs, self.asked = flow, [config], threading.Event()
        self.take_over = take_over
        self.may_end = threading.Event()
        self.may_end.set()

    def stop(self) -> None:
        self.asked.set()

    def take(self, config: Any) -> None:
        self.configs.append(config)

    def run(self, lanes_started: Any) -> int:
        if self.refused & set(self.flow.topics):
            with self.arrived:
                self.made.append(self)
                self.arrived.notify_all()
            raise Unreachable("cluster 'b' refused the credentials")
        lanes_started()
        with self.arrived:
            self.made.append(self)
            self.arrived.notify_all()
        assert self.asked.wait(WAIT_S)
        assert self.may_end.wait(WAIT_S)
        return 0

    @classmethod
    def wait(cls, count: int) -> list[Attempts]:
        with cls.arrived:
            assert cls.arrived.wait_for(lambda: len(cls.made) >= count, WAIT_S), f"only {len(cls.made)} attempts"
            return list(cls.made)

    @classmethod
    def wait_for(cls, topic: str) -> None:
        with cls.arrived:
            there = cls.arrived.wait_for(lambda: any(made.flow.topics == (topic,) for made in cls.made), WAIT_S)
            assert there, [made.flow.topics for made in cls.made]


def config(**topics: str) -> Config:
    often = "limits: {discovery_interval_ms: 100}"
    flows = "\n".join(
        f"  {name}: {{source: a, target: b, topics: [{topic}], {often}}}" for name, topic in topics.items()
    )
    clusters = (
        'clusters:\n  a: {properties: {bootstrap.servers: "a:1"}}\n  b: {properties: {bootstrap.servers: "b:1"}}\n'
    )
    return load_text(f"{clusters}flows:\n{flows}\n", env={})


class Process:
    """A daemon in the main thread, and what a test does meanwhile in another one."""

    def __init__(self, *, take_over: bool = False) -> None:
        self.file: Config | ConfigError = config(kept="k", changed="c", removed="r")
        self.logs: list[dict[str, Any]] = []
        self.told: list[list[str]] = []
        self.notes: list[tuple[str, ConfigFault | FlowEnd]] = []
        self.noted = threading.Condition()
        parts = Parts(cast(Any, None), cast(Any, None), note=self._note)
        assert isinstance(self.file, Config)
        self.reader = ConfigReader(self._read)
        reloaded = lambda flows: self.told.append([flow.name for flow in flows])  # noqa: E731
        flows = list(self.file.flows.values())
        self.daemon = Daemon(
            self.file, flows, lambda log: parts, take_over=take_over, reader=self.reader, reloaded=reloaded
        )

    def _note(self, flow: Any, note: Any) -> None:
        with self.noted:
            self.notes.append((flow.name, note))
            self.noted.notify_all()

    def _read(self) -> ReadConfig:
        if isinstance(self.file, ConfigError):
            raise self.file
        return ReadConfig(self.file, list(self.file.flows.values()))

    def reload(self, file: Config | ConfigError, told: int) -> None:
        """Have it read another file, and wait until it has `told` that many times what it did of it."""
        self.file = file
        self.reader.ask()
        deadline = threading.Event()
        for _ in range(1_000):
            if sum(entry["event"].startswith("config_") for entry in self.logs) >= told:
                return
            deadline.wait(0.01)
        raise AssertionError(self.logs)

    def wait_logged(self, event: str) -> None:
        """Until that stands in the log."""
        pause = threading.Event()
        for _ in range(1_000):
            if any(entry["event"] == event for entry in self.logs):
                return
            pause.wait(0.01)
        raise AssertionError(self.logs)

    def run(self, test: Any) -> int:
        failed: list[BaseException] = []

        def main() -> None:
            try:
                test(self)
            except BaseException as error:  # noqa: BLE001 - raised in the main thread
                failed.append(error)
            finally:
                self.daemon._events.put(module._Signalled(signal.SIGTERM))

        with capture_logs() as logs:
            self.logs = cast(list[dict[str, Any]], logs)
            thread = threading.Thread(target=main)
            thread.start()
            code = self.daemon.run()
            thread.join()
        if failed:
            raise failed[0]
        return code


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    monkeypatch.setattr(module, "FlowWorker", Attempts)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(gc, "set_threshold", lambda *of: None)
    Attempts.made, Attempts.refused = [], set()
    yield Process()
    for number, handler in before.items():
        signal.signal(number, handler)


def test_only_what_has_changed_is_touched(process: Process) -> None:
    def test(it: Process) -> None:
        first = {made.flow.name: made for made in Attempts.wait(3)}
        after = config(kept="k", changed="other", added="a")
        it.reload(after, 1)
        made = Attempts.wait(5)[3:]
        assert {each.flow.name: each.flow.topics for each in made} == {"changed": ("other",), "added": ("a",)}
        assert {name for name, each in first.items() if each.asked.is_set()} == {"changed", "removed"}
        assert first["kept"].configs[-1] is after, "conflicts are judged by the file as it is now"
        assert it.told == [["kept", "changed", "added"]]
        it.reload(after, 2)  # read after all that had come before: now both starts are known
        assert it.daemon.stages() == {"kept": Stage.RUNNING, "changed": Stage.RUNNING, "added": Stage.RUNNING}

    assert process.run(test) == 0
    entry, again = (entry for entry in process.logs if entry["event"] == "config_reloaded")
    listed = {name: entry[name] for name in ("added", "removed", "changed", "unchanged", "needs_restart")}
    assert listed == {
        "added": ["added"],
        "removed": ["removed"],
        "changed": ["changed"],
        "unchanged": ["kept"],
        "needs_restart": [],
    }
    assert again["unchanged"] == ["kept", "changed", "added"]
    assert process.logs[-1]["flows"] == {"kept": 0, "changed": 0, "added": 0}


@pytest.mark.usefixtures("process")
def test_a_flow_is_taken_over_only_until_its_lanes_have_started_once() -> None:
    """A job that has begun since isn't cut short by a reload, which comes of itself where the file is watched."""
    Attempts.refused = {"c"}

    def test(it: Process) -> None:
        for topic in ("k", "r"):
            Attempts.wait_for(topic)
        while len(tried := [made.take_over for made in Attempts.made if made.flow.name == "changed"]) < 2:
            Attempts.wait(len(Attempts.made) + 1)
        assert all(tried), "nothing of it has run yet"
        it.reload(config(kept="k", changed="right", removed="r"), 1)
        Attempts.wait_for("right")
        it.reload(config(kept="other", changed="later", removed="r", added="a"), 2)
        for topic in ("other", "later", "a"):
            Attempts.wait_for(topic)
        by_topic = {made.flow.topics[0]: made.take_over for made in Attempts.made}
        assert by_topic == {"k": True, "r": True, "c": True, "right": True, "other": False, "later": False, "a": False}

    assert Process(take_over=True).run(test) == 0


def test_a_file_with_a_fault_changes_nothing_and_is_noted_until_it_is_right_again(process: Process) -> None:
    def test(it: Process) -> None:
        first = Attempts.wait(3)
        it.reload(ConfigError("flows.yaml: 1 error\n  line 3: no such key"), 1)
        assert it.daemon.config_fault() == "flows.yaml: 1 error; line 3: no such key"
        it.reload(config(kept="k", changed="c", removed="r"), 2)
        assert it.daemon.config_fault() == ""
        with it.noted:
            assert it.noted.wait_for(lambda: len(it.notes) == 6, WAIT_S), it.notes
        assert Attempts.wait(3) == first
        assert not any(each.asked.is_set() for each in first)

    assert process.run(test) == 0
    assert [entry["event"] for entry in process.logs if "config" in entry["event"]] == [
        "config_not_reloaded",
        "config_reloaded",
    ]
    assert {(flow, bool(note.detail)) for flow, note in process.notes} == {
        (name, fault) for name in ("kept", "changed", "removed") for fault in (True, False)
    }


def test_a_flow_that_is_removed_and_comes_back_while_it_stops_is_started_once_more(process: Process) -> None:
    def test(it: Process) -> None:
        first = {made.flow.name: made for made in Attempts.wait(3)}
        first["removed"].may_end.clear()
        it.reload(config(kept="k", changed="c"), 1)
        it.reload(config(kept="k", changed="c", removed="r"), 2)
        assert len(Attempts.wait(3)) == 3, "the former one hasn't ended yet"
        first["removed"].may_end.set()
        assert Attempts.wait(4)[3].flow.name == "removed"

    assert process.run(test) == 0


def test_the_only_flow_waits_for_a_file_that_is_right_after_one_that_was_wrong(process: Process) -> None:
    """A process that ran well doesn't end by a typo: the flow is tried again until the file is right."""
    Attempts.refused = {"wrong", "wronger"}

    def test(it: Process) -> None:
        Attempts.wait(3)
        it.reload(config(changed="wrong"), 1)
        assert [made.flow.topics for made in Attempts.wait(6)[3:]] == [("wrong",)] * 3, "tried again, and again"
        it.reload(config(changed="wronger"), 2)
        told = [made for made in Attempts.wait(len(Attempts.made) + 2)[3:] if made.flow.topics == ("wronger",)]
        assert len(told) > 1
        it.reload(config(changed="right"), 3)
        last = Attempts.wait(len(Attempts.made))[-1]
        while last.flow.topics != ("right",):
            last = Attempts.wait(len(Attempts.made) + 1)[-1]
        with it.noted:
            assert it.noted.wait_for(lambda: len(it.notes) == 2, WAIT_S), it.notes

    assert process.run(test) == 0
    noted = [(flow, note.kind) for flow, note in process.notes if isinstance(note, FlowEnd)]
    assert noted == [("changed", "Unreachable")] * 2, "for `status`, once for each file"
    told = [entry for entry in process.logs if (entry["event"], entry["log_level"]) == ("flow_ended", "error")]
    assert len(told) == 2
    assert process.logs[-1]["flows"] == {"changed": 0}


def test_a_process_that_waits_for_a_file_is_stopped_as_ever_and_says_what_was_wrong(process: Process) -> None:
    Attempts.refused = {"wrong"}

    def test(it: Process) -> None:
        Attempts.wait(3)
        it.reload(config(changed="wrong"), 1)
        Attempts.wait(5)

    assert process.run(test) == Unreachable.exit_code
    assert process.logs[-1]["flows"] == {"changed": 3}


def test_a_first_start_with_what_is_wrong_ends_the_process(process: Process) -> None:
    Attempts.refused = {"k", "c", "r"}
    assert process.run(lambda it: it.wait_logged("stopped")) == Unreachable.exit_code
    assert len(Attempts.made) == 3
