"""Fails a flow over, or some of its topics, step by step, and undoes it. All of it asks the target alone.

    look       where the flow stands; whether its hooks can be started; make sure of the topic of verdicts
    freeze     a generation under which nothing is copied: whatever runs is fenced, its open transaction is aborted
    on_freeze  the hook; where it fails, and this very call has frozen the flow, that is undone
    keep       commit the positions again under that fence: nothing can move them any more. Not those of topics, which
               who runs the flow keeps
    verdict    fence who moves groups; look again; write the rows, and the summary to the control topic, together
    on_verdict the hook

Each step is done or not, wherever this process dies: begun again, it goes on from what it finds, and repeats hooks and
verdict. Of two at once both end with the same generation; a verdict is written only while that is open, and a call
opens the flow again only if nobody has written a verdict since it looked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import closing
from functools import partial

from replicator.config import Flow
from replicator.config.failover_settings import HOOKS
from replicator.config.routing import target_topic
from replicator.failover.contradicted import compared
from replicator.failover.cutovers import make_cutovers, note_in
from replicator.failover.facts import (
    ends_seen,
    failed_groups,
    failed_partitions,
    half_copied_transactions,
    read_positions,
    still_selected,
)
from replicator.failover.hook_runner import HookRunner
from replicator.failover.kept_rows import chunk_key, chunks
from replicator.failover.scope import FailedOver, Scope, SomeTopics, WholeFlow
from replicator.failover.steps import DONE, FailoverStep, Steps
from replicator.failover.verdict import FailoverVerdict
from replicator.flow.deciding import changed, written
from replicator.flow.frozen import keep_positions
from replicator.flow.never_run import check_new
from replicator.flow.topics import ControlPlane
from replicator.group_sync.note_topic import NoteTopic, read_source_notes
from replicator.model import names
from replicator.model.errors import (
    ChangeRefused,
    ConfigError,
    Fenced,
    HookFailed,
    NotAllowed,
    ReplicatorError,
    Retriable,
    UnknownOutcome,
    VerdictUnreadable,
)
from replicator.model.names import process_name
from replicator.state.claims import Claims
from replicator.state.control import Changer, ControlRecord, Proposal, TopicRecord
from replicator.state.control_topic import Control
from replicator.state.failover_note import FailoverNote
from replicator.state.generation import Generation
from replicator.state.own_file import lanes_wanted
from replicator.wire.group_questions import GroupQuestions

KEEP_S = 60.0
PAUSE_S = 0.2


class FailoverRun:
    """One call of the command. The target of `plane` is connected; its source isn't used.

    Attributes:
        verdict: the one that was written, as soon as it is.
        frozen: since which generation nothing is copied, as soon as that is known.
        reopening: whether the flow is being opened again, so that it may be open, or not.
    """

    def __init__(
        self,
        flow: Flow,
        plane: ControlPlane,
        by: str,
        steps: Steps,
        hooks: HookRunner,
        topics: Collection[str] = (),
    ) -> None:
        """
        Args:
            by: who fails over, for the record.
            topics: source topics; empty: the whole flow.
        """
        self._flow, self._plane, self._by, self._steps, self._hooks = flow, plane, by, steps, hooks
        self._scope: Scope = SomeTopics(flow, tuple(sorted(set(topics)))) if topics else WholeFlow(flow)
        self._count_lanes = partial(lanes_wanted, flow, {})
        self._process = process_name()
        self.verdict: FailoverVerdict | None = None
        self.frozen: FailedOver | None = None
        self.reopening = False

    def look(self) -> None:
        """See whether it can be failed over at all. Raises as `rehearse`; FlowFrozen."""
        self._checked()

    def rehearse(self) -> FailoverVerdict:
        """Say what the verdict would be now; changes nothing. Raises ConfigError where the flow has never run, Incident
        of its own topics, Unreachable, NotAllowed, Retriable, Unsupported."""
        self._checked()
        return self._seen(None)

    def run(self) -> FailoverVerdict:
        """Fail over; a flow that is failed over already gets another verdict.

        Raises as `rehearse`; HookFailed; TakenOver where a backfill or repair has the flow, or the failover was undone
        meanwhile; Fenced where others write the control topic all the time.
        """
        flow, plane, steps = self._flow, self._plane, self._steps
        with steps.step(FailoverStep.LOOK):
            control = self._checked()
            if control.open is not None:
                self._may_replace(control.open)
            self._hooks.check(*HOOKS)  # on_undo as well: it is run where on_freeze fails
            record_bytes_max = make_cutovers(flow, plane)
        found, ours = self._scope.stands(control), False
        if found is not None and control.open == found.under:
            steps.skip(FailoverStep.FREEZE, f"it was failed over already, by {found.who}")
        else:
            with steps.step(FailoverStep.FREEZE):
                waits = partial(self._waits, FailoverStep.FREEZE)
                changed(flow, plane, self._freeze, by=self._process, decided_by=self._by, waits=waits)
                found = self._standing_now()
            ours = found.by == self._process
        self.frozen = found
        self._on_freeze(found, control, undo=ours)
        if self._scope.topics:
            steps.skip(FailoverStep.KEEP, "who runs the flow does that")
        else:
            with steps.step(FailoverStep.KEEP):
                self._keep(found.under)
        with steps.step(FailoverStep.VERDICT):
            self._fence_groups()
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
        if not self._stands(found, self._control()):
            raise ChangeRefused(
                f"flow {flow.name}: the failover (generation {found.number}) was undone while on_verdict ran"
            )
        return verdict

    def undo(self) -> Generation | None:
        """Have the flow run again: return the generation that was opened; None where it was not failed over.

        Raises as `run`.
        """
        with self._steps.step(FailoverStep.LOOK):
            control = self._checked()
            found = self._scope.left(control)
            if found is not None:
                self._hooks.check("on_undo")
        if found is None:
            return None
        self.frozen = found
        try:
            opened = self._thawed(found, "asked", self._unless_others(control, 0))
        except HookFailed as error:
            raise HookFailed(f"{error}; {self._standing(found)}") from error
        self._steps.failpoint(DONE)
        return opened

    def _thawed(self, found: FailedOver, reason: str, propose: Callable[[Control], Proposal | None]) -> Generation:
        """Run the hook, then open the flow again: where the hook fails, the flow stays as it is."""
        facts = {**self._facts(found), "reason": reason}
        self._hooks.run("on_undo", FailoverStep.ON_UNDO, facts)
        with self._steps.step(FailoverStep.OPEN):
            self.reopening = True
            opened, _ = changed(
                self._flow,
                self._plane,
                lambda changer: changer.ensure(propose, {}, self._may_replace),
                thaw=not self._scope.topics,
                by=self._process,
                waits=partial(self._waits, FailoverStep.OPEN),
            )
        self.frozen, self.reopening = None, False
        return opened

    def _control(self) -> Control:
        control = self._plane.state.control_unless_new()
        if control is None:
            check_new(self._flow)
            raise ConfigError(
                f"flow {self._flow.name} has never run to cluster {self._flow.target.name!r}: there is nothing to fail "
                "over"
            )
        return control

    def _checked(self) -> Control:
        control = self._control()
        self._scope.check(control, self._plane.state.claims() if self._scope.topics else Claims({}, ()))
        return control

    def _freeze(self, changer: Changer) -> Generation:
        return self._scope.freeze(changer, self._count_lanes, self._may_replace)

    def _standing_now(self) -> FailedOver:
        found = self._scope.stands(self._control())
        if found is None:
            raise ChangeRefused(f"flow {self._flow.name}: the failover was undone meanwhile")
        return found

    def _stands(self, found: FailedOver, control: Control) -> bool:
        """Return whether it is failed over still, and since then."""
        now = self._scope.stands(control)
        open_or_inherited = control.open is not None or bool(self._scope.topics)
        return now is not None and now.number == found.number and open_or_inherited

    def _may_replace(self, found: Generation) -> None:
        if found.kind.bounded:
            raise ChangeRefused(
                f"flow {self._flow.name}: a {found.kind.value} has it (generation {found.number}, by {found.by}): let "
                "it finish, or end it and take the flow over (run --take-over), then fail over"
            )

    def _on_freeze(self, found: FailedOver, before: Control, *, undo: bool) -> None:
        """Run the hook `on_freeze`. `before`: what stood when this call began. `undo`: whether the flow is to run again
        where the hook fails.
        """
        try:
            self._hooks.run("on_freeze", FailoverStep.ON_FREEZE, self._facts(found))
        except HookFailed as error:
            what = self._scope.said.removesuffix(" is").removesuffix(" are") if self._scope.topics else "the flow"
            stays = f"{what} stay{'' if len(self._scope.topics) > 1 else 's'} failed over (generation {found.number})"
            stays += ", and there is no new verdict" if self._scope.topics else ", and has no new verdict"
            if not undo:
                raise HookFailed(
                    f"{error}; {stays}, because an earlier call had stopped it: give the command again once the cause "
                    "is gone, or --undo"
                ) from error
            try:
                propose = self._unless_others(before, found.number)
                propose(self._control())  # before the hook: who it lets in must not be let in beside another's failover
                opened = self._thawed(found, "on_freeze_failed", propose)
            except ReplicatorError as other:
                raise HookFailed(f"{error}; {stays}, because that can't be undone now: {other}") from error
            raise HookFailed(
                f"{error}; all is undone: the flow runs again, under generation {opened.number}"
            ) from error

    def _unless_others(self, before: Control, since: int) -> Callable[[Control], Proposal | None]:
        """Open the flow again, unless another call has ended with a verdict since this one looked: its hooks have told
        others to use the target. `since` as of `SomeTopics.back`."""
        back = self._scope.back(self._count_lanes, since)

        def propose(control: Control) -> Proposal | None:
            if control.failover_record != before.failover_record:
                note = note_in(control)
                by = f", by {note.by}" if note is not None else ""
                raise ChangeRefused(f"another call has ended with a verdict meanwhile{by}")
            return back(control)

        return propose

    def _standing(self, found: FailedOver) -> str:
        """Say how the flow stands after a hook has failed: others may have changed that meanwhile."""
        try:
            control = self._control()
        except ReplicatorError as error:
            return f"the flow was failed over (generation {found.number}); whether it is still can't be told: {error}"
        said = self._scope.said if self._scope.topics else "the flow is"
        opened = control.open
        if opened is not None and not self._stands(found, control):
            return f"{said}n't failed over any more: another call has opened generation {opened.number} meanwhile"
        return f"{said} failed over (generation {found.number})"

    def _waits(self, step: FailoverStep, change: Generation) -> None:
        """Note that somebody has begun to open or close a generation, and has not ended."""
        self._steps.note(step, f"{change.by} has begun generation {change.number}: waiting for that to end")

    def _facts(self, found: FailedOver) -> dict[str, object]:
        """Return what is known before there is a verdict."""
        return {
            "flow": self._flow.name,
            "source": self._flow.source.name,
            "target": self._flow.target.name,
            "generation": found.number,
            "by": self._by or process_name(),
            "at_ms": time.time_ns() // 1_000_000,
            **({"topics": list(self._scope.topics)} if self._scope.topics else {}),
        }

    def _keep(self, found: Generation) -> None:
        give_up_s = time.monotonic() + KEEP_S
        while True:
            try:
                if (done := keep_positions(self._flow, self._plane, found)).denied:
                    raise NotAllowed(done.denied_said)  # who has to grant it is here
                return
            except (Fenced, UnknownOutcome, Retriable):  # a worker that was started again keeps them, too
                if time.monotonic() >= give_up_s:
                    raise
                time.sleep(PAUSE_S)

    def _fence_groups(self) -> None:
        """Have nobody move consumer groups any more: a worker that stands still and goes on later notes what it is
        about to commit, and can't."""
        topic = names.groups_topic(self._flow.name)
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
        found = self._scope.stands(control)
        if found is None or control.open is None or found.number != verdict.generation:
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
            topics=verdict.topics,
        )
        return [*(TopicRecord(topic, *row) for row in rows), *(TopicRecord(topic, key, None) for key in gone), note]

    def _seen(self, generation: int | None) -> FailoverVerdict:
        flow, plane = self._flow, self._plane
        now_ms = time.time_ns() // 1_000_000
        noted, others = read_source_notes(flow, plane.target_reader)  # before the ends: those of others become ends
        with closing(GroupQuestions(flow.target, f"eos-replicate.{flow.name}.failover")) as questions:
            ends, seen_ms = ends_seen(flow, questions)
            claims, only = plane.state.claims(), self._scope.topics
            targets = {target_topic(flow, name) for name in only}
            stored = read_positions(flow, plane)
            partitions = failed_partitions(flow, claims, stored, ends, others.ends())
            groups = failed_groups(flow, plane, questions, targets)
        logs = plane.target_logs.log_ends([it.target for it in partitions if it.position is not None])
        partitions = compared(partitions, stored, noted.last.ids, logs)
        transactions, transactions_seen = half_copied_transactions(noted, partitions, stored, only)
        partitions = still_selected(flow, partitions, only)
        if only:
            partitions = [it for it in partitions if it.target.topic in targets]
        return FailoverVerdict(
            flow=flow.name,
            source=flow.source.name,
            target=flow.target.name,
            generation=generation,
            by=self._by or process_name(),
            at_ms=now_ms,
            ends_seen_ms=max(seen_ms, others.seen_ms),
            partitions=partitions,
            groups=groups,
            topics=only,
            transactions=transactions,
            transactions_seen=transactions_seen,
        )


def _chunks_before(control: Control, generation: int) -> int:
    """Return how many records an earlier verdict of the generation has; 0 where that can't be read: what is left of it
    then does no harm."""
    try:
        note = note_in(control)
    except VerdictUnreadable:
        return 0
    return note.chunks if note is not None and note.generation == generation else 0
