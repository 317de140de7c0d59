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
from concurrent.futures import ThreadPoolExecutor

from replicator import names
from replicator.config import Flow
from replicator.errors import Fatal, Incident, Superseded
from replicator.generation import BadControl, Control, Cut, Generation, Kind, fold
from replicator.planes.records import properties
from replicator.planes.records.reading import Reader
from replicator.planes.records.target import Transactions

FENCED_TOGETHER_MAX = 8  # a generation of a job has a lane for each partition, and each is a client with its start-up
MayReplace = Callable[[Generation], None]


def read(flow: Flow, reader: Reader) -> Control:
    """The control topic's committed state, up to its read_uncommitted end. Raises Incident when unreadable."""
    topic = names.control_topic(flow.name)
    try:
        return fold(reader.whole(topic, [0]))
    except BadControl as error:
        raise Incident("control_topic_unreadable", str(error), topic=topic, partition=0) from error


class Changer:
    """Writes the control topic. One at a time: whoever initialises the control id later wins."""

    def __init__(self, flow: Flow, reader: Reader, by: str, on_error: Callable[[str], None]) -> None:
        """`by` is this process's name in the generations that it begins."""
        self._flow, self._reader, self._by, self._on_error = flow, reader, by, on_error
        self._writer: Transactions | None = None

    def ensure(self, cut: Cut, listing: Mapping[str, int], may_replace: MayReplace) -> tuple[Generation, bool]:
        """The open generation of the daemon with this cut; makes or finishes a change where needed.

        Args:
            listing: partitions by source topic; it is kept if this opens the flow for the first time.
            may_replace: is shown an open generation that doesn't fit, and raises if it must stay.

        Returns the generation and whether it was changed here.
        """
        control = read(self._flow, self._reader)
        if control.open and _fits(control.open, cut):
            return control.open, False
        if control.preparing and control.preparing.by != self._by:
            # Somebody is at it, or died; to initialise the control id would cut it short.
            may_replace(control.preparing)
        return self._change(cut, listing, Kind.LIVE, may_replace, lambda found: _fits(found, cut)), True

    def begin(
        self, kind: Kind, cut: Cut, listing: Mapping[str, int], may_replace: MayReplace, before: int
    ) -> Generation:
        """A new generation, whatever is open now; arguments as of `ensure`.

        `before`: the last generation that this process knows. A later one of its own is what an earlier try has made.
        """
        mine = lambda found: found.number > before and found.by == self._by and found.kind is kind  # noqa: E731
        return self._change(cut, listing, kind, may_replace, mine)

    def _change(
        self,
        cut: Cut,
        listing: Mapping[str, int],
        kind: Kind,
        may_replace: MayReplace,
        wanted: Callable[[Generation], bool],
    ) -> Generation:
        self._writer = Transactions(self._flow, properties.control_producer(self._flow), self._on_error)
        try:
            self._writer.fence()
            control = read(self._flow, self._reader)
            while not (control.open and wanted(control.open)):
                if control.open:
                    may_replace(control.open)
                now_ms = int(time.time() * 1000)
                if control.preparing is None:
                    self._write([control.prepare(cut, listing, now_ms, kind, self._by)])
                    control = read(self._flow, self._reader)
                control = self._finish(control, now_ms)
            return control.open
        finally:
            self._writer.close()

    def _finish(self, control: Control, now_ms: int) -> Control:
        if control.preparing is None:
            raise Superseded(f"flow {self._flow.name}: another process changed the generation at the same time")
        with ThreadPoolExecutor(FENCED_TOGETHER_MAX) as pool:
            list(pool.map(lambda lane: self._fence(*lane), control.to_fence()))  # raises what any of them raised
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


def _fits(found: Generation, cut: Cut) -> bool:
    return found.kind is Kind.LIVE and found.cut == cut
