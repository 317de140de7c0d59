"""Every step of the model of group sync. What a worker decides is the program's own code, `replicator.groups`."""

from __future__ import annotations

from collections.abc import Iterator

from replicator.groups.decision import GroupDecision, GroupVerdict, OffsetToCommit, SourceOffset, TargetOffset, decide
from replicator.groups.ownership import GroupOffset, OwnershipNote
from replicator.offset_map.translate import TranslatedOffset
from tests.model.explore import Bad, Step
from tests.model.groups import world as w
from tests.model.groups.world import Commit, GroupRules, Worker, World, put

LATER_MS = 1_000_000
"""Far beyond any deadline."""
SOURCE_OFFSETS = (1, 2, 4)


class GroupModel:
    """The steps by rules."""

    def __init__(self, rules: GroupRules) -> None:
        self._rules = rules

    def steps(self, world: World) -> Iterator[Step[World]]:
        """Every step that can be the next. Raises Bad where a property breaks."""
        yield from self._others(world)
        for number in range(2):
            yield from self._worker(world, number)
        yield from self._broker(world)

    def _others(self, world: World) -> Iterator[Step[World]]:
        if world.moves:
            for offset in SOURCE_OFFSETS:
                if offset != world.source:
                    yield f"source: the group is at {offset}", world._replace(source=offset, moves=world.moves - 1)
        if world.copied < 4 and world.source == 4:
            yield "the flow copies more", world._replace(copied=4)
        if world.resets and not world.members:
            for offset in (1, 2):
                value = GroupOffset(offset)
                if value != world.value:
                    after = self._by_other(world, value, w.OPERATOR)
                    yield f"operator: resets to {offset}", after._replace(resets=world.resets - 1)
        if world.joins and not world.members:
            label = "consumer: joins at the target"
            if world.leader_epoch > w.TARGET_EPOCH:
                raise Bad("stands still", label)
            yield label, world._replace(members=True, joins=world.joins - 1)
        if world.members:
            yield "consumer: commits", self._by_other(world, GroupOffset(3), w.CONSUMER)
            yield "consumer: leaves", world._replace(members=False)

    def _by_other(self, world: World, value: GroupOffset, by: int) -> World:
        alone = not self._under_way(world) and (world.seen or value != world.last)
        if value == world.value:  # nobody can see that it was committed again
            alone = world.left_alone
        return world._replace(value=value, leader_epoch=-1, by=by, left_alone=alone)

    @staticmethod
    def _under_way(world: World) -> bool:
        return bool(world.air or world.doubt) or any(worker.at > w.READY for worker in world.workers)

    def _worker(self, world: World, number: int) -> Iterator[Step[World]]:
        worker, who = world.workers[number], f"worker {number}"
        if worker.at != w.OFF and world.kills:
            # Until its successor has looked, nobody knows whether what it was about to commit is there.
            yield f"{who}: dies", self._set(_doubted(world._replace(kills=world.kills - 1)), number, Worker())
        if worker.at == w.OFF and world.starts:
            world = world._replace(starts=world.starts - 1)
            fenced = world if self._rules.writer_not_fenced else _doubted(world._replace(writer=number))
            yield f"{who}: fences and reads the notes", self._set(fenced, number, Worker(w.READY, world.note))
        elif worker.at == w.READY:
            decision = self._decided(world, worker, who)
            looked = Worker(w.LOOKED, worker.note, decision)
            if decision.note != worker.note or decision.commit is not None:
                yield f"{who}: looks: {decision.verdict.value}", self._set(world, number, looked)
            elif not self._fenced(world, number):
                after = _looked(world, decision)
                if after != world:
                    yield f"{who}: looks, and has nothing to do: {decision.verdict.value}", after
        elif worker.at == w.LOOKED:
            yield self._note(world, number, worker, who)
        elif worker.at == w.NOTED:
            yield self._send(world, number, worker, who)
        elif worker.at == w.ANSWERED:
            yield self._note_answer(world, number, worker, who)

    def _decided(self, world: World, worker: Worker, who: str) -> GroupDecision:
        rules, known = self._rules, worker.note
        if rules.unanswered_forgotten:
            known = OwnershipNote(known.last)
        if rules.every_value_once_written_is_ours and world.value in world.written:
            known = OwnershipNote(world.value, known.unanswered)
        if rules.any_value_is_ours:
            known = OwnershipNote(world.value, known.unanswered)
        offset = world.source if rules.read_beyond_the_copy else min(world.source, world.copied)
        source = SourceOffset(world.source, "", TranslatedOffset(offset, 0))
        there = TargetOffset(world.members and not rules.transactional_commit, world.value)
        decision = decide(known, source, there, world.now_ms)
        # What a fenced worker thinks doesn't matter: it can't note it.
        if world.by == w.FLOW and not known.owns(world.value) and not self._fenced(world, int(who[-1])):
            raise Bad("the flow's own is left alone", f"{who}: looks")
        if decision.verdict is GroupVerdict.NOT_OURS and rules.somebody_elses_not_noted:
            return decision._replace(note=worker.note)
        if rules.unanswered_for_ever:
            lost = tuple(one for one in worker.note.unanswered if one not in decision.note.unanswered)
            return decision._replace(note=OwnershipNote(decision.note.last, (*lost, *decision.note.unanswered)))
        return decision

    def _fenced(self, world: World, number: int) -> bool:
        return world.writer != number and not self._rules.writer_not_fenced

    def _note(self, world: World, number: int, worker: Worker, who: str) -> Step[World]:
        if self._fenced(world, number):
            return f"{who}: is fenced", self._set(world, number, Worker())
        assert worker.decision is not None
        note, commits = worker.decision.note, worker.decision.commit is not None
        after = _looked(world, worker.decision)
        if not (commits and self._rules.noted_after_commit):
            after = after._replace(note=note)
        return f"{who}: notes", self._set(after, number, Worker(w.NOTED if commits else w.READY, note, worker.decision))

    def _send(self, world: World, number: int, worker: Worker, who: str) -> Step[World]:
        """A worker that is fenced doesn't know it, and sends."""
        assert worker.decision is not None
        assert worker.decision.commit is not None
        commit = worker.decision.commit
        if self._rules.source_epoch_copied:
            commit = commit._replace(leader_epoch=w.SOURCE_EPOCH)
        sent = world._replace(air=(*world.air, Commit(number, commit)))
        return f"{who}: commits {commit.offset}", self._set(sent, number, worker._replace(at=w.SENT))

    def _note_answer(self, world: World, number: int, worker: Worker, who: str) -> Step[World]:
        if self._fenced(world, number):
            return f"{who}: is fenced", self._set(world, number, Worker())
        after = world if self._rules.answer_not_noted else world._replace(note=worker.note)
        known = world.note if self._rules.answer_not_noted else worker.note
        return f"{who}: notes the answer", self._set(after, number, Worker(w.READY, known))

    def _broker(self, world: World) -> Iterator[Step[World]]:
        for place, commit in enumerate(world.air):
            rest = world._replace(air=(*world.air[:place], *world.air[place + 1 :]))
            yield self._applied(rest, commit, answered=True)
            if world.losses:
                fewer = rest._replace(losses=world.losses - 1)
                yield self._applied(fewer, commit, answered=False)
                yield f"broker: {commit.offset.offset} is lost", self._unanswered(fewer, commit.worker)
        for number, worker in enumerate(world.workers):
            if worker.at == w.SENT and any(it.worker == number for it in world.air) and world.losses:
                late = world._replace(losses=world.losses - 1)
                yield f"worker {number}: has no answer in time", self._unanswered(late, number)
        if world.waits and not world.air:
            yield "a minute passes", self._later(world)

    def _later(self, world: World) -> World:
        """No worker commits, or notes what it is about to commit, behind its deadline: it looks again."""
        doubt = w.LATE if world.doubt else w.NONE
        after = world._replace(waits=world.waits - 1, now_ms=world.now_ms + LATER_MS, doubt=doubt)
        for number, worker in enumerate(world.workers):
            if worker.at in (w.LOOKED, w.NOTED):
                known = worker.note
                after = _doubted(self._set(after, number, Worker(w.READY, known)), w.LATE)
        return after

    def _applied(self, world: World, commit: Commit, *, answered: bool) -> Step[World]:
        value = GroupOffset(commit.offset.offset, commit.offset.metadata)
        label = f"broker: applies {value.offset} of worker {commit.worker}" + ("" if answered else ", unanswered")
        refused = world.members and not self._rules.transactional_commit
        if refused:
            after = world
        else:
            self._check_commit(world, commit.offset, label)
            after = world._replace(
                value=value,
                leader_epoch=commit.offset.leader_epoch,
                by=w.FLOW if world.by in (w.NOBODY, w.FLOW) else w.OPERATOR,  # overtaken by what was under way: allowed
                left_alone=False,
                last=value,
                seen=False,
                written=self._written(world, value),
            )
        if not answered:
            return label, self._unanswered(after, commit.worker)
        worker = after.workers[commit.worker]
        if worker.at != w.SENT:
            return label, after
        note = worker.note.refused(value) if refused else worker.note.with_committed(value)
        return label, self._set(after, commit.worker, Worker(w.ANSWERED, note))

    def _written(self, world: World, value: GroupOffset) -> frozenset[GroupOffset]:
        return world.written | {value} if self._rules.every_value_once_written_is_ours else world.written

    @staticmethod
    def _check_commit(world: World, commit: OffsetToCommit, label: str) -> None:
        if world.members:
            raise Bad("a live group is moved", label)
        if world.left_alone:
            raise Bad("somebody else's is overwritten", label)
        if commit.offset > world.copied:
            raise Bad("records are skipped", label)

    def _unanswered(self, world: World, number: int) -> World:
        worker = world.workers[number]
        doubt = world._replace(doubt=w.UNANSWERED)
        return self._set(doubt, number, Worker(w.READY, worker.note)) if worker.at == w.SENT else doubt

    @staticmethod
    def _set(world: World, number: int, worker: Worker) -> World:
        return world._replace(workers=put(world.workers, number, worker))


def _doubted(world: World, doubt: int = w.UNANSWERED) -> World:
    """The world after somebody has lost sight of what is noted as being committed."""
    return world._replace(doubt=world.doubt or doubt) if world.note.unanswered else world


def _looked(world: World, decision: GroupDecision) -> World:
    """The world after a look at the target by the writer of the notes."""
    doubt = w.NONE if world.doubt == w.LATE else world.doubt
    return world._replace(doubt=doubt, seen=world.seen or decision.verdict is GroupVerdict.NOT_OURS)


def settled(world: World) -> bool:
    """The goal: the group stands where it stands at the source, or somebody else's offset is left alone."""
    there = world.value == GroupOffset(min(world.source, world.copied))
    nobody = not world.starts and all(worker.at == w.OFF or world.writer != n for n, worker in enumerate(world.workers))
    return there or nobody or world.members or world.by in (w.OPERATOR, w.CONSUMER)
