"""Changes a flow's control topic on the target: the I/O of `generation`. Used by `flow.setup`.

Order of a change (design: each part was shown to be needed by a model, see tests/model):
1. Initialise the control id: fences any other changer and ends its half-written transaction.
2. Read the control topic up to its read_uncommitted end, read_committed.
3. Write `preparing n`, unless one is half done: then finish that one.
4. Only once a read shows `preparing n`: initialise every id of every generation that isn't closed.
5. Write `closed` for those and `open n`, in one transaction; the first time also where all listed partitions begin.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from replicator.config import Flow
from replicator.failpoints import Failpoint, nothing
from replicator.kafka import properties
from replicator.kafka.producer import TransactionalProducer
from replicator.model import names
from replicator.model.errors import Fatal, FlowFrozen, NotAllowed, Retriable, TakenOver, Unreachable
from replicator.state.control_topic import Control
from replicator.state.flow_state import FlowState
from replicator.state.generation import Generation, Kind, LaneAssignment
from replicator.workers.settings import OwnFile

FENCED_TOGETHER_MAX = 8  # a generation of a job has a lane for each partition, and each is a client with its start-up
MayReplace = Callable[[Generation], None]


@dataclass(frozen=True, slots=True)
class Proposal:
    """The next generation's lanes, the file whose settings it has, and the topics that were failed over, with the
    generation of each; None: it has those of the one before it."""

    assignment: LaneAssignment
    own: OwnFile | None = None
    failed_over: Mapping[str, int] | None = None


CountLanes = Callable[[Control], int]
"""How many lanes a flow file wants, see `own_file.lanes_wanted`."""
Propose = Callable[[Control], Proposal | None]
"""What is to follow on the open generation, or to be the first one; None: the open one stays. Asked again under the
control id, by what the topic says then, so that of two that wanted the same only one begins it. It may raise TakenOver:
then nothing is begun, nor is finished what somebody else has begun."""
ResolveStarts = Callable[[Mapping[str, int]], Sequence[tuple[bytes, bytes]]]
"""Where these partitions (counts by source topic) begin now, as records of `starts`. Raises what the source raises."""


class ControlRecord(Protocol):
    """What an operator has written there: a decision, or the settings."""

    def encode(self) -> tuple[bytes, bytes]:
        """Return key and value."""


class TopicRecord(NamedTuple):
    """A record of one of the flow's own topics with one partition, which is written with those of the control topic."""

    topic: str
    key: bytes
    value: bytes | None


