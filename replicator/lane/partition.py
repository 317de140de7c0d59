"""One partition of a lane: its route, its position, and its state, which events alone change. Pure.

`TRANSITIONS` has every event in every state. Whether a partition is copied stands here and nowhere else. Owned by
`lane.partitions`, which applies events and tells of them.

Invariants
- Nothing stands still in any other state: a partition that is not copied waits, for a reason that is logged and asked
  about again, or is stopped by an incident. Both keep their position, and it is committed again with the others.
- A position that was never committed goes with its claim: a partition that doesn't get as far has the one that the
  target has, or none.
- What a producer session has read of a position is void once the next one begins (invariant 1).
- Who sees a partition copied, sees records committed: while the lane commits none, it is said to wait.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto

from replicator.backoff import longer
from replicator.lane.incident_report import NOT_REPORTED, IncidentReport
from replicator.lane.refusal_search import NOT_REFUSED, RefusalSearch
from replicator.model.checkpoint import STRAY, Position, Unreadable
from replicator.model.errors import Incident, NotAllowed, ReplicatorError, TopicMissing
from replicator.model.origins import NONE, Origins
from replicator.model.route import Route
from replicator.state.claims import Claim

RETRY_S, RETRY_S_MAX = 0.25, 5.0


class Reason(StrEnum):
    """Why a partition waits."""

    NOT_ALLOWED = "not_allowed"
    SOURCE_MISSING = "source_topic_missing"
    TARGET_MISSING = "target_topic_missing"
    NO_ANSWER = "no_answer"
    LISTED_SO = "not_ready"  # its topic can't be copied now, as the last discovery found
    TARGET_NOT_READY = "target_not_ready"  # no leader, or too few replicas in sync
    TARGET_SLOW = "target_slow"  # transactions don't end within their timeout
    PAUSED = "paused"  # by an operator, until one resumes it
    FAILED_OVER = "failed_over"  # its topic, until a command gives it back in another generation
    GONE = "source_topic_gone"  # the source topic was deleted, and the flow is to report that (`deleted_topics`)
    KEPT = "copy_kept"  # the same, and the flow is to keep the copy


MISSING = (Reason.SOURCE_MISSING, Reason.TARGET_MISSING)
DELETED = {"report": Reason.GONE, "keep": Reason.KEPT}
"""Why partitions wait whose source topic was deleted, by the flow's `deleted_topics`; with any other they stop."""


def reason_of(error: ReplicatorError, missing: Reason = Reason.SOURCE_MISSING) -> Reason:
    """Say why a partition waits that `error` of a cluster keeps back; `missing` says whose topic is meant."""
    if isinstance(error, NotAllowed):
        return Reason.NOT_ALLOWED
    return missing if isinstance(error, TopicMissing) else Reason.NO_ANSWER


@dataclass(frozen=True, slots=True)
class Copying:
    """Records are copied as they come."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nothing is copied until the cause has gone; it is asked about again at `retry_s` (monotonic)."""

    reason: Reason
    detail: str
    since_s: float
    retry_s: float
    pause_s: float = RETRY_S


@dataclass(frozen=True, slots=True)
class Stopped:
    """An incident needs a decision. `lasting`: a new producer session could not find it out again."""

    incident: Incident
    lasting: bool = False


PartitionState = Copying | Waiting | Stopped
"""What is told of a partition."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """This producer session has not checked it yet. `told` is what was told of it last."""

    told: PartitionState | None = None


@dataclass(frozen=True, slots=True)
class Admitted:
    """It may be copied: its position, and its claim if it had no position, go into the lane's next transaction. A right
    of the whole lane that is missing shows no earlier, so `told` stays until then. `replaced` as in `Admit`."""

    told: PartitionState | None
    claim: Claim | None = None
    replaced: Position | None = None


@dataclass(frozen=True, slots=True)
class HeldUp:
    """It is read and written as ever, but the lane gets no transaction committed; `told` is the reason."""

    told: Waiting


State = Undecided | Admitted | Copying | HeldUp | Waiting | Stopped


@dataclass(frozen=True, slots=True)
class SessionBegan:
    """The lane has a new producer."""


@dataclass(frozen=True, slots=True)
class Admit:
    """Nothing speaks against copying it. `claim`: it has no position yet, and begins where this says; or it has one,
    `replaced`, and an operator has decided that it begins there instead."""

    claim: Claim | None = None
    replaced: Position | None = None


@dataclass(frozen=True, slots=True)
class PositionCommitted:
    """The transaction that committed the positions of all admitted partitions is certainly committed."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Something that may pass keeps it back."""

    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class Stop:
    """An incident stops it; `lasting` as in `Stopped`."""

    incident: Incident
    lasting: bool = False


