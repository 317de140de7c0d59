"""The machine that the broker runs on: its disk, its process, and how it dies and comes back."""

from __future__ import annotations

import asyncio
import contextvars
import traceback
import uuid
from pathlib import Path
from random import Random

from embedded_broker.broker import Broker
from embedded_broker.config import BrokerConfig
from embedded_broker.connection import Connection
from embedded_broker.server import Server
from embedded_broker.simulation.disk import Disk
from embedded_broker.simulation.history import History, Kind
from embedded_broker.simulation.loop import Process, SimulatedLoop
from embedded_broker.simulation.network import Network
from embedded_broker.simulation.trace import Trace
from embedded_broker.simulation.wire import PORT

DATA_DIR = Path("/simulated")
DOWN_S_MAX = 1.0


class _Server(Server):
    """Its log goes to the trace."""

    def __init__(self, broker: Broker, machine: Machine) -> None:
        super().__init__(broker)
        self._machine = machine

    def log(self, line: str) -> None:
        self._machine.note(line)

    def connection_failed(self, connection: Connection, error: BaseException) -> None:
        if isinstance(error, Exception):  # and not the end of the machine
            super().connection_failed(connection, error)


class Machine:
    """Runs one broker. Afterwards `broker` is the latest, dead or alive."""

    broker: Broker

    def __init__(self, network: Network, random: Random, history: History, trace: Trace) -> None:
        self._network, self._random, self._history, self._trace = network, random, history, trace
        self._loop: SimulatedLoop = network.loop
        self.outside = contextvars.copy_context()
        """Of no process: restarts are no work of the one that has died."""
        self.disk = Disk(self._power_is_cut)
        self.processes: list[Process] = []
        self.crashes = 0
        self.ready = asyncio.Event()
        """Set while connections are taken."""

    @property
    def _process(self) -> Process:
        return self.processes[-1]

    def note(self, event: str) -> None:
        """What happens here."""
        self._trace.note(self._loop.now_s, event)

    def start(self) -> None:
        """Boot; comes back by itself after every crash."""
        process = Process(f"broker {len(self.processes)}", self._network.process_died)
        self.processes.append(process)
        self.note(f"{process.name} starts")
        self._loop.spawn(process, self._run()).add_done_callback(self._ended, context=self.outside)

    async def _run(self) -> None:
        broker = Broker(BrokerConfig(DATA_DIR, port=PORT), self.disk, self._loop, self._new_uuid)
        self.broker = broker
        await broker.start()
        await _Server(broker, self).start()
        self.ready.set()
        raise await broker.failed

    def _new_uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self._random.getrandbits(128), version=4)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = task.exception()
        if isinstance(error, Exception) and self._process.alive:
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(place.filename).name}:{place.lineno}"
            self._history.found(Kind.BROKEN, f"{task.get_name()} ended: {error!r} at {where}")
            self._die(power_lost=False)

    def kill(self) -> None:
        """The process, at once; what it has written is with the operating system."""
        if self._process.alive:
            self._die(power_lost=False)

    def cut_power(self, after: int) -> None:
        """Of the whole machine, after that many more operations of the disk."""
        if after:
            self.disk.power_cut(after)
        elif self._process.alive:
            self._die(power_lost=True)

    def _power_is_cut(self) -> None:
        self._die(power_lost=True)

    def _die(self, power_lost: bool) -> None:
        self.crashes += 1
        self.ready.clear()
        self.note(f"{self._process.name} dies, {'without power' if power_lost else 'killed'}")
        self._loop.kill(self._process)
        down_s = self._random.uniform(0.01, DOWN_S_MAX)
        self._loop.call_later(down_s, self._come_back, power_lost, context=self.outside)

    def _come_back(self, power_lost: bool) -> None:
        self.disk.recover(self._random, power_lost)
        self.start()
