"""The process: all flows of a file side by side, signals, and the exit code.

A first SIGTERM or SIGINT finishes open transactions and leaves within `limits.stop_timeout_ms`; a second one
leaves at once, which is safe by design: the next start fences, reads and rewinds.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Sequence
from types import FrameType

import structlog

from replicator.config import Config, Flow
from replicator.errors import ReplicatorError, Unreachable
from replicator.failpoints import Reach, nothing
from replicator.flow import FlowWorker, worst
from replicator.names import process_name
from replicator.runner import GC_YOUNG_OBJECTS_MAX

# Supervisors signal the process and its group: one request to stop, delivered twice before anybody has acted.
SAME_SIGNAL_S = 0.5
LEAVE_S = 1.0  # beyond limits.stop_timeout_ms: a flow whose lanes are late says so first


class Daemon:
    """Runs flows in threads and waits for all of them."""

    def __init__(
        self, config: Config, flows: Sequence[Flow], reach: Reach = nothing, *, take_over: bool = False
    ) -> None:
        """`take_over`: also from a backfill or repair that has a flow."""
        self._owner = process_name()
        self._log = structlog.get_logger()
        self._stopped_at: float | None = None
        self._codes: dict[str, int] = {}
        self._workers = {
            flow.name: FlowWorker(flow, config, self._owner, reach, self._log.bind(flow=flow.name), take_over=take_over)
            for flow in flows
        }
        self._done = threading.Semaphore(0)
        self._stop_s_max = max((flow.limits.stop_timeout_ms for flow in flows), default=0) / 1000 + LEAVE_S

    def run(self) -> int:
        """Run until every flow has ended; the exit code of the worst of them."""
        gc.freeze()
        gc.set_threshold(GC_YOUNG_OBJECTS_MAX)
        signal.signal(signal.SIGTERM, self._signalled)
        signal.signal(signal.SIGINT, self._signalled)
        for name in self._workers:
            threading.Thread(target=self._flow, args=(name,), name=name, daemon=True).start()
        for _ in self._workers:
            self._done.acquire()
        code = worst(tuple(self._codes.values()))
        self._log.info("stopped", exit_code=code, flows=self._codes)
        return code

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._stopped_at is None:
            self._stopped_at = now
        elif now - self._stopped_at >= SAME_SIGNAL_S or any(w.stopping for w in self._workers.values()):
            os._exit(128 + number)  # a second signal: nothing to clean up that the next start doesn't
        else:
            return
        for worker in self._workers.values():
            worker.stop()
        # What is being listed, created or connected is not waited for longer than a clean stop may take.
        timer = threading.Timer(self._stop_s_max if self._copying() else 0.0, self._leave)
        timer.daemon = True
        timer.start()

    def _copying(self) -> bool:
        return any(worker.copying for worker in self._workers.values())

    def _leave(self) -> None:
        """Leave from whatever is still going on: before lanes have started, there is nothing to finish."""
        late = Unreachable.exit_code if self._copying() else 0
        code = worst((late, *self._codes.values()))
        self._log.info("stopped", exit_code=code, flows={name: self._codes.get(name, late) for name in self._workers})
        os._exit(code)

    def _flow(self, name: str) -> None:
        log = self._log.bind(flow=name)
        try:
            self._codes[name] = self._workers[name].run()
        except ReplicatorError as error:
            self._codes[name] = error.exit_code
            log.error("flow_ended", kind=type(error).__name__, detail=str(error), exit_code=error.exit_code)
        except BaseException:
            self._codes[name] = 70
            log.exception("bug", exit_code=70)
            raise
        finally:
            self._done.release()