@dataclass(frozen=True, slots=True)
class HoldUp:
    """The lane, whose positions are committed, gets no records committed."""

    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class RecordsCommitted:
    """The lane has committed a transaction with records."""


@dataclass(frozen=True, slots=True)
class Decided:
    """An operator has decided about what stops it: it is checked again, whoever found that out."""


Event = SessionBegan | Admit | PositionCommitted | Wait | Stop | HoldUp | RecordsCommitted | Decided


class Effect(Enum):
    """What a transition brings about besides the new state."""

    FORGET_POSITION = auto()  # it, and all that the session knew, has to be found out again
    DROP_CLAIM = auto()  # with the position, if there was a claim: what the target has counts again
    FORGET_REFUSAL = auto()  # the search for a refused record is over
    TELL = auto()  # to the log, if it is news


_VOID, _DROP, _OVER, _TELL = Effect
TRANSITIONS: dict[type[State], dict[type[Event], tuple[type[State], tuple[Effect, ...]]]] = {
    Undecided: {
        SessionBegan: (Undecided, (_VOID,)),
        Admit: (Admitted, ()),
        PositionCommitted: (Undecided, ()),
        Wait: (Waiting, (_TELL,)),
        Stop: (Stopped, (_OVER, _TELL)),
        HoldUp: (Undecided, ()),
        RecordsCommitted: (Undecided, ()),
        Decided: (Undecided, ()),
    },
    Admitted: {
        SessionBegan: (Undecided, (_VOID,)),
        Admit: (Admitted, ()),
        PositionCommitted: (Copying, (_TELL,)),
        Wait: (Waiting, (_DROP, _TELL)),
        Stop: (Stopped, (_DROP, _OVER, _TELL)),
        HoldUp: (HeldUp, (_TELL,)),
        RecordsCommitted: (Admitted, ()),
        Decided: (Admitted, ()),
    },
    Copying: {
        SessionBegan: (Undecided, (_VOID,)),
        Admit: (Admitted, ()),
        PositionCommitted: (Copying, ()),
        Wait: (Waiting, (_TELL,)),
        Stop: (Stopped, (_OVER, _TELL)),
        HoldUp: (HeldUp, (_TELL,)),
        RecordsCommitted: (Copying, ()),
        Decided: (Copying, ()),
    },
    HeldUp: {
        SessionBegan: (Undecided, (_VOID,)),
        Admit: (Admitted, ()),
        PositionCommitted: (HeldUp, ()),
        Wait: (Waiting, (_TELL,)),
        Stop: (Stopped, (_OVER, _TELL)),
        HoldUp: (HeldUp, (_TELL,)),
        RecordsCommitted: (Copying, (_TELL,)),
        Decided: (HeldUp, ()),
    },
    Waiting: {
        SessionBegan: (Undecided, (_VOID,)),
        Admit: (Admitted, ()),
        PositionCommitted: (Waiting, ()),
        Wait: (Waiting, (_TELL,)),
        Stop: (Stopped, (_OVER, _TELL)),
        HoldUp: (Waiting, ()),
        RecordsCommitted: (Waiting, ()),
        Decided: (Waiting, ()),
    },
    Stopped: {
        SessionBegan: (Undecided, (_VOID,)),
        Admit: (Admitted, ()),
        PositionCommitted: (Stopped, ()),
        Wait: (Waiting, (_TELL,)),
        Stop: (Stopped, (_OVER, _TELL)),
        HoldUp: (Stopped, ()),
        RecordsCommitted: (Stopped, ()),
        Decided: (Stopped, ()),
    },
}


class Commits(Enum):
    """Whether the target takes a partition's position: one that it doesn't take would make the whole TxnOffsetCommit
    fail, and all others expire."""

    YES = auto()
    NO = auto()  # its topic isn't there, or the position can't be read: known anew when it is checked again
    NO_RIGHT = auto()  # without Read on the topic: asked about again before all positions are committed


@dataclass(slots=True)
class SessionFacts:
    """What one producer session has found out of a partition."""

    heard_s: float | None = None
    """When anything came of it, or its clusters were asked for it (monotonic). Written by `transaction`, `silence`."""
    unchecked: bool = False
    """Whether anything came of it since the last commit of records, or seek: so the ids of its topics have to be asked
    for before the next commit. Written by `transaction`."""
    transaction: int = 0
    """The number of the last transaction with records of it. Written by `readiness`."""
    origin_checked: bool = False
    """Whether it is known that it doesn't come from where it would go, as far as that shows before its first record.
    Written by `origin_check`, as the next two."""
    was_empty: bool = False
    """Whether its source had no record then: where its first ones come from is asked before they are committed."""
    learned: Origins = NONE
    """Where it was found to come from, if its claim doesn't say so."""
    came_s: float | None = None
    """When anything came of it (monotonic). Written by `transaction`."""


