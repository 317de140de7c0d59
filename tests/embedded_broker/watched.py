"""A broker in a process of its own, whose event loop is watched: how long others had to wait for one iteration of it.

The time is the CPU time that it took, and not what the machine has done meanwhile; so it means the same beside
other work. Reads lines: `read` prints the longest iteration since the last one and the peak of memory, then forgets
both.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import subprocess
import sys
import time
from asyncio import BaseEventLoop, events
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

MEMORY_BYTES_MAX = 3 << 30
"""A broker that needs more has failed, and the machine is also others'."""
CLEAR_PEAK = "5"
"""See proc_pid_clear_refs(5)."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one broker has cost since the last look."""

    stall_s: float
    """The longest iteration of the event loop, or collection of garbage in any thread."""
    peak_mib: float
    """The most memory that was resident."""
    now_mib: float
    what: str
    """The longest step of that iteration."""


class WatchedBroker:
    """`serve` in a child process."""

    def __init__(self, directory: Path, log: IO[bytes] | int | None = None, **settings: Any) -> None:
        """`log`: where its log goes; `settings`: of `BrokerConfig`."""
        self._child = subprocess.Popen(
            [sys.executable, "-m", "tests.embedded_broker.watched", str(directory), json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX)),
        )
        self.port: int = self._line()["port"]

    def _line(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        return dict(json.loads(self._child.stdout.readline()))

    def read(self) -> Seen:
        """What it has cost since the last call."""
        assert self._child.stdin is not None
        self._child.stdin.write("read\n")
        self._child.stdin.flush()
        return Seen(**self._line())

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._child.pid

    def stop(self) -> None:
        """Cleanly."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait(60)


class _Watch:
    """The longest iteration of this process."""

    def __init__(self) -> None:
        self.longest_s, self.what = 0.0, ""
        self._step_s, self._step, self._began_s = 0.0, "", 0.0
        run, run_once = events.Handle._run, BaseEventLoop._run_once  # type: ignore[attr-defined]
        watch = self

        def watched(handle: events.Handle) -> None:
            began_s = time.thread_time()
            run(handle)
            if (step_s := time.thread_time() - began_s) > watch._step_s:
                watch._step_s, watch._step = step_s, _named(handle)

        def watched_once(loop: BaseEventLoop) -> None:
            began_s, watch._step_s = time.thread_time(), 0.0
            run_once(loop)
            watch.took(time.thread_time() - began_s, watch._step)

        events.Handle._run = watched  # type: ignore[method-assign, assignment]
        BaseEventLoop._run_once = watched_once  # type: ignore[attr-defined]
        gc.callbacks.append(self._collecting)

    def took(self, seconds: float, what: str) -> None:
        if seconds > self.longest_s:
            self.longest_s, self.what = seconds, what

    def _collecting(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began_s = time.thread_time()
        else:
            self.took(time.thread_time() - self._began_s, f"collection of generation {info['generation']}")


def _named(handle: Any) -> str:
    """What it calls. Its own text could hold a whole request, and take longer than the step."""
    called = handle._callback
    owner = getattr(called, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return f"{owner.get_name()}: {getattr(owner.get_coro(), '__qualname__', '')}"
    return f"{getattr(called, '__qualname__', type(called).__name__)} of {type(owner).__name__}"


async def _main(directory: Path, settings: dict[str, Any]) -> None:
    from embedded_broker.broker import Broker, serve
    from embedded_broker.config.settings import BrokerConfig

    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    ready: asyncio.Future[Any] = loop.create_future()
    broker = Broker(BrokerConfig(directory, port=0, **settings))
    serving = asyncio.create_task(serve(broker, ready, stop))
    await asyncio.wait([serving, asyncio.ensure_future(ready)], return_when=asyncio.FIRST_COMPLETED)
    print(json.dumps({"port": broker.port}), flush=True)
    watch = _Watch()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while await lines.readline():
        peak_mib, now_mib = (_mib(name) for name in ("VmHWM", "VmRSS"))
        seen = Seen(watch.longest_s, peak_mib, now_mib, watch.what)
        print(json.dumps({name: getattr(seen, name) for name in Seen.__slots__}), flush=True)
        _forget_peak()
        watch.longest_s, watch.what = 0.0, ""
    stop.set()
    await serving


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text(CLEAR_PEAK)


def _mib(name: str) -> float:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(name)) / 1024


if __name__ == "__main__":
    from cli.commands import broker as command

    command._load()
    command._leave_room_for_the_loop()
    with suppress(KeyboardInterrupt):
        asyncio.run(_main(Path(sys.argv[1]), json.loads(sys.argv[2])))
