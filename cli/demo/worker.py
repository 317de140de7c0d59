"""`eos-replicate run` as a process that is killed and restarted, and what its log says that it has committed."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

from cli.demo.model import DemoFailed
from cli.demo.processes import START_S_MAX, Child

LOOK_S = 0.05


class Worker:
    """`eos-replicate run`; call `read_log` often: it reads what the log has gained since the last call."""

    def __init__(self, flow_file: Path, log: Path, flow: str = "") -> None:
        """`flow`: only this one of the file."""
        self.flow_file, self._log, self._flow = flow_file, log, flow
        self._child: Child | None = None
        self._read_bytes = 0
        self._gone_at: float | None = None
        self.copied = 0  # records of all transactions that it says are committed
        self.recoveries_s: list[float] = []  # from a SIGKILL to the first commit with records after it
        self.committing_since: float | None = None  # by the monotonic clock; None until its first commit
        self.has_position = False
        self._has_begun = False  # before that, a SIGTERM may meet a process that doesn't listen for it yet

    def start(self, point: str = "") -> None:
        """Start a new process; `point` is the failpoint at which it kills itself."""
        self.committing_since, self.has_position, self._has_begun = None, False, False
        arguments = ["cli.main", "run", "-c", str(self.flow_file), "--log-format", "json", "--log-level", "debug"]
        arguments += ["--flow", self._flow] if self._flow else []
        self._child = Child(arguments, self._log, {"EOS_FAILPOINTS": point})

    @property
    def child(self) -> Child:
        """Its process."""
        assert self._child is not None, "start comes first"
        return self._child

    def read_log(self) -> None:
        """Read the new whole lines of its log."""
        with self._log.open("rb") as log:
            log.seek(self._read_bytes)
            text = log.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        for line in whole.splitlines():
            event = logged(line)
            self._has_begun = self._has_begun or event.get("event") == "connecting"
            self.has_position = self.has_position or event.get("event") == "lane_started"
            records = int(event["records"]) if event.get("event") == "committed" else 0
            self.copied += records
            if records and self.committing_since is None:
                self.committing_since = time.monotonic()
                if self._gone_at is not None:
                    self.recoveries_s.append(self.committing_since - self._gone_at)

    @property
    def children(self) -> list[Child]:
        """The same, as of `Crew`."""
        return [self.child]

    def kill(self) -> str:
        """Send SIGKILL; return how it is named."""
        self.child.kill()
        self._gone()
        return "worker"

    def has_killed_itself(self) -> bool:
        """Return whether its failpoint has killed it. Raises DemoFailed if it ended in any other way."""
        if self.child.running():
            return False
        if self.child.process.returncode != -signal.SIGKILL:
            raise self.ended()
        self._gone()
        return True

    def _gone(self) -> None:
        self.read_log()
        self._read_bytes = self._log.stat().st_size  # the rest of a line that the kill cut off will never come
        self._gone_at = time.monotonic()

    def ended(self) -> DemoFailed:
        """Make an error for a worker that has ended by itself."""
        return self.child.failed(f"ended by itself with {self.child.process.wait()}")

    def stop(self) -> None:
        """Send SIGTERM, once it has begun: it finishes its transaction. Raises DemoFailed unless it ends with 0."""
        deadline_s = time.monotonic() + START_S_MAX
        self.read_log()
        while not self._has_begun and self.child.running() and time.monotonic() < deadline_s:
            time.sleep(LOOK_S)  # its log is all that tells
            self.read_log()
        code = self.child.stop()
        self.read_log()
        if code != 0:
            raise self.child.failed(f"was asked to stop and ended with {code}")


def logged(line: bytes) -> dict[str, Any]:
    """Read the event of a log line; empty for text of a library, or a line that a kill cut off."""
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}
