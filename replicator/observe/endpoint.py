"""The address of `metrics.listen`: taken before anything is copied, and answered at while the process runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import structlog

from replicator.config import MetricsSection
from replicator.observe import serving
from replicator.observe.metrics import Metrics
from replicator.observe.view import FlowView
from replicator.observe.web import Web


class Endpoint:
    """The address of one process."""

    def __init__(self, section: MetricsSection, version: str) -> None:
        """Raises ConfigError where `listen` can't be listened on."""
        self._section, self._version = section, version
        host, _, port = section.listen.rpartition(":")
        self._listening = serving.bound(host.strip("[]"), int(port))

    def serving(
        self, flows: Callable[[], Sequence[FlowView]], log: structlog.stdlib.BoundLogger
    ) -> AbstractContextManager[int]:
        """Answer until the block ends; gives the port. `flows`: as they are now."""
        metrics = Metrics(flows, self._version, self._section.partitions_max)
        return serving.serving(self._listening, Web(flows, metrics, self._section.token), log)
