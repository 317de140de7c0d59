"""The replicator as a user runs it: a process, a YAML file, JSON log lines on stderr, signals, an exit code.

Its commits are in its log, too, which are written at level debug; of all else what is written at the default level.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from signal import Signals
from typing import Any

import yaml

from integration_tests.harness.merge import merged
from integration_tests.harness.processes import wait_until
from tests.running.users_packages import users_packages

OTHER_LINES_SHOWN = 300  # where each thread was when a crash ended the process
FREQUENT, FREQUENT_SHOWN = ("committed", "client"), 8
EVENT_S_MAX = 180.0
EXIT_S_MAX = 180.0
FAILPOINTS = "EOS_FAILPOINTS"
FOR_DEBUGGING = "committed"
"""What is kept of the events at level debug."""
DULL = {"flow", "lane", "generation", "level"}
Event = dict[str, Any]
Login = str | Mapping[str, str]
"""How a flow reaches a cluster: HOST:PORT, or all client properties."""

# Short waits, so that tests of time-outs are quick; never so short that a slow machine trips over them.
QUICK: dict[str, Any] = {
    "rename": "{topic}.copy",
    "commit": {"interval_ms": 100},
    "limits": {
        "transaction_timeout_ms": 10_000,
        "request_timeout_ms": 10_000,
        "connect_timeout_ms": 20_000,
        "discovery_interval_ms": 1_000,
        "stop_timeout_ms": 15_000,
    },
}
DEFAULT = object()
"""A setting of this value is left out of the file, so that the product's default holds."""


class FlowFile:
    """A flow file with one flow from `source` to `target`; keywords are settings of the flow."""

    def __init__(self, directory: Path, name: str, source: Login, target: Login, **settings: Any) -> None:
        self.flow, self.path = name, directory / f"{name}.yaml"
        self._clusters = {"here": _properties(source), "there": _properties(target)}
        self._settings = merged(QUICK, settings)
        self._cluster_keys: dict[str, dict[str, Any]] = {}
        self._others: list[FlowFile] = []
        self._metrics: dict[str, Any] = {}
        self.write()

    def write(self, **changes: Any) -> None:
        """Write the file, with `changes` on top of what it says."""
        self._settings = merged(self._settings, changes)
        clusters = {
            name: {
                "properties": {"reconnect.backoff.max.ms": "200", **properties},
                **self._cluster_keys.get(name, {}),
            }
            for name, properties in self._clusters.items()
        }
        flows = {
            file.flow: {"source": "here", "target": "there", **_without_defaults(file._settings)}
            for file in (self, *self._others)
        }
        sections = {"clusters": clusters, "flows": flows} | ({"metrics": self._metrics} if self._metrics else {})
        self.path.write_text(yaml.safe_dump(sections, sort_keys=False))

    def log_in(self, source: Login) -> None:
        """Write the file with other properties for the source."""
        self._clusters["here"] = _properties(source)
        self.write()

    def write_to_target(self, properties: Mapping[str, str]) -> None:
        """Write the file with these properties of the target besides."""
        self._clusters["there"] = {**self._clusters["there"], **properties}
        self.write()

    def of_target(self, **keys: Any) -> None:
        """Write the file with these keys of the target beside its properties."""
        self._cluster_keys["there"] = keys
        self.write()

    def listen(self, address: str, **settings: Any) -> None:
        """Write the file with metrics at this address; `settings` of that section besides."""
        self._metrics = {"listen": address, "lag_interval_ms": 100, **settings}
        self.write()

    def include(self, other: FlowFile) -> None:
        """Take in another file's flow, behind those that are here, between the same clusters."""
        self._others.append(other)
        self.write()


def _properties(login: Login) -> dict[str, str]:
    return {"bootstrap.servers": login} if isinstance(login, str) else dict(login)


def _without_defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _without_defaults(value) if isinstance(value, Mapping) else value
        for name, value in settings.items()
        if value is not DEFAULT
    }


def _knows_standalone(tree: Path | None) -> bool:
    """Whether a version of the program can be told to run alone: before that, it always did."""
    return tree is None or "--standalone" in (tree / "cli" / "commands" / "run.py").read_text()


def _blocks(status: Path, number: Signals) -> bool:
    """Whether a thread blocks a signal, by its file under /proc."""
    blocked = next(line for line in status.read_text().splitlines() if line.startswith("SigBlk:"))
    return bool(int(blocked.split()[1], 16) >> (number - 1) & 1)