@dataclass(slots=True)
class LanePartition:
    """One partition of a lane: all that the lane knows of it. Each field says who writes it; `apply` resets them."""

    # For one producer session:
    route: Route
    """As its topic was listed last. Written by `partitions`."""
    position: Position | None = None
    """What the target has committed, or what is committed with the claim of an admitted partition. Written by `start`
    as it was read, by `positions` as it is committed, by `map_writer` where the offset map doesn't have its block."""
    unreadable: Unreadable | None = None
    """What stands in place of a position, and is committed again as it stands. Written by `start`."""
    commits: Commits = Commits.YES
    """Whether its position can be committed. Written by `start` and `rights`."""
    session: SessionFacts = field(default_factory=SessionFacts)

    # For as long as the lane lives:
    state: State = field(default_factory=Undecided)
    """Changed by events only. Applied by `partitions`."""
    refusal: RefusalSearch = NOT_REFUSED
    """How a refused record is searched for, until that stops the partition. Written by `refused_records`."""
    report: IncidentReport = NOT_REPORTED
    """What its claims say of incidents that only a lane finds. Written by `reports`."""
    unlogged: bool = False
    """Whether it waits and that was not logged, because its whole cluster is away. Written by `partitions`."""
    decided: bool = False
    """Whether an operator has decided about what stops it, and nothing was told since. Written by `partitions`."""

    @property
    def copied(self) -> bool:
        """Whether it is read. The position of any other partition only stays alive."""
        return isinstance(self.state, Copying | HeldUp | Admitted)

    @property
    def told(self) -> PartitionState | None:
        """What was told of it last; None before the first time."""
        return self.state.told if isinstance(self.state, Undecided | Admitted | HeldUp) else self.state

    def waits_since(self, *reasons: Reason) -> float | None:
        """Return since when it is said to wait for one of these reasons (monotonic); None: it isn't."""
        told = self.told
        return told.since_s if isinstance(told, Waiting) and told.reason in reasons else None

    @property
    def stored(self) -> Position | None:
        """What the target has: not yet what is committed with the claim of an admitted partition."""
        state = self.state
        return state.replaced if isinstance(state, Admitted) and state.claim is not None else self.position

    @property
    def known(self) -> Position | None:
        """The position that this session has read or committed. Nobody else can move it while its producer isn't
        fenced: it can be committed again where a stray commit stands now."""
        return self.stored if self.unreadable is None else None

    @property
    def overwritten(self) -> bool:
        """Whether a stray commit stopped it, while this session knew its position."""
        return self.known is not None and isinstance(self.state, Stopped) and self.state.incident.name == STRAY

    @property
    def claim(self) -> Claim | None:
        """What goes into the lane's next transaction with its first position."""
        return self.state.claim if isinstance(self.state, Admitted) else None

    def apply(self, event: Event, now_s: float) -> bool:
        """Change the state; whether there may be something to tell. `now_s` is monotonic."""
        told, stored = self.told, self.stored
        kind, effects = TRANSITIONS[type(self.state)][type(event)]
        self.state = _entered(kind, event, self.state, told, now_s)
        if Effect.DROP_CLAIM in effects:
            self.position = stored
        if Effect.FORGET_POSITION in effects:
            self.position, self.unreadable, self.commits, self.session = None, None, Commits.YES, SessionFacts()
        if Effect.FORGET_REFUSAL in effects:
            self.refusal = NOT_REFUSED
        return Effect.TELL in effects


def _entered(kind: type[State], event: Event, before: State, told: PartitionState | None, now_s: float) -> State:
    """Make the new state, of the kind that the table says."""
    if kind is Undecided:
        return Undecided(told)
    if kind is Admitted and isinstance(event, Admit):
        return Admitted(told, event.claim, event.replaced)
    if kind is HeldUp and isinstance(event, HoldUp):
        return HeldUp(_waiting(event, told, now_s))
    if kind is Waiting and isinstance(event, Wait):
        return _waiting(event, told, now_s)
    if kind is Stopped and isinstance(event, Stop):
        return Stopped(event.incident, event.lasting)
    if isinstance(before, Stopped) and isinstance(event, Decided):
        return Stopped(before.incident)
    return Copying() if kind is Copying else before


def _waiting(event: Wait | HoldUp, told: PartitionState | None, now_s: float) -> Waiting:
    """Let the same reason wait longer until it is asked about again, up to RETRY_S_MAX."""
    if isinstance(told, Waiting) and told.reason is event.reason:
        pause_s = longer(told.pause_s, RETRY_S_MAX)
        return Waiting(event.reason, event.detail, told.since_s, now_s + pause_s, pause_s)
    return Waiting(event.reason, event.detail, now_s, now_s + RETRY_S)
