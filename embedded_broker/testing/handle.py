"""`KafkaBroker`, the object that tests use: starts, stops, kills and restarts a broker with one address and data."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from embedded_broker.testing.fault_injection import FaultInjector
from embedded_broker.testing.runner import HOST, BrokerDied, Launch, Runner

Mode = Literal["thread", "process"]
LOG_LINES = 50


class KafkaBroker:
    """A real broker on a free port, with an empty data directory. As a context manager it runs during the block.

    Invariant: `bootstrap` stays the same as long as this object exists, also while the broker is down: a socket that is
    bound and never listens reserves the port, against outgoing connections of clients, too.
    """

    def __init__(
        self,
        data_dir: Path | str | None = None,
        *,
        mode: Mode = "thread",
        settings: Mapping[str, str] | None = None,
        fsync: Literal["always", "interval", "never"] = "always",
    ) -> None:
        """Prepare a broker; `start` runs it.

        Args:
            data_dir: kept afterwards; by default a temporary one, which isn't.
            mode: in a thread of this process, or as a process of its own, which dies with this one.
            settings: under Kafka's names, such as {"num.partitions": "3"}. `auto.create.topics.enable` is true by
                default.
            fsync: as `eos-replicate broker --fsync`; with "never" a kill loses nothing either, only a power cut does.
        """
        if mode not in ("thread", "process"):
            raise ValueError(f"mode {mode!r} is neither 'thread' nor 'process'")
        self._mode, self._fsync = mode, fsync
        self._settings = {"auto.create.topics.enable": "true", **(settings or {})}
        self._own = data_dir is None
        self.directory = Path(tempfile.mkdtemp(prefix="kafka-broker-")) if data_dir is None else Path(data_dir)
        """Holds `data` and `broker.log`."""
        self._port_holder = socket.socket()
        self._port_holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port_holder.bind((HOST, 0))
        self._port = int(self._port_holder.getsockname()[1])
        self._runner: Runner | None = None
        self._waiting: dict[int, Mapping[str, Any]] = {}  # faults for the next start
        self.faults = FaultInjector(self)

    @property
    def bootstrap(self) -> str:
        """HOST:PORT for clients."""
        return f"{HOST}:{self._port}"

    def start(self) -> None:
        """Return when connections are accepted. Does nothing while it runs.

        Raises BrokerDied; ValueError for settings that the broker doesn't have.
        """
        if self.alive():
            return
        self._end()
        self.directory.mkdir(parents=True, exist_ok=True)
        launch = Launch(self.directory / "data", self.directory / "broker.log", self._port, self._fsync, self._settings)
        runner = self._new_runner()
        waiting, self._waiting = self._waiting, {}
        try:
            runner.start(launch, waiting)
        except BrokerDied as error:
            error.add_note(self.log())
            raise
        self._runner = runner

    def _new_runner(self) -> Runner:
        """Make the runner for the mode, imported here so that the pytest plugin is cheap to load for all other
        tests.
        """
        if self._mode == "thread":
            from embedded_broker.testing.threads import ThreadRunner

            return ThreadRunner(self.faults.record_hit)
        from embedded_broker.testing.processes import ProcessRunner

        return ProcessRunner(self.faults.record_hit)

    def stop(self) -> None:
        """End it cleanly; data and address stay. Does nothing when it doesn't run. Raises BrokerDied."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            runner.stop()

    def kill(self) -> None:
        """End it at once, as SIGKILL does (in mode "process" it is one): what was acknowledged is on disk."""
        self._end()

    def _end(self) -> None:
        if self._runner is not None:
            runner, self._runner = self._runner, None
            runner.kill()

    def restart(self) -> None:
        """Start again after `stop` or `kill`, with the same data and address; stops it first if it runs."""
        self.stop()
        self.start()

    def alive(self) -> bool:
        """Return whether it runs."""
        return self._runner is not None and self._runner.alive()

    def log(self, lines_max: int = LOG_LINES) -> str:
        """Return the end of its log, over all its starts: who connected, why they left, what went wrong."""
        path = self.directory / "broker.log"
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        return "\n".join(lines[-lines_max:])

    def close(self) -> None:
        """Stop it, release the port, and remove a temporary data directory. It can't be started again."""
        try:
            self.stop()
        finally:
            self._port_holder.close()
            if self._own:
                shutil.rmtree(self.directory, ignore_errors=True)

    def add_fault(self, number: int, spec: Mapping[str, Any]) -> None:
        """See `FaultTarget`."""
        if self._runner is None:
            self._waiting[number] = spec
        else:
            self._runner.add_fault(number, spec)

    def release_fault(self, number: int) -> None:
        """See `FaultTarget`."""
        if self._runner is not None and self._runner.alive():
            self._runner.release_fault(number)

    def remove_faults(self, numbers: list[int] | None) -> None:
        """See `FaultTarget`."""
        self._waiting = {} if numbers is None else {n: s for n, s in self._waiting.items() if n not in numbers}
        if self._runner is not None and self._runner.alive():
            self._runner.remove_faults(numbers)

    def __enter__(self) -> KafkaBroker:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
