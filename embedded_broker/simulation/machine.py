"""The machine that the broker runs on: its disk and its process, with crashes and restarts."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import math
import traceback
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

from embedded_broker.api.registry import APIS
from embedded_broker.broker import Broker
from embedded_broker.config.settings import BrokerConfig
from embedded_broker.net.connection import Connection
from embedded_broker.net.server import Server
from embedded_broker.simulation.disk import Disk
from embedded_broker.simulation.history import History, ViolationKind
from embedded_broker.simulation.loop import Process, SimulatedLoop, SimulatedThreads
from embedded_broker.simulation.network import Network
from embedded_broker.simulation.schedule import FAIL_SYNC, KILL, STOP, DiskFullPeriod, FailedSync, RunSchedule
from embedded_broker.simulation.trace import Trace
from embedded_broker.simulation.wire import PORT
from embedded_broker.wire.schema import Frame

DATA_DIR = Path("/simulated")
API_KEY_BYTES = 2
DOWN_S_MAX = 1.0
STOPS_WITHIN_S = 20.0
DIES_WITHIN_S = 2.0
"""After a failed fsync."""
SETTLES_WITHIN_S = 20.0
"""Answers from a disk that was full or broken may be on their way that long after it is well again."""


class _Server(Server):
    """Its log goes to the trace."""

    def __init__(self, broker: Broker, machine: Machine) -> None:
        super().__init__(broker)
        self._machine = machine

    async def dispatch(self, connection: Connection, frame: Frame) -> Any:
        key = int.from_bytes(frame[:API_KEY_BYTES], "big")
        if key in APIS:
            self._machine.on_request(APIS[key].name)
        return await super().dispatch(connection, frame)

    def log(self, line: str) -> None:
        self._machine.note(line)

    def connection_failed(self, connection: Connection, error: BaseException) -> None:
        if isinstance(error, Exception):  # and not the end of the machine
            super().connection_failed(connection, error)


class Machine:
    """Runs one broker. Afterwards `broker` is the latest, dead or alive."""

    broker: Broker
    _server: Server

    def __init__(
        self,
        network: Network,
        random: Random,
        history: History,
        trace: Trace,
        schedule: RunSchedule,
        settings: Mapping[str, Any],
    ) -> None:
        """`settings`: of BrokerConfig, besides those of the schedule."""
        self._network, self._random, self._history, self._trace = network, random, history, trace
        self._config = BrokerConfig(DATA_DIR, port=PORT, **{**schedule.settings, **settings})
        self._power_fails = schedule.power_fails
        self._loop: SimulatedLoop = network.loop
        self.outside = contextvars.copy_context()
        """A context without a process: a killed process can't run its own restart."""
        self.disk = Disk(network.loop, random, schedule.sync_s_max, self._power_is_cut, self._sync_has_failed)
        self.processes: list[Process] = []
        self.crashes = 0
        self.power_cuts_s: list[float] = []
        self.ready_s: list[float] = []
        """When connections were taken, after all that was found had been made durable."""
        self.on_request: Callable[[str], None] = lambda api: None
        """Called with the API of every request before it is handled."""
        self.ready = asyncio.Event()
        """Set while connections are taken."""

    @property
    def _process(self) -> Process:
        return self.processes[-1]

    def note(self, event: str) -> None:
        """Note what happens here."""
        self._trace.note(self._loop.now_s, event)

    def start(self) -> None:
        """Boot; comes back by itself after every crash."""
        process = Process(f"broker {len(self.processes)}", self._network.process_died)
        self.processes.append(process)
        self.note(f"{process.name} starts")
        self._loop.spawn(process, self._run()).add_done_callback(self._ended, context=self.outside)

    async def _run(self) -> None:
        broker = Broker(self._config, self.disk, self._loop, self._new_uuid, SimulatedThreads)
        self.broker = broker
        broker.coding.gives_back = False
        await broker.start()
        self._server = _Server(broker, self)
        await self._server.start()
        self.ready_s.append(self._loop.now_s)
        self.ready.set()
        raise await broker.failed

    def _new_uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self._random.getrandbits(128), version=4)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = task.exception()
        if self.disk.has_failed and self._process.alive:
            self._end_process(power_lost=False)  # as it must
        elif isinstance(error, Exception) and self._process.alive:
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(place.filename).name}:{place.lineno}"
            self._history.found(ViolationKind.BROKEN, f"{task.get_name()} ended: {error!r} at {where}")
            self._end_process(power_lost=False)

    def crash(self, operations: int) -> None:
        """Crash as a schedule says it: after so many operations of the disk, or KILL, STOP, or FAIL_SYNC."""
        if operations == KILL:
            self.kill()
        elif operations == STOP:
            self.stop()
        elif operations == FAIL_SYNC:
            self.disk.fail("sync_data", errno.EIO)
        else:
            self.cut_power(operations)

    def fill_disk(self, full: DiskFullPeriod) -> None:
        """Leave little disk space for a while."""
        self.note(f"the disk has space for {full.bytes_left} bytes")
        self.disk.fill(full.bytes_left)
        self._history.may_refuse_until_s = math.inf
        self._loop.call_later(full.lasts_s, self._free_disk, context=self.outside)

    def _free_disk(self) -> None:
        self.note("the disk has space again")
        self.disk.size_bytes_max = None
        self._history.may_refuse_until_s = self._loop.now_s + SETTLES_WITHIN_S

    def fail_sync(self, failed: FailedSync) -> None:
        """Let one fsync fail."""
        self.disk.fail("sync_data" if failed.of_data else "sync", errno.EIO, after=failed.operations)

    def _sync_has_failed(self) -> None:
        self.note("an fsync fails")
        until_s = self._loop.now_s + SETTLES_WITHIN_S
        self._history.may_refuse_until_s = max(self._history.may_refuse_until_s, until_s)
        self._loop.call_later(DIES_WITHIN_S, self._check_ended, self._process, context=self.outside)

    def _check_ended(self, process: Process) -> None:
        if process.alive:
            self._history.found(ViolationKind.BROKEN, f"{process.name} goes on after an fsync has failed")

    def kill(self) -> None:
        """Kill the process, at once; what it has written is with the operating system."""
        if self._process.alive:
            self._end_process(power_lost=False)

    def stop(self) -> None:
        """Stop the broker, which closes its files. Other crashes may come first; while it starts, it is killed."""
        if not self.ready.is_set():
            self.kill()
            return
        self.ready.clear()
        self.note(f"{self._process.name} stops")
        self._loop.spawn(self._process, self._stop(self._process))
        self._loop.call_later(STOPS_WITHIN_S, self._check_stopped, self._process, context=self.outside)

    async def _stop(self, process: Process) -> None:
        try:
            await self._server.stop()
            if not self.broker.failed.done():
                await self.broker.stop()
        except OSError as error:
            if not self.disk.has_failed:
                self._history.found(ViolationKind.BROKEN, f"{process.name} can't stop: {error!r}")
        self._loop.call_soon(self._has_stopped, process, context=self.outside)

    def _has_stopped(self, process: Process) -> None:
        if process.alive:
            self._end_process(power_lost=False)

    def _check_stopped(self, process: Process) -> None:
        if process.alive:
            self._history.found(ViolationKind.BROKEN, f"{process.name} doesn't stop")
            self._end_process(power_lost=False)

    async def restart(self) -> None:
        """Stop cleanly, and start."""
        await self.ready.wait()
        self.stop()
        await self.ready.wait()

    def set_clock(self, offset_ms: int) -> None:
        """Set the clock on the wall, which is that much ahead from now on."""
        self.note(f"the clock is set to {offset_ms:+} ms")
        self._loop.set_wall_clock(offset_ms)

    def cut_power(self, after: int) -> None:
        """Cut the power of the whole machine, after that many more operations of the disk."""
        if after:
            self.disk.power_cut(after)
        elif self._process.alive:
            self._end_process(power_lost=True)

    def _power_is_cut(self) -> None:
        self._end_process(power_lost=True)

    def _end_process(self, power_lost: bool) -> None:
        power_lost = power_lost and self._power_fails
        self.crashes = self._history.crashes = self.crashes + 1
        if power_lost:
            self.power_cuts_s.append(self._loop.now_s)
        self.ready.clear()
        self.note(f"{self._process.name} dies, {'without power' if power_lost else 'killed'}")
        self._loop.kill(self._process)
        down_s = self._random.uniform(0.01, DOWN_S_MAX)
        self._loop.call_later(down_s, self._restart, power_lost, context=self.outside)

    def _restart(self, power_lost: bool) -> None:
        self.disk.recover(self._random, power_lost)
        self.start()
