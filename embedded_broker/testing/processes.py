"""Runs a broker in a process of its own (`child`), which reads commands from its stdin and ends when that is closed."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from embedded_broker.testing.runner import READY_S_MAX, STOP_S_MAX, BrokerDied, Launch, OnHit


class ProcessRunner:
    """A Runner in another process. Each line to the child is answered by one line; hits are reported in between."""

    def __init__(self, on_hit: OnHit) -> None:
        self._on_hit = on_hit
        self._process: subprocess.Popen[str]
        self._answers: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
        self._asking = threading.Lock()

    def start(self, launch: Launch, faults: Mapping[int, Mapping[str, Any]]) -> None:
        """See `Runner`."""
        with launch.log.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "embedded_broker.testing.child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C is for the tests, which stop it then
            )
        threading.Thread(target=self._read, name=f"kafka-broker-{launch.port}", daemon=True).start()
        try:
            self._ask({"launch": asdict(launch), "faults": list(faults.items())}, READY_S_MAX)
        except BaseException:
            self.kill()
            raise

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                said = json.loads(line)
                if said["event"] == "hit":
                    self._on_hit(said["number"])
                else:
                    self._answers.put(said)
        self._answers.put({"event": "died", "reason": "the process has ended"})

    def _ask(self, line: Mapping[str, Any], timeout_s: float = STOP_S_MAX) -> None:
        """Ask the process. Raises ValueError when it is refused, BrokerDied when there is no answer."""
        assert self._process.stdin is not None
        with self._asking:
            try:
                self._process.stdin.write(json.dumps(line, default=str) + "\n")
                self._process.stdin.flush()
                said = self._answers.get(timeout=timeout_s)
            except (OSError, ValueError, queue.Empty) as error:
                raise BrokerDied(f"the broker's process does not answer: {error!r}") from error
        if said["event"] == "refused":
            raise ValueError(said["reason"])
        if said["event"] == "died":
            raise BrokerDied(f"the broker has ended: {said['reason']}")

    def add_fault(self, number: int, spec: Mapping[str, Any]) -> None:
        """See `Runner`."""
        self._ask({"add": number, "spec": spec})

    def release_fault(self, number: int) -> None:
        """See `Runner`."""
        self._ask({"release": number})

    def remove_faults(self, numbers: list[int] | None) -> None:
        """See `Runner`."""
        self._ask({"remove": numbers})

    def alive(self) -> bool:
        """See `Runner`."""
        return self._process.poll() is None

    def stop(self) -> None:
        """See `Runner`."""
        try:
            self._ask({"stop": True})
        finally:
            self.kill()

    def kill(self) -> None:
        """See `Runner`."""
        self._process.kill()
        self._process.wait(STOP_S_MAX)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # what a dead process was told last is still in its buffer
            self._process.stdin.close()
