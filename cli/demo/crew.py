"""Several `eos-replicate run` as one worker of the demo: one of them is killed at a time, the others go on."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cli.demo.processes import Child
from cli.demo.worker import Worker, logged

JOIN_S_MAX = 30.0
LOOK_S = 0.05
BEGINS, ENDS = "lane_started", ("lane_left", "lane_ended")


@dataclass(frozen=True, slots=True)
class Held:
    """From when to when a worker ran a lane, in seconds since the demo began; `until_s` None: to its end."""

    lane: int
    worker: int
    from_s: float
    until_s: float | None


class Crew:
    """What `Worker` is for one process. `start` starts all of them, and later the one that was killed."""

    def __init__(self, flow_file: Path, directory: Path, workers: int, seed: int) -> None:
        """`seed` decides who is killed."""
        self.flow_file = flow_file
        self._logs = [directory / f"replicator-{number}.log" for number in range(1, workers + 1)]
        self._workers = [Worker(flow_file, log) for log in self._logs]
        self._random = random.Random(seed)
        self._down: Worker | None = None
        self._begun = time.time()
        self.recoveries_s: list[float] = []  # others go on meanwhile, so there is none

    def start(self, point: str = "") -> None:
        """See `Worker`. A failpoint is for a lone worker."""
        assert not point, "nobody knows which worker would meet it"
        for worker in self._workers if self._down is None else [self._down]:
            worker.start()

    @property
    def child(self) -> Child:
        """A process of them, for what its log says."""
        return (self._down or self._workers[0]).child

    @property
    def children(self) -> list[Child]:
        """All processes that run now."""
        return [worker.child for worker in self._workers]

    def read_log(self) -> None:
        """See `Worker`."""
        for worker in self._workers:
            worker.read_log()

    @property
    def copied(self) -> int:
        """Records of all transactions that they say are committed."""
        return sum(worker.copied for worker in self._workers)

    @property
    def committing_since(self) -> float | None:
        """Since when one of them commits."""
        return min((it.committing_since for it in self._workers if it.committing_since is not None), default=None)

    @property
    def has_position(self) -> bool:
        """Whether one of them runs a lane."""
        return any(worker.has_position for worker in self._workers)

    def kill(self) -> str:
        """Send SIGKILL to one of those that run a lane; return who it was."""
        running = [worker for worker in self._workers if worker.has_position] or self._workers
        self._down = self._random.choice(running)
        self._down.kill()
        return f"worker {self._workers.index(self._down) + 1}"

    def has_killed_itself(self) -> bool:
        """See `Worker`."""
        return False

    def restart_in_turn(self) -> Iterator[str]:
        """Stop each with SIGTERM and start it again, as an update does; says who."""
        for number, worker in enumerate(self._workers, 1):
            worker.stop()
            worker.start()
            deadline_s = time.monotonic() + JOIN_S_MAX
            while not worker.has_position and time.monotonic() < deadline_s:
                worker.read_log()
                time.sleep(LOOK_S)
            yield f"worker {number} stopped and started again"

    def stop(self) -> None:
        """Send SIGTERM to all, one after the other. Raises DemoFailed unless each ends with 0."""
        for worker in self._workers:
            worker.stop()

    def held(self) -> list[Held]:
        """Say who ran which lane when, by their logs."""
        found = [span for number, log in enumerate(self._logs, 1) for span in self._spans(number, log)]
        return sorted(found, key=lambda span: (span.lane, span.from_s))

    def _spans(self, number: int, log: Path) -> Iterator[Held]:
        began: dict[int, float] = {}
        for line in log.read_bytes().splitlines():
            event = logged(line)
            name = event.get("event")
            if name not in (BEGINS, *ENDS, "started"):
                continue
            at_s = round(datetime.fromisoformat(event["timestamp"]).timestamp() - self._begun, 1)
            if name == "started":  # the process before it was killed or has stopped
                yield from (Held(lane, number, from_s, at_s) for lane, from_s in began.items())
                began.clear()
            elif name == BEGINS:
                began.setdefault(event["lane"], at_s)
            elif event["lane"] in began:
                yield Held(event["lane"], number, began.pop(event["lane"]), at_s)
        yield from (Held(lane, number, from_s, None) for lane, from_s in began.items())


def timeline(held: list[Held]) -> Iterator[str]:
    """Yield one line for each lane: who ran it from when."""
    for lane in sorted({span.lane for span in held}):
        spans = [f"worker {span.worker} from {span.from_s:.1f} s" for span in held if span.lane == lane]
        yield f"lane {lane}: {', '.join(spans)}"
