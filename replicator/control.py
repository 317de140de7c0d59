"""Reads and changes a flow's control topic on the target: the I/O around `generation`.

Order of a change (design: each part was shown to be needed by a model, see tests/model):
1. Initialise the control id: fences any other changer and ends its half-written transaction.
2. Read the control topic up to its read_uncommitted end, read_committed.
3. Write `preparing n`, unless one is half done: then finish that one.
4. Only once a read shows `preparing n`: initialise every id of every generation that isn't closed.
5. Write `closed` for those and `open n`, in one transaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from replicator import names
from replicator.config import Flow
from replicator.errors import Fatal, Incident, Superseded
from replicator.generation import BadControl, Control, Generation, fold
from replicator.planes.contract import Partition
from replicator.planes.records import properties
from replicator.planes.records.reading import Reader
from replicator.planes.records.target import Transactions


def read(flow: Flow, reader: Reader) -> Control:
    """The control topic's committed state, up to its read_uncommitted end. Raises Incident when unreadable."""
    topic = names.control_topic(flow.name)
    try:
        return fold(reader.whole(topic, [0]))
    except BadControl as error:
        raise Incident("control_topic_unreadable", str(error), topic=topic, partition=0) from error


class Changer:
    """Writes the control topic. One at a time: whoever initialises the control id later wins."""

    def __init__(self, flow: Flow, reader: Reader, on_error: Callable[[str], None]) -> None:
        self._flow, self._reader, self._on_error = flow, reader, on_error
        self._writer: Transactions | None = None

    def ensure(self, listing: Mapping[str, int]) -> tuple[Generation, bool]:
        """The open generation with the flow's lane count; makes or finishes a change where needed.

        `listing` counts partitions by source topic; it is kept if this opens the flow for the first time.
        Returns the generation and whether it was changed here.
        """
        control = read(self._flow, self._reader)
        if control.open and control.open.lanes == self._flow.lanes and control.open.kind == "live":
            return control.open, False
        self._writer = Transactions(self._flow, properties.control_producer(self._flow), self._on_error)
        try:
            self._writer.fence()
            control = read(self._flow, self._reader)
            while not (control.open and control.open.lanes == self._flow.lanes and control.open.kind == "live"):
                control = self._advance(control, listing)
            return control.open, True
        finally:
            self._writer.close()

    def _advance(self, control: Control, listing: Mapping[str, int]) -> Control:
        now_ms = int(time.time() * 1000)
        if control.preparing is None:
            self._write([control.prepare(self._flow.lanes, listing, now_ms)])
            control = read(self._flow, self._reader)
        change = control.preparing
        if change is None:
            raise Superseded(f"flow {self._flow.name}: another process changed the generation at the same time")
        for number, lane in control.to_fence():
            self._fence(number, lane)
        self._write(control.finish(now_ms))
        return read(self._flow, self._reader)

    def _fence(self, generation: int, lane: int) -> None:
        transactional_id = names.lane_id(self._flow.name, generation, lane)
        fenced = Transactions(self._flow, properties.lane_producer(self._flow, transactional_id), self._on_error)
        try:
            fenced.fence()
        finally:
            fenced.close()

    def _write(self, records: Sequence[Generation]) -> None:
        if self._writer is None:
            raise Fatal("the control topic is written before its id was initialised")
        self._writer.begin()
        for record in records:
            self._writer.write(names.control_topic(self._flow.name), record.encode(), record.key, 0)
        self._writer.flush()
        self._writer.end()


def partitions_of(topics: Mapping[str, int]) -> list[Partition]:
    """All partitions of a listing, sorted."""
    return [Partition(topic, number) for topic, count in sorted(topics.items()) for number in range(count)]
