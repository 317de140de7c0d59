"""Fails a flow over, step by step, and undoes it. All of it asks the target alone.

    look       where the flow stands; whether its hooks can be started; make sure of the topic of verdicts
    freeze     a generation under which nothing is copied: whatever runs is fenced, its open transaction is aborted
    on_freeze  the hook; where it fails, and this very call has frozen the flow, that is undone
    keep       commit the positions again under that fence, and fence who moves groups: nothing can move either any more
    verdict    look again; write the rows, and the summary to the control topic, in one transaction
    on_verdict the hook

Each step is done or not, wherever this process dies: begun again, it goes on from what it finds, and repeats hooks and
verdict. Of two at once both end with the same generation; a verdict is written only while that is open, and a call
opens the flow again only if nobody has written a verdict since it looked.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from functools import partial

from replicator.config import Flow
from replicator.config.failover_settings import HOOKS
from replicator.failover.cutovers import make_cutovers, note_in
from replicator.failover.facts import ends_seen, failed_groups, failed_partitions, read_positions
from replicator.failover.hook_runner import HookRunner
from replicator.failover.kept_rows import chunk_key, chunks
from replicator.failover.steps import DONE, FailoverStep, Steps
from replicator.failover.verdict import FailoverVerdict
from replicator.flow.deciding import changed, written
from replicator.flow.frozen import keep_positions
from replicator.flow.topics import ControlPlane
from replicator.group_sync.note_topic import NoteTopic, notes_topic
from replicator.model import names
from replicator.model.errors import (
    ChangeRefused,
    ConfigError,
    Fenced,
    HookFailed,
    ReplicatorError,
    Retriable,
    UnknownOutcome,
    VerdictUnreadable,
)
from replicator.model.names import process_name
from replicator.state.control import Changer, ControlRecord, Proposal, TopicRecord, handing_back
from replicator.state.control_topic import Control
from replicator.state.failover_note import FailoverNote
from replicator.state.generation import Generation, Kind, Phase
from replicator.state.own_file import lanes_wanted
from replicator.wire.group_questions import GroupQuestions

KEEP_S = 60.0
PAUSE_S = 0.2


class FailoverRun:
    """One call of the command. The target of `plane` is connected; its source isn't used.

    Attributes:
        verdict: the one that was written, as soon as it is.
        frozen: the generation under which nothing is copied, as soon as that is known.
        reopening: whether the flow is being opened again, so that it may be open, or not.
    """

    def __init__(self, flow: Flow, plane: ControlPlane, by: str, steps: Steps, hooks: HookRunner) -> None:
        """`by`: who fails over, for the record."""
        self._flow, self._plane, self._by, self._steps, self._hooks = flow, plane, by, steps, hooks
        self._process = process_name()
        self.verdict: FailoverVerdict | None = None
        self.frozen: Generation | None = None
        self.reopening = False

    def rehearse(self) -> FailoverVerdict:
        """Say what the verdict would be now; changes nothing. Raises ConfigError where the flow has never run, Incident
        of its own topics, Unreachable, NotAllowed, Retriable, Unsupported."""
        self._control()
        return self._seen(None)

    def run(self) -> FailoverVerdict:
        """Fail over; a flow that is failed over already gets another verdict.

        Raises as `rehearse`; HookFailed; TakenOver where a backfill or repair has the flow, or the failover was undone
        meanwhile; Fenced where others write the control topic all the time.
        """
        flow, plane, steps = self._flow, self._plane, self._steps
        with steps.step(FailoverStep.LOOK):
            control = self._control()
            if control.open is not None:
                self._may_replace(control.open)
            self._hooks.check(*HOOKS)  # on_undo as well: it is run where on_freeze fails
            record_bytes_max = make_cutovers(flow, plane)
        found, ours = control.frozen, False
        if found is not None and control.open == found:
            steps.skip(FailoverStep.FREEZE, f"it was failed over already, by {found.by}")
        else:
            with steps.step(FailoverStep.FREEZE):
                waits = partial(self._waits, FailoverStep.FREEZE)
                found = changed(flow, plane, self._freeze, by=self._process, waits=waits)
            ours = found.by == self._process
        self.frozen = found
        self._on_freeze(found, control, undo=ours)
        with steps.step(FailoverStep.KEEP):
            self._keep(found)
            self._fence_groups()
        with steps.step(FailoverStep.VERDICT):
            verdict = self._seen(found.number)
            written(flow, plane, partial(self._kept, verdict, chunks(verdict, found.number, record_bytes_max)))
            self.verdict = verdict
        try:
            self._hooks.run("on_verdict", FailoverStep.ON_VERDICT, verdict.as_json())
        except HookFailed as error:
            raise HookFailed(
                f"{error}; {self._standing(found)}; its verdict is kept: give the command again once the cause is "
                "gone, or --undo"
            ) from error
        steps.failpoint(DONE)
        opened = self._control().open
        if opened is None or opened.number != found.number:
            raise ChangeRefused(
                f"flow {flow.name}: the failover (generation {found.number}) was undone while on_verdict ran"
            )
        return verdict

    def undo(self) -> Generation | None:
        """Have the flow run again: return the generation that was opened; None where it was not failed over.

        Raises as `run`.
        """
        with self._steps.step(FailoverStep.LOOK):
            control = self._control()
            found = _to_undo(control)
            if found is not None:
                self._hooks.check("on_undo")
        if found is None:
            return None
        self.frozen = found
        try:
            opened = self._thawed(found, "asked", self._unless_others(control))
        except HookFailed as error:
            raise HookFailed(f"{error}; {self._standing(found)}") from error
        self._steps.failpoint(DONE)
        return opened

    def _thawed(self, found: Generation, reason: str, propose: Callable[[Control], Proposal | None]) -> Generation:
        """Run the hook, then open the flow again: where the hook fails, the flow stays as it is."""
        facts = {**self._facts(found), "reason": reason}
        self._hooks.run("on_undo", FailoverStep.ON_UNDO, facts)
        with self._steps.step(FailoverStep.OPEN):
            self.reopening = True
            opened, _ = changed(
                self._flow,
                self._plane,
                lambda changer: changer.ensure(propose, {}, lambda found: None),
                thaw=True,
                by=self._process,
                waits=partial(self._waits, FailoverStep.OPEN),
            )
        self.frozen, self.reopening = None, False
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
            raise ChangeRefused(
                f"flow {self._flow.name}: a {found.kind.value} has it (generation {found.number}, by {found.by}): let "
                "it finish, or end it and take the flow over (run --take-over), then fail over"
            )

    def _on_freeze(self, found: Generation, before: Control, *, undo: bool) -> None:
        """`before`: what stood when this call began. `undo`: whether the flow is to run again where the hook fails."""
        try:
            self._hooks.run("on_freeze", FailoverStep.ON_FREEZE, self._facts(found))
        except HookFailed as error:
            stays = f"the flow stays failed over (generation {found.number}), and has no new verdict"
            if not undo:
                raise HookFailed(
                    f"{error}; {stays}, because an earlier call had stopped it: give the command again once the cause "
                    "is gone, or --undo"
                ) from error
            try:
                propose = self._unless_others(before)
                propose(self._control())  # before the hook: who it lets in must not be let in beside another's failover
                opened = self._thawed(found, "on_freeze_failed", propose)
            except ReplicatorError as other:
                raise HookFailed(f"{error}; {stays}, because that can't be undone now: {other}") from error
            raise HookFailed(
                f"{error}; all is undone: the flow runs again, under generation {opened.number}"
            ) from error

    def _unless_others(self, before: Control) -> Callable[[Control], Proposal | None]:
        """Open the flow again, unless another call has ended with a verdict since this one looked: its hooks have told
        others to use the target."""
        back = handing_back(partial(lanes_wanted, self._flow, {}))

        def propose(control: Control) -> Proposal | None:
            if control.failover_record != before.failover_record:
                note = note_in(control)
                by = f", by {note.by}" if note is not None else ""
                raise ChangeRefused(f"another call has ended with a verdict meanwhile{by}")
            return back(control)

        return propose

    def _standing(self, found: Generation) -> str:
        """Say how the flow stands after a hook has failed: others may have changed that meanwhile."""
        try:
            opened = self._control().open
        except ReplicatorError as error:
            return f"the flow was failed over (generation {found.number}); whether it is still can't be told: {error}"
        if opened is not None and opened.number != found.number:
            return f"the flow isn't failed over any more: another call has opened generation {opened.number} meanwhile"
        return f"the flow is failed over (generation {found.number})"

    def _waits(self, step: FailoverStep, change: Generation) -> None:
        """Somebody has begun to open or close a generation, and has not ended."""
        self._steps.note(step, f"{change.by} has begun generation {change.number}: waiting for that to end")

    def _facts(self, found: Generation) -> dict[str, object]:
        """What is known before there is a verdict."""
        return {
            "flow": self._flow.name,
            "source": self._flow.source.name,
            "target": self._flow.target.name,
            "generation": found.number,
            "by": self._by or process_name(),
            "at_ms": time.time_ns() // 1_000_000,
        }

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

    def _kept(
        self, verdict: FailoverVerdict, rows: list[tuple[bytes, bytes]], control: Control
    ) -> list[ControlRecord | TopicRecord]:
        """Return the records of a verdict: all of them are written, or none. Raises ChangeRefused where its generation
        isn't open any more."""
        found = control.open
        if found is None or found.number != verdict.generation:
            raise ChangeRefused(
                f"flow {self._flow.name}: the failover (generation {verdict.generation}) was undone meanwhile: its "
                "verdict is not written"
            )
        self._steps.failpoint("failover_write")
        topic, before = names.cutovers_topic(self._flow.name), _chunks_before(control, found.number)
        gone = [chunk_key(found.number, number) for number in range(len(rows), before)]
        note = FailoverNote(
            generation=found.number,
            at_ms=verdict.at_ms,
            by=verdict.by,
            source=verdict.source,
            target=verdict.target,
            ends_seen_ms=verdict.ends_seen_ms,
            complete=verdict.complete,
            not_copied=verdict.not_copied,
            partitions=len(verdict.partitions),
            groups=len(verdict.groups),
            chunks=len(rows),
            digest=verdict.digest,
        )
        return [*(TopicRecord(topic, *row) for row in rows), *(TopicRecord(topic, key, None) for key in gone), note]

    def _seen(self, generation: int | None) -> FailoverVerdict:
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


def _to_undo(control: Control) -> Generation | None:
    """Find the generation of the failover, also where another one has been prepared since, and isn't open: whoever
    undid it died."""
    left = [it for it in control.generations.values() if it.kind is Kind.FROZEN and it.phase is Phase.OPEN]
    return control.frozen or (left[-1] if control.open is None and left else None)


def _chunks_before(control: Control, generation: int) -> int:
    """How many records an earlier verdict of the generation has; 0 where that can't be read: what is left of it then
    does no harm."""
    try:
        note = note_in(control)
    except VerdictUnreadable:
        return 0
    return note.chunks if note is not None and note.generation == generation else 0