class Changer:
    """Writes the control topic. One at a time: a later one that initialises the control id fences the earlier."""

    def __init__(
        self,
        flow: Flow,
        state: FlowState,
        by: str,
        on_error: Callable[[str], None],
        resolve_starts: ResolveStarts,
        *,
        first: bool = False,
        seen: Control | None = None,
        thaw: bool = False,
        decided_by: str = "",
        step: Failpoint = nothing,
    ) -> None:
        """`by` is this process's name in the generations that it begins, `decided_by` whoever has typed the command.

        `first`: the flow has never run (see `flow.first_start`), so its control topic may be empty; otherwise an empty
        one is the incident `control_topic_lost`. `seen`: the control topic as it was read just now. `thaw`: a flow that
        was failed over may go on; otherwise nothing replaces its generation. `step` is told of what was done.
        """
        self._flow, self._state, self._by, self._on_error = flow, state, by, on_error
        self._resolve_starts = resolve_starts
        self._first, self._seen, self._thaw, self._decided_by, self._step = first, seen, thaw, decided_by, step
        self._writer: TransactionalProducer | None = None

    def ensure(self, propose: Propose, listing: Mapping[str, int], may_replace: MayReplace) -> tuple[Generation, bool]:
        """Return the open generation of the daemon; make or finish a change where needed.

        Args:
            propose: see there.
            listing: partitions by source topic; it is kept if this opens the flow for the first time.
            may_replace: is shown an open generation that is to be replaced, and raises if it must stay.

        Returns the generation and whether it was changed here.
        """
        control = self._seen if self._seen is not None else self._read()
        if control.open and propose(control) is None:
            return control.open, False
        if control.preparing and control.preparing.by != self._by:
            # Somebody is at it, or died; to initialise the control id would cut it short.
            may_replace(control.preparing)
        return self._change(Kind.LIVE, propose, listing, may_replace)

    def begin(
        self, kind: Kind, assignment: LaneAssignment, listing: Mapping[str, int], may_replace: MayReplace, before: int
    ) -> Generation:
        """Open a new generation, whatever is open now; other arguments as of `ensure`.

        `before`: the last generation that this process knows. A later one of its own is what an earlier try has made.
        """

        def propose(control: Control) -> Proposal | None:
            found = control.open
            mine = found is not None and found.number > before and found.by == self._by and found.kind is kind
            return None if mine else Proposal(assignment)

        return self._change(kind, propose, listing, may_replace)[0]

    def freeze(self, may_replace: MayReplace) -> Generation:
        """Open a generation under which nothing is copied, and return it; return the one that is open, if it is such a
        one.
        """

        def propose(control: Control) -> Proposal | None:
            found = control.open
            return None if found is not None and found.kind is Kind.FROZEN else Proposal(LaneAssignment(1))

        return self._change(Kind.FROZEN, propose, {}, may_replace)[0]

    def fail_over(self, topics: Collection[str], count_lanes: CountLanes, may_replace: MayReplace) -> Generation:
        """Open a generation of the daemon that leaves out these source topics, besides those that are left out already;
        return the one that is open, if it does. `count_lanes`: of a flow file, where the settings weren't stored."""

        def propose(control: Control) -> Proposal | None:
            found = control.failed_over
            if control.open is not None and found.keys() >= set(topics):
                return None
            lanes = daemon_lanes(control, count_lanes)
            return Proposal(LaneAssignment(lanes), failed_over={**dict.fromkeys(topics, control.newest + 1), **found})

        return self._change(Kind.LIVE, propose, {}, may_replace)[0]

    def decide(self, take: Callable[[Control], Sequence[ControlRecord | TopicRecord]]) -> None:
        """Write what an operator has decided, in one transaction, after finishing a change that was left half done.

        `take` is shown the control topic under the control id, so nobody else decides at the same time; it returns
        nothing where nothing is to be written. Raises what it raises; Fenced where somebody else writes the control
        topic now.
        """
        self._writer = self._made(properties.decision_producer(self._flow))
        try:
            self._writer.fence()
            control = self._read()
            if control.preparing is not None:
                control = self._finish(control, int(time.time() * 1000))
            decisions = take(control)
            if decisions:
                self._write([it if isinstance(it, TopicRecord) else self._of_control(it.encode()) for it in decisions])
        finally:
            self._writer.close()

    def rebuild(self, make: Callable[[Control], Sequence[Generation]]) -> Generation:
        """Begin a generation in a topic that was lost, and open it.

        `make` is shown what the topic has, under the control id, and returns what is written in one transaction:
        earlier generations, which are fenced before the new one opens, and that one, preparing. It isn't asked where
        this process has written it before, and doesn't know.
        """
        self._writer = self._made(properties.decision_producer(self._flow))
        try:
            self._writer.fence()
            control = self._read()
            newest = control.open or control.preparing
            if newest is None or newest.by != self._by:
                self._write([self._of_control((it.key, it.encode())) for it in make(control)])
                control = self._read()
            self._step("rebuild_prepared")
            if control.open is None:
                control = self._finish(control, int(time.time() * 1000))
            self._step("rebuild_opened")
            assert control.open is not None
            return control.open
        finally:
            self._writer.close()

    def _change(
        self, kind: Kind, propose: Propose, listing: Mapping[str, int], may_replace: MayReplace
    ) -> tuple[Generation, bool]:
        changed = False  # not where another process has done it before the control id was this one's
        self._writer = self._made(properties.control_producer(self._flow))
        try:
            self._writer.fence()
            control = self._read()
            # Also before a change is finished that somebody else has begun: it raises where that isn't ours to do.
            while (wanted := propose(control)) is not None or control.open is None:
                if control.open is not None:
                    self._check_frozen(control.open)
                    may_replace(control.open)
                now_ms = int(time.time() * 1000)
                if control.preparing is None and wanted is not None:
                    told = self._by, wanted.own, wanted.failed_over, self._decided_by
                    prepared = control.prepare(wanted.assignment, listing, now_ms, kind, *told)
                    self._write([self._of_control((prepared.key, prepared.encode()))])
                    self._step("change_prepared")
                    control = self._read()
                control, changed = self._finish(control, now_ms), True
            return control.open, changed
        finally:
            self._writer.close()

    def _made(self, props: properties.Properties) -> TransactionalProducer:
        """Make the producer that writes the control topic. librdkafka waits for a topic that was deleted as for one
        whose leader moves, so while a record is not acknowledged it is asked whether the topic is still there. Before
        the first start it was made just now, and not every broker may know of it."""
        made = TransactionalProducer(self._flow, props, self._on_error)
        if not self._first:
            made.stalled = self._check_there
        return made

    def _check_there(self) -> None:
        with suppress(NotAllowed, Retriable, Unreachable):  # the write has a limit of its own
            self._state.check_there()

    def _check_frozen(self, open_: Generation) -> None:
        """Raise FlowFrozen where nothing but the command that undoes a failover may open another generation."""
        if open_.kind is Kind.FROZEN and not self._thaw:
            raise FlowFrozen(
                f"flow {self._flow.name} was failed over ({open_.begun_said}): nothing is "
                f"copied until eos-replicate failover --undo --flow {self._flow.name} -c FILE"
            )

    def _read(self) -> Control:
        if not self._first:
            return self._state.control()
        found = self._state.control_if_any()
        if found is None:
            raise Retriable(f"the target doesn't show {names.control_topic(self._flow.name)} yet")
        return found

    def _finish(self, control: Control, now_ms: int) -> Control:
        if control.preparing is None:
            raise TakenOver(f"flow {self._flow.name}: another process changed the generation at the same time")
        with ThreadPoolExecutor(FENCED_TOGETHER_MAX) as pool:
            list(pool.map(lambda lane: self._fence(*lane), control.to_fence()))  # raises what any of them raised
        starts = self._resolve_starts(control.preparing.partitions) if control.never_open else ()
        records = control.finish(now_ms, len(starts))
        # Certainly committed when it returns, and whoever else wrote has been fenced.
        written = [*starts, *((record.key, record.encode()) for record in records)]
        self._write([self._of_control(each) for each in written])
        for record in records:
            control = control.apply(record)
        return replace(control, start_records={**control.start_records, **dict(starts)})

    def _fence(self, generation: int, lane: int) -> None:
        transactional_id = names.lane_id(self._flow.name, generation, lane)
        fenced = TransactionalProducer(
            self._flow, properties.lane_producer(self._flow, transactional_id), self._on_error
        )
        try:
            fenced.fence()
        finally:
            fenced.close()

    def _of_control(self, record: tuple[bytes, bytes]) -> TopicRecord:
        return TopicRecord(names.control_topic(self._flow.name), *record)

    def _write(self, records: Sequence[TopicRecord]) -> None:
        if self._writer is None:
            raise Fatal("the control topic is written before its id was initialised")
        self._writer.begin()
        for topic, key, value in records:
            self._writer.write(topic, value, key, 0)
            self._writer.flush()  # one by one: together, large ones could exceed what the topic takes as a batch
        self._writer.end()


