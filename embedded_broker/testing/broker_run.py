"""One run of a broker on the running event loop, from its start to a stop or a kill.

Used by `threads.ThreadRunner` in a thread of the test's process, and by `child` in a process of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any, TextIO

from embedded_broker.broker import Broker
from embedded_broker.config.settings import BrokerConfig, Fsync
from embedded_broker.metadata.broker_configs import configured
from embedded_broker.net.server import Server
from embedded_broker.testing.faults import Faults, FaultSpec
from embedded_broker.testing.killable_filesystem import KillableFileSystem
from embedded_broker.testing.runner import HOST, STOP_S_MAX, Launch, OnHit


class BrokerRun:
    """One run of a broker, with the faults that a test has injected."""

    def __init__(self, launch: Launch, on_hit: OnHit, log_to: TextIO) -> None:
        """Raises ValueError for settings that the broker doesn't have."""
        config = BrokerConfig(launch.data_dir, HOST, launch.port, fsync=Fsync(launch.fsync))
        self._fs, self._on_hit = KillableFileSystem(), on_hit
        self._broker = Broker(configured(config, launch.settings), self._fs)
        self._server = Server(self._broker, log_to)
        self._broker.faults = self.faults = Faults()

    @property
    def failed(self) -> asyncio.Future[BaseException]:
        """Done, with the error, when the broker has failed."""
        return self._broker.failed

    def add_fault(self, number: int, spec: Mapping[str, Any]) -> None:
        """Inject a fault. Raises ValueError for fields or values that a FaultSpec doesn't have."""
        try:
            known = FaultSpec(**spec)
        except TypeError as error:
            raise ValueError(str(error)) from error
        self.faults.add(number, known, partial(self._on_hit, number))

    async def start(self, faults: Mapping[int, Mapping[str, Any]]) -> None:
        """Return when connections are accepted. Raises what `Broker.start` raises; the run has ended then."""
        try:
            for number, spec in faults.items():
                self.add_fault(number, spec)
            await self._broker.start()
            await self._server.start()
        except BaseException:
            await self.kill()
            raise

    async def stop(self) -> None:
        """End the run cleanly."""
        await self._server.stop()
        await self._broker.stop()

    async def kill(self) -> None:
        """End the run as a kill does: nothing more is written or answered. Returns with files and lock closed."""
        self._fs.kill()
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)  # tasks fail now
        await self._server.stop()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in sorted(others, key=asyncio.Task.get_name):
                task.cancel()
            _, stuck = await asyncio.wait(others, timeout=STOP_S_MAX)
            if stuck:
                raise TimeoutError(f"still running after the kill: {stuck}")
        self._broker.abandon()
        await asyncio.get_running_loop().shutdown_default_executor()
        self._fs.close_all()
