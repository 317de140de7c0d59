"""Reads the flow's positions as they are, whatever transaction is open over them: who owned them last. Used by lanes,
once in their life."""

from __future__ import annotations

import threading
from collections.abc import Collection

from replicator.config import Flow
from replicator.kafka import offset_reader
from replicator.model import checkpoint, names
from replicator.model.checkpoint import Stored
from replicator.model.errors import Unsupported
from replicator.model.partition import Partition
from replicator.wire.committed_offsets import CommittedOffsets


class LastPositions:
    """Used by one thread; close it."""

    def __init__(self, flow: Flow, stop: threading.Event) -> None:
        """Connects to nothing yet. Once `stop` is set nothing is asked a second time."""
        self._flow = flow
        self._offsets = CommittedOffsets(flow, flow.target, names.position_group(flow.name), stop, "owners")
        self.connect, self.close = self._offsets.connect, self._offsets.close

    def positions(self, partitions: Collection[Partition]) -> dict[Partition, Stored | None]:
        """See `lane.ports.Connections.last_positions`."""
        if not partitions:
            return {}
        try:
            found = self._offsets.read_committed_positions(partitions)
        except Unsupported:
            return offset_reader.positions(self._flow, partitions, stable=False)
        return {at: checkpoint.stored(it) for at, it in found.items()}