def keeping(lanes: CountLanes, own: OwnFile | None = None) -> Propose:
    """Propose that the daemon goes on with a generation that has these lanes and settings, else begins another; see
    `fits`.
    """

    def propose(control: Control) -> Proposal | None:
        found, wanted = control.open, lanes(control)
        return None if found is not None and fits(found, wanted, own) else Proposal(LaneAssignment(wanted), own)

    return propose


def handing_back(own_lanes: CountLanes) -> Propose:
    """Propose what a job opens for the daemon at its end: as many lanes as before it, if their settings were stored.
    Those may be another file's than the job's, whose lanes are `own_lanes`."""

    def propose(control: Control) -> Proposal | None:
        found, lanes = control.open, daemon_lanes(control, own_lanes)
        return None if found is not None and fits(found, lanes) else Proposal(LaneAssignment(lanes))

    return propose


def giving_back(topics: Collection[str], own_lanes: CountLanes) -> Propose:
    """Propose what follows where topics that were failed over are to be copied again; nothing, where none is left out.
    Other arguments as of `handing_back`."""

    def propose(control: Control) -> Proposal | None:
        left = {name: since for name, since in control.failed_over.items() if name not in topics}
        if control.open is not None and left == control.failed_over:
            return None
        return Proposal(LaneAssignment(daemon_lanes(control, own_lanes)), failed_over=left)

    return propose


def daemon_lanes(control: Control, own_lanes: CountLanes) -> int:
    """Return how many lanes the daemon's next generation has, if nobody wants others: as many as its last one, if that
    stored its settings."""
    before = control.daemon
    return before.lanes if before is not None and before.settings else own_lanes(control)


def fits(found: Generation, lanes: int, own: OwnFile | None = None) -> bool:
    """Tell whether the daemon goes on with a generation; else it begins another. `own`: its flow file, where that
    decides; a generation of a version that stored no settings fits any."""
    same = own is None or found.settings_hash in ("", own.hash)
    return found.kind is Kind.LIVE and found.lanes == lanes and same
