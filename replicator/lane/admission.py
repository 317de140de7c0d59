"""Which partitions of a lane are copied: judged at its start, judged again one by one later. Called by `lane.session`.

Holds what the start of a session has read (control topic, claims) and what is to be committed for the partitions that
were admitted last.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType

from replicator.lane.judge import Verdict
from replicator.lane.ledger import Entry, Ledger
from replicator.lane.partition_states import MISSING, PartitionStates, Reason, Waiting
from replicator.lane.plan import LanePlan
from replicator.lane.policy import Policy
from replicator.lane.ports import Clock, Connections
from replicator.lane.start import LaneStart
from replicator.lane.target_check import check_target
from replicator.model.errors import Incident, NotAllowed, ReplicatorError, Retriable, Unreachable
from replicator.model.partition import Committed, Partition
from replicator.model.route import Route
from replicator.state.claims import Claim, Claims
from replicator.state.generation import Control


@dataclass(frozen=True, slots=True)
class _Denied:
    """Why a partition is kept out, and whether the target takes its position all the same."""

    text: str
    committable: bool


class Admission:
    """Judges partitions of one producer session and keeps ledger and states to the verdicts.

    Raises what `LaneStart` raises; what concerns one partition is its state.
    """

    def __init__(
        self,
        plan: LanePlan,
        policy: Policy,
        to: Connections,
        states: PartitionStates,
        owners: Mapping[Partition, str],
        clock: Clock,
    ) -> None:
        self._plan, self._policy, self._to = plan, policy, to
        self._states, self._clock = states, clock
        self._start = LaneStart(plan, policy, to, owners, clock)
        self._routes: dict[Partition, Route] = {route.source: route for route in plan.routes}
        self._control = Control()
        self._claims: dict[Partition, Claim] = {}
        self._new: dict[Partition, Claim] = {}  # by source partition: goes into the next transaction
        self._admitted: set[Partition] = set()
        self._kept_out: set[Partition] = set()  # a missing right keeps their positions from being committed
        self._unread = False  # positions without a route that the target could not tell

    def begin(self) -> Ledger:
        """After the fence: the ledger of all partitions of the lane, judged."""
        self._control = self._start.check_generation()
        claims = self._to.state.claims()
        self._claims = dict(claims.claims)
        verdicts = self._start.admit(self._plan.routes, self._control, claims)
        kept, deleted = self._unrouted(claims)
        verdicts |= deleted
        self._states.keep(verdicts)
        ledger = Ledger({}, self._plan.owner, self._plan.generation, self._plan.flow.delivery.value, kept)
        self._apply(ledger, verdicts, self._still_denied(ledger, verdicts))
        return ledger

    def _unrouted(self, claims: Claims) -> tuple[dict[Partition, Committed], dict[Partition, Verdict]]:
        found = self._start.unrouted(claims)
        self._unread = found.unread
        self._routes |= {at: route for at, (route, _) in found.deleted.items()}
        return found.kept, {at: verdict for at, (_, verdict) in found.deleted.items()}

    def before_all(self, ledger: Ledger) -> None:
        """Before all positions are committed again: those join that could not be read, or not be committed, before.

        Invariant 7: whatever kept a position out must not keep it out for the rest of the session.
        """
        if self._unread:
            kept, deleted = self._unrouted(Claims(self._claims, ()))
            ledger.kept |= kept
            self._apply(ledger, {at: verdict for at, verdict in deleted.items() if at not in ledger.entries})
        if self._kept_out:
            topics = {ledger.entries[at].route.target.topic for at in self._kept_out}
            lacking = {name for name, it in self._to.target.missing_rights(topics).items() if "Read" in it.operations}
            back = {at for at in self._kept_out if ledger.entries[at].route.target.topic not in lacking}
            self._kept_out -= back
            for at in back:
                ledger.entries[at].committable = True

    def _still_denied(self, ledger: Ledger, verdicts: Mapping[Partition, Verdict]) -> dict[Partition, _Denied]:
        """Partitions that the last session left waiting for a right that is still missing."""
        waiting = [at for at in verdicts if self._waits_for_right(at)]
        if not waiting:
            return {}
        for at in waiting:
            ledger.entries[at] = Entry(self._routes[at], verdicts[at].position)
        return self._missing(ledger, waiting)

    def _waits_for_right(self, at: Partition) -> bool:
        state = self._states.get(at)
        return isinstance(state, Waiting) and state.reason is Reason.NOT_ALLOWED

    def judge_again(self, ledger: Ledger, partitions: Collection[Partition]) -> bool:
        """Judge these partitions anew; whether any of them is copied from now on."""
        asked = self._without_denied(ledger, partitions)
        routes = [self._routes[at] for at in asked]
        if not routes:
            return False
        verdicts = self._start.admit(routes, self._control, Claims(self._claims, ()))
        return self._apply(ledger, verdicts)

    def _without_denied(self, ledger: Ledger, partitions: Collection[Partition]) -> list[Partition]:
        """Those that don't wait for a right, or whose right is back: other questions don't show whether it is."""
        denied = [at for at in partitions if self._waits_for_right(at)]
        still = self._missing(ledger, denied) if denied else {}
        for at, found in still.items():
            self._states.wait(at, Reason.NOT_ALLOWED, found.text)
        return [at for at in partitions if at not in still]

    def _missing(self, ledger: Ledger, partitions: Collection[Partition]) -> dict[Partition, _Denied]:
        """Which of these lack a right on their source or target topic."""
        try:
            here = self._to.source.missing_rights({at.topic for at in partitions})
        except (Unreachable, Retriable):
            here = {}  # judged again, they wait for the source's answer; the target's positions are kept alive
        there = self._to.target.missing_rights({ledger.entries[at].route.target.topic for at in partitions})
        found: dict[Partition, _Denied] = {}
        for at in partitions:
            entry = ledger.entries[at]
            mine, other = here.get(at.topic), there.get(entry.route.target.topic)
            committable = other is None or "Read" not in other.operations
            texts = [rights.text for rights in (mine, other) if rights is not None]
            if not committable:
                texts.append(self._expiry(entry))
            if mine is not None or other is not None:
                found[at] = _Denied("; ".join(text for text in texts if text), committable)
        return found

    def _expiry(self, entry: Entry) -> str:
        """Without Read on the target topic its position can't be committed again: until when it is kept."""
        if entry.position is None:
            return ""
        kept_ms = self._to.target.offsets_retention_ms()
        if kept_ms is None:
            return "its position can't be committed again meanwhile and expires"
        until = datetime.fromtimestamp((entry.position.evidence.committed_ms + kept_ms) / 1000, UTC)
        return f"its position can't be committed again meanwhile and expires at {until.isoformat(timespec='seconds')}"

    def _apply(
        self,
        ledger: Ledger,
        verdicts: Mapping[Partition, Verdict],
        denied: Mapping[Partition, _Denied] = MappingProxyType({}),
    ) -> bool:
        admitted = [at for at, verdict in verdicts.items() if self._enter(ledger, at, verdict, denied.get(at))]
        found = check_target(ledger, admitted, self._to.target, self._start.target_ends)
        unread = [at for at, wrong in found.items() if isinstance(wrong, NotAllowed)]
        lacking = self._missing(ledger, unread) if unread else {}
        for at, wrong in found.items():
            if at in lacking:
                self._commits(ledger.entries[at], at, lacking[at])
                self._wait(ledger, at, NotAllowed(lacking[at].text))
            elif not isinstance(wrong, Incident):
                self._wait(ledger, at, wrong)
            elif not self._policy.repairs(wrong):
                ledger.entries[at].copying = False
                self._states.stop(at, wrong)
        for at in admitted:
            if verdicts[at].claim is not None and not ledger.entries[at].copying:
                ledger.entries[at].position = None  # it has none without its claim
        copied = [at for at in admitted if ledger.entries[at].copying]
        for at in copied:
            claim = verdicts[at].claim
            if claim is not None:
                self._new[at] = claim
        self._admitted |= set(copied)
        return bool(copied)

    def _enter(self, ledger: Ledger, at: Partition, verdict: Verdict, denied: _Denied | None) -> bool:
        """One partition's entry and state, by its verdict; whether it is to be copied."""
        before, position = ledger.entries.get(at), verdict.position
        if position is None and verdict.waits is not None and before is not None:
            position = before.position  # it couldn't be read now, and is this lane's since it was fenced
        entry = Entry(self._routes[at], position, False, verdict.verbatim, verdict.committable)
        ledger.entries[at] = entry
        self._kept_out.discard(at)
        stopped = verdict.stopped or self._states.lasting(at)
        if stopped is not None and not self._policy.repairs(stopped):
            self._states.stop(at, stopped, lasting=verdict.stopped is None)
        elif verdict.waits is not None:
            self._wait_or_stop(at, *verdict.waits)
        elif denied is not None:
            self._commits(entry, at, denied)
            entry.position = None if verdict.claim is not None else position  # it has none without its claim
            self._states.wait(at, Reason.NOT_ALLOWED, denied.text)
        else:
            entry.copying = True
        return entry.copying

    def _wait_or_stop(self, at: Partition, reason: Reason, detail: str) -> None:
        if reason is Reason.NOT_ALLOWED and not self._policy.waits:
            raise NotAllowed(detail, [at])
        if reason in MISSING and self._states.missing_for_long(at):
            name = "source_topic_deleted" if reason is Reason.SOURCE_MISSING else "target_topic_deleted"
            self._states.stop(at, Incident(name, detail, topic=at.topic, partition=at.partition))
        else:
            self._states.wait(at, reason, detail)

    def _wait(self, ledger: Ledger, at: Partition, error: ReplicatorError) -> None:
        ledger.entries[at].copying = False
        reason = Reason.NOT_ALLOWED if isinstance(error, NotAllowed) else Reason.NO_ANSWER
        self._wait_or_stop(at, reason, str(error))

    def keep_out(self, ledger: Ledger, denied: NotAllowed) -> bool:
        """Make those partitions wait that lack a right; whether any of them was copied or committed until now."""
        missing = self._missing(ledger, [at for at, entry in ledger.entries.items() if entry.route.target_topic_id])
        if not missing:
            missing = {at: _Denied(str(denied), True) for at in denied.partitions if at in ledger.entries}
        changed = False
        for at, found in missing.items():
            entry = ledger.entries[at]
            changed = changed or entry.copying or (entry.committable and not found.committable)
            if entry.copying:
                self._states.wait(at, Reason.NOT_ALLOWED, found.text)
            entry.copying = False
            self._commits(entry, at, found)
        return changed

    def _commits(self, entry: Entry, at: Partition, denied: _Denied) -> None:
        entry.committable = denied.committable
        if not denied.committable:
            self._kept_out.add(at)

    def check_owners(self, ledger: Ledger) -> None:
        """Raises TakenOver when another process owns positions of the lane; Retriable, Unreachable, NotAllowed."""
        targets = [entry.route.target for entry in ledger.entries.values() if entry.position is not None]
        for target, found in self._to.plane.committed(targets).items():
            if isinstance(found, Committed):
                self._start.check_owner(target, found)

    def to_commit(
        self, ledger: Ledger, *, everything: bool
    ) -> tuple[dict[Partition, Committed], list[tuple[bytes, bytes]]]:
        """Positions (by target partition) and claims of the partitions that were admitted since the last commit; or
        all positions of the lane, and these claims."""
        for at in [at for at in self._new if not ledger.entries[at].copying]:
            del self._new[at]  # a position that was never committed must not be, without its claim
            ledger.entries[at].position = None
        offsets = ledger.recommits(self._clock.now_ms())
        if not everything:
            wanted = {ledger.entries[at].route.target for at in self._admitted}
            offsets = {target: committed for target, committed in offsets.items() if target in wanted}
        return offsets, [claim.encode() for claim in self._new.values()]

    def committed(self, ledger: Ledger) -> None:
        """What `to_commit` returned last is certainly committed. Only now are the admitted partitions said to be
        copied: a right of the whole lane that is missing shows no earlier."""
        for at in self._admitted & ledger.copying.keys():
            self._states.copy(at)
        self._claims |= {claim.target: claim for claim in self._new.values()}
        self._new, self._admitted = {}, set()

    def check_target(
        self, ledger: Ledger, partitions: Collection[Partition]
    ) -> dict[Partition, Incident | ReplicatorError]:
        """What is wrong with the ends of these partitions' targets; nothing where it is not promised."""
        return check_target(ledger, partitions, self._to.target)