class Replicator:
    """One process of `eos-replicate run`. `failpoints` is what EOS_FAILPOINTS says, e.g. `before_end_txn@2=kill`."""

    def __init__(
        self,
        config: FlowFile,
        failpoints: str = "",
        environment: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        tree: Path | None = None,
    ) -> None:
        """`tree`: the directory with another version of the program (`older`)."""
        command = [sys.executable, "-m", "cli.main", "run", "-c", str(config.path)]
        command += ["--log-format", "json", "--log-level", "debug", *options]
        if "--shared" not in options and _knows_standalone(tree):  # most tests are about what a lone process does
            command.append("--standalone")
        clean = {name: value for name, value in users_packages().items() if name != FAILPOINTS}
        told = {FAILPOINTS: failpoints} if failpoints else {}
        self._process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env={**clean, **told, **(environment or {})}, cwd=tree
        )
        self._arrived = threading.Condition()
        self._events: list[Event] = []
        self._other_lines: list[str] = []
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            try:
                event = json.loads(line)
            except ValueError:
                event = None
            if isinstance(event, dict) and event["level"] == "debug" and event["event"] != FOR_DEBUGGING:
                continue
            with self._arrived:
                if isinstance(event, dict):
                    self._events.append(event)
                else:
                    self._other_lines.append(line.rstrip())
                self._arrived.notify_all()
        with self._arrived:
            self._ended = True
            self._arrived.notify_all()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def events(self) -> list[Event]:
        """All events so far."""
        with self._arrived:
            return list(self._events)

    @property
    def other_lines(self) -> list[str]:
        """Lines so far that are no JSON."""
        with self._arrived:
            return list(self._other_lines)

    def mark(self) -> int:
        """How many events there are: `after=mark` of `wait_event` looks only at later ones."""
        with self._arrived:
            return len(self._events)

    def seen(self, name: str, /, *, after: int = 0, **fields: Any) -> list[Event]:
        """Events called `name` so far whose fields have these values."""
        with self._arrived:
            return [event for event in self._events[after:] if _fits(event, name, fields)]

    def wait_event(self, name: str, /, *, after: int = 0, timeout_s: float = EVENT_S_MAX, **fields: Any) -> Event:
        """The first event called `name` with these fields, waiting for it if need be.

        Raises AssertionError, with the end of the log, when the process ends or the time is over before.
        """
        return self.wait_any(lambda event: _fits(event, name, fields), f"event {name} {fields}", after, timeout_s)

    def wait_any(
        self, fits: Callable[[Event], bool], meaning: str, after: int = 0, timeout_s: float = EVENT_S_MAX
    ) -> Event:
        """The first event that `fits`; `meaning` says in a failed test's message what was waited for."""
        deadline = time.monotonic() + timeout_s
        with self._arrived:
            while True:
                found = next((event for event in self._events[after:] if fits(event)), None)
                if found is not None:
                    return found
                left = deadline - time.monotonic()
                if self._ended or left <= 0:
                    break
                self._arrived.wait(left)
        raise AssertionError(f"no {meaning}: {'it ended' if self._ended else 'out of time'}\n{self.tail()}")

    def wait_incident(self, name: str) -> Event:
        """An incident of this name: of a partition (event `incident`), or one that ended a lane or the flow."""
        return self.wait_any(
            lambda event: event.get("name") == name or str(event.get("detail", "")).startswith(name),
            f"incident {name}",
        )

    def tail(self, lines: int = 40) -> str:
        """The end of its log, for messages of failed tests; of commits and client lines the last few."""
        with self._arrived:
            frequent = [at for at, event in enumerate(self._events) if event["event"] in FREQUENT][:-FREQUENT_SHOWN]
            left_out = set(frequent)
            told = [event for at, event in enumerate(self._events) if at not in left_out]
            events = [" ".join(f"{key}={event[key]}" for key in event if key not in DULL) for event in told]
            return "\n".join((*self._other_lines[-OTHER_LINES_SHOWN:], *events[-lines:]))

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._process.kill()
        self.wait_exit()

    def suspend(self) -> None:
        """SIGSTOP, and wait until it stands still; at once where it does so already."""
        self._process.send_signal(signal.SIGSTOP)
        self.wait_stopped()

    def wait_stopped(self, timeout_s: float = EVENT_S_MAX) -> None:
        """Wait until a SIGSTOP, its own or ours, has taken effect."""
        seen_again = os.WSTOPPED | os.WNOWAIT
        stopped = threading.Thread(target=os.waitid, args=(os.P_PID, self._process.pid, seen_again), daemon=True)
        stopped.start()
        stopped.join(timeout_s)
        assert not stopped.is_alive(), f"it did not stop within {timeout_s} s\n{self.tail()}"

    def resume(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def wait_exit(self, timeout_s: float = EXIT_S_MAX) -> int:
        """Its exit code (minus the signal's number after a signal), once it has ended and its log is read."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it runs on after {timeout_s} s\n{self.tail()}") from None
        self._reader.join(10)
        return code

    def signal(self, number: Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def signal_another_thread(self, number: Signals) -> None:
        """Send a signal to a thread that isn't the main one, as the system may do with what the process is sent."""
        pid = self._process.pid
        others = [int(path.name) for path in Path(f"/proc/{pid}/task").iterdir() if path.name != str(pid)]
        kill = ctypes.CDLL(None).tgkill
        for thread in others:
            try:
                hears = not _blocks(Path(f"/proc/{pid}/task/{thread}/status"), number)
            except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
                continue
            if hears and kill(pid, thread, number) == 0:
                return
        raise AssertionError(f"none of the threads {others} takes the signal\n{self.tail()}")

    def memory_bytes(self) -> int:
        """Its resident memory, as Linux tells."""
        pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def cpu_s(self) -> float:
        """CPU time that it has used, of all its threads."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def runs_on(self, for_s: float) -> bool:
        """Whether it is still there after `for_s`."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(for_s)
        return self._process.poll() is None

    def wait_stoppable(self) -> None:
        """Until it catches SIGTERM: before that, a signal just ends it."""
        status = Path(f"/proc/{self._process.pid}/status")

        def catches() -> bool:
            caught = next(line for line in status.read_text().splitlines() if line.startswith("SigCgt:"))
            return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)

        wait_until(lambda: self._process.poll() is not None or catches(), "it catches SIGTERM", self.tail)

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        self._process.terminate()
        return self.wait_exit()

    def close(self) -> None:
        """Make sure that it is gone, in whatever state a test left it."""
        if self._process.poll() is None:
            self.kill()


def _fits(event: Event, name: str, fields: Mapping[str, Any]) -> bool:
    return event.get("event") == name and all(event.get(key) == value for key, value in fields.items())
