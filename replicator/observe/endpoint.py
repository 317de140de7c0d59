"""The address of `metrics.listen`: taken before anything is copied, and answered at while the process runs."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import structlog

from replicator.config import MetricsSection
from replicator.lane.ports import Clock
from replicator.observe import serving
from replicator.observe.history import History
from replicator.observe.metrics import Metrics
from replicator.observe.page import StatusPage
from replicator.observe.shown import Process, ShownFlow, as_json, shown_of
from replicator.observe.view import FlowView
from replicator.observe.web import Web


class Endpoint:
    """The address of one process."""

    def __init__(self, section: MetricsSection, version: str, clock: Clock) -> None:
        """Raises ConfigError where `listen` can't be listened on."""
        self._section, self._clock = section, clock
        self._process = Process(socket.gethostname(), os.getpid(), version, clock.now_ms())
        host, _, port = section.listen.rpartition(":")
        self._listening = serving.bound(host.strip("[]"), int(port))

    @contextmanager
    def serving(
        self,
        flows: Callable[[], Sequence[FlowView]],
        config_fault: Callable[[], str],
        log: structlog.stdlib.BoundLogger,
    ) -> Iterator[int]:
        """Answer until the block ends; yield the port.

        `flows`: as they are now. `config_fault`: why they go on with older settings than the flow file has, or empty.
        """
        history, ended = History(flows, self._clock, log), threading.Event()

        def shown() -> list[ShownFlow]:
            return [shown_of(view, history.samples(view.name)) for view in flows()]

        def for_programs() -> dict[str, Any]:
            return as_json(self._process, shown(), config_fault())

        page = StatusPage(self._process, shown, self._clock, config_fault)
        metrics = Metrics(flows, self._process.version, self._section.partitions_max, config_fault)
        threading.Thread(target=partial(history.run, ended), name="history", daemon=True).start()
        web = Web(flows, metrics, page.html, for_programs, self._section.token, config_fault)
        with serving.serving(self._listening, web, log) as port:
            try:
                yield port
            finally:
                ended.set()
