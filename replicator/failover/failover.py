"""Fails a flow over, step by step, and undoes it. All of it asks the target alone.

    1 look    where positions, the source's ends and groups stand
    2 freeze  a generation under which nothing is copied: whatever runs is fenced, and its open transaction is aborted
    3 keep    commit the positions again under that fence, and fence who moves groups: nothing can move either any more
    4 verdict look again, and write the summary to the control topic

Each step is done or not, wherever this process dies: begun again, it goes on from what it finds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from functools import partial

from replicator.config import Flow
from replicator.failover.facts import ends_seen, failed_groups, failed_partitions, read_positions
from replicator.failover.verdict import FailoverVerdict
from replicator.flow.deciding import changed, written
from replicator.flow.frozen import keep_positions
from replicator.flow.topics import ControlPlane
from replicator.group_sync.note_topic import NoteTopic, notes_topic
from replicator.model.errors import ConfigError, Fenced, Retriable, TakenOver, UnknownOutcome
from replicator.model.names import process_name
from replicator.state.control import Changer, handing_back
from replicator.state.control_topic import Control
from replicator.state.failover_note import FailoverNote
from replicator.state.generation import Generation
from replicator.state.own_file import lanes_wanted
from replicator.wire.group_questions import GroupQuestions

KEEP_S = 60.0
PAUSE_S = 0.2
Step = Callable[[str], None]
"""Is told of each step, in words, before it is begun."""


class FailoverRun:
    """One call of the command. The target of `plane` is connected; its source isn't used."""

    def __init__(self, flow: Flow, plane: ControlPlane, by: str, step: Step = lambda text: None) -> None:
        """`by`: who fails over, for the record."""
        self._flow, self._plane, self._by, self._step = flow, plane, by, step

    def rehearse(self) -> FailoverVerdict:
        """Say what the verdict would be now; changes nothing. Raises ConfigError where the flow has never run, Incident
        of its own topics, Unreachable, NotAllowed, Retriable, Unsupported."""
        self._control()
        return self._verdict(None)

    def run(self) -> FailoverVerdict:
        """Fail over; a flow that is failed over already gets another verdict.

        Raises as `rehearse`; TakenOver where a backfill or repair has the flow; Fenced where others write the control
        topic all the time.
        """
        flow, plane = self._flow, self._plane
        found = self._control().frozen
        if found is None or plane.state.control().open != found:
            self._step("fencing all workers: from here on nothing is copied")
            found = changed(flow, plane, self._freeze)
        self._step("committing the positions again, under the fence")
        self._keep(found)
        self._fence_groups()
        self._step("reading where the target stands")
        verdict = self._verdict(found.number)
        note = FailoverNote(
            generation=found.number,
            at_ms=verdict.at_ms,
            by=self._by,
            complete=verdict.complete,
            not_copied=verdict.not_copied,
            partitions=len(verdict.partitions),
            groups=len(verdict.groups),
            digest=verdict.digest,
        )
        written(flow, plane, lambda control: [note])
        return verdict

    def undo(self) -> Generation | None:
        """Have the flow run again: return the generation that was opened; None where it was not failed over.

        Raises as `run`.
        """
        flow, plane = self._flow, self._plane
        if self._control().frozen is None:
            return None
        wanted = handing_back(partial(lanes_wanted, flow, {}))
        self._step("opening the flow again")
        opened, _ = changed(flow, plane, lambda changer: changer.ensure(wanted, {}, lambda found: None), thaw=True)
        return opened

    def _control(self) -> Control:
        control = self._plane.state.control_confirmed()
        if control is None or not control.begun:
            raise ConfigError(
                f"flow {self._flow.name} has never run to cluster {self._flow.target.name!r}: there is nothing to fail "
                "over"
            )
        return control

    def _freeze(self, changer: Changer) -> Generation:
        return changer.freeze(self._may_replace)

    def _may_replace(self, found: Generation) -> None:
        if found.kind.bounded:
            raise TakenOver(
                f"flow {self._flow.name}: a {found.kind.value} has it (generation {found.number}, by {found.by}): let "
                "it finish, or end it and take the flow over (run --take-over), then fail over"
            )

    def _keep(self, found: Generation) -> None:
        give_up_s = time.monotonic() + KEEP_S
        while True:
            try:
                keep_positions(self._flow, self._plane, found)
                return
            except (Fenced, UnknownOutcome, Retriable):  # a worker that was started again keeps them, too
                if time.monotonic() >= give_up_s:
                    raise
                time.sleep(PAUSE_S)

    def _fence_groups(self) -> None:
        """Have nobody move consumer groups any more: a worker that stands still and goes on later notes what it is
        about to commit, and can't."""
        topic = notes_topic(self._flow).name
        if not self._plane.target_reader.partition_count(topic):
            return
        notes = NoteTopic(self._flow, lambda text: None)
        try:
            notes.begin()
        finally:
            notes.forget()

    def _verdict(self, generation: int | None) -> FailoverVerdict:
        flow, plane = self._flow, self._plane
        now_ms = time.time_ns() // 1_000_000
        with closing(GroupQuestions(flow.target, f"eos-replicate.{flow.name}.failover")) as questions:
            ends, seen_ms = ends_seen(flow, questions)
            partitions = failed_partitions(plane.state.claims(), read_positions(flow, plane), ends)
            groups = failed_groups(flow, plane, questions)
        return FailoverVerdict(
            flow=flow.name,
            source=flow.source.name,
            target=flow.target.name,
            generation=generation,
            by=self._by or process_name(),
            at_ms=now_ms,
            ends_seen_ms=seen_ms,
            partitions=partitions,
            groups=groups,
        )
