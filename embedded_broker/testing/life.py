"""One life of a broker on the event loop that runs now, from its start to a stop or a kill."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any, TextIO

from embedded_broker.broker import Broker
from embedded_broker.broker_configs import configured
from embedded_broker.config import BrokerConfig, Fsync
from embedded_broker.faults import Faults, FaultSpec
from embedded_broker.server import Server
from embedded_broker.testing.mortal import MortalFileSystem
from embedded_broker.testing.runner import HOST, STOP_S_MAX, Launch, OnHit


class Life:
    """See the module."""

    def __init__(self, launch: Launch, on_hit: OnHit, log_to: TextIO) -> None:
        """Raises ValueError for settings that the broker doesn't have."""
        config = BrokerConfig(launch.data_dir, HOST, launch.port, fsync=Fsync(launch.fsync))
        self._fs, self._on_hit = MortalFileSystem(), on_hit
        self._broker = Broker(configured(config, launch.settings), self._fs)
        self._server = Server(self._broker, log_to)
        self._broker.faults = self.faults = Faults()

    @property
    def failed(self) -> asyncio.Future[BaseException]:
        """Set when the broker can't go on."""
        return self._broker.failed

    def add_fault(self, number: int, spec: Mapping[str, Any]) -> None:
        """Raises ValueError."""
        try:
            known = FaultSpec(**spec)
        except TypeError as error:
            raise ValueError(str(error)) from error
        self.faults.add(number, known, partial(self._on_hit, number))

    async def start(self, faults: Mapping[int, Mapping[str, Any]]) -> None:
        """Return when connections are accepted. Raises what `Broker.start` raises; the life is over then."""
        try:
            for number, spec in faults.items():
                self.add_fault(number, spec)
            await self._broker.start()
            await self._server.start()
        except BaseException:
            await self.kill()
            raise

    async def stop(self) -> None:
        """Cleanly."""
        await self._server.stop()
        await self._broker.stop()

    async def kill(self) -> None:
        """Nothing is written or answered from here on; the files are closed and the directory's lock is free after."""
        self._fs.die()
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)  # the dead say nothing
        await self._server.stop()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in others:
                task.cancel()
            _, stuck = await asyncio.wait(others, timeout=STOP_S_MAX)
            if stuck:
                raise TimeoutError(f"still running after the kill: {stuck}")
        self._broker.abandon()
        await asyncio.get_running_loop().shutdown_default_executor()
        self._fs.bury()
