"""Decisions of operators about incidents, as they stand in the flow's control topic, and which are taken. Pure.

`incident resolve` writes them by way of `control`, under the flow's control id; lanes read them (`lane.decisions`).

A decision names one occurrence, with the facts that the operator has seen. The control topic holds only the decision:
that it was acted on stands in the claims topic, where the lane closes the occurrence in the transaction with the
position that it moves. So it is done once or not at all, and a decision about what is closed does nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from replicator.model.commands import TRUNCATED, Command, commands_for
from replicator.model.errors import ReplicatorError
from replicator.state.envelope import NotOurs, unwrap, wrap

if TYPE_CHECKING:
    from replicator.model.partition import LogEnds
    from replicator.state.claims import Claim
    from replicator.state.occurrences import Occurrence

DECISION = "decision"
WHY_CHARACTERS_MAX = 1_000
BY_POLICY = "policy"
"""In the place of a person: the flow file has decided it beforehand. No operator may call himself so."""
ADOPTING = (Command.ADOPT, Command.RESTART_TOPIC)
"""Commands after which what the target has is not the flow's, besides `OperatorDecision.goes_back`."""
_KINDS = frozenset({DECISION})


class Objection(StrEnum):
    """Why a decision is not taken."""

    UNKNOWN = "unknown"  # no occurrence has this id
    AMBIGUOUS = "ambiguous"  # several begin so
    ALREADY_DECIDED = "already_decided"
    OUTDATED = "outdated"  # the occurrence has ended: its facts have changed
    WRONG_COMMAND = "wrong_command"  # the command doesn't apply to its kind
    OUT_OF_RANGE = "out_of_range"  # the source has no such offset now
    NOT_PROVEN = "not_proven"  # the offset map doesn't say, beyond doubt, where a partition stood
    NO_POSITION = "no_position"  # of this flow: there is nothing that could be set
    STOPPED = "stopped"  # an incident that another position is no answer to
    HAS_POSITION = "has_position"  # of this flow: nothing is to be adopted
    STILL_RUNS = "still_runs"  # the other replicator whose copy is to be adopted
    NOTHING_LOST = "nothing_lost"  # of a control topic that is to be rebuilt
    CONTRADICTORY = "contradictory"  # what it would be rebuilt from
    FAILED_OVER = "failed_over"  # perhaps, and it couldn't be seen any more


class NotDecided(ReplicatorError):
    """The decision is not taken, for this `reason`; nothing was written."""

    exit_code = 1

    def __init__(self, reason: Objection, detail: str) -> None:
        self.reason, self.detail = reason, detail
        super().__init__(f"{reason}: {detail}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedSides:
    """The topics of a partition that is adopted, and where the target's log ended: what an operator has looked at.

    `former_topic_id`: of a topic that is copied from its beginning, the id of the one that was there before.
    `former_other_id`: the same of the other side's topic, where that was created again, too; else empty.
    """

    source_topic_id: str
    target_topic_id: str
    target_end: int
    former_topic_id: str = ""
    former_other_id: str = ""

    def are(self, source: LogEnds, target: LogEnds) -> bool:
        """Return whether both sides still are what somebody has looked at."""
        found = (source.topic_id, target.topic_id, target.end)
        return found == (self.source_topic_id, self.target_topic_id, self.target_end)

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> AdoptedSides:
        """Decode what was written. Raises ValueError, KeyError, TypeError."""
        return cls(
            source_topic_id=str(body["source_topic_id"]),
            target_topic_id=str(body["target_topic_id"]),
            target_end=int(body["target_end"]),
            former_topic_id=str(body.get("former_topic_id", "")),
            former_other_id=str(body.get("former_other_id", "")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorDecision:
    """What `by` has decided of the occurrence with this id, `why`, and the facts that this rests on: the incident's
    `name`, and the source offsets [`offset`, `end`) that a command which moves the position leaves out. Of one that
    adopts what the target has, `end` is the source offset at which copying goes on.

    Of one that copies a topic from its beginning, it is where that is. Of one about a source whose log was cut, it is
    the offset of the cut, below `offset`: copying goes on there, and what was copied behind it stays.

    `token` tells this decision from any other: who doesn't know whether it was written finds it by that. `adopted`:
    what both sides were when it was typed that the target is to be taken as it is.
    """

    occurrence: str
    command: Command
    name: str
    offset: int
    end: int
    by: str
    why: str
    at_ms: int
    token: str
    adopted: AdoptedSides | None = None

    @property
    def key(self) -> bytes:
        """Key in the control topic: an occurrence has one decision."""
        return f"{DECISION}/{self.occurrence}".encode()

    def content(self) -> dict[str, Any]:
        """Return what is written of it."""
        found = {**asdict(self), "command": self.command.value}
        if self.adopted is None:
            del found["adopted"]
        return found

    def encode(self) -> tuple[bytes, bytes]:
        """Return key and value in the control topic. Versions that don't know it may ignore it: nothing is done
        then.
        """
        return self.key, wrap(DECISION, self.content(), must_understand=False)

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> OperatorDecision:
        """Decode the decision that `content` has written. Raises ValueError, KeyError, TypeError."""
        return cls(
            occurrence=str(body["occurrence"]),
            command=Command(body["command"]),
            name=str(body["name"]),
            offset=int(body["offset"]),
            end=int(body["end"]),
            by=str(body["by"]),
            why=str(body["why"]),
            at_ms=int(body["at_ms"]),
            token=str(body["token"]),
            adopted=None if body.get("adopted") is None else AdoptedSides.of(body["adopted"]),
        )

    @property
    def said(self) -> str:
        """What was decided, for people."""
        return f"{self.by} has decided {self.command.option}" + (f" ({self.why})" if self.why else "")

    @property
    def goes_back(self) -> bool:
        """Whether copying goes on where the source's log was cut, below the position."""
        return self.command is Command.SKIP and self.name == TRUNCATED

    @property
    def adopts(self) -> bool:
        """Whether what the target has is not the flow's afterwards: it holds what both sides were."""
        return self.command in ADOPTING or self.goes_back

    @property
    def moves(self) -> bool:
        """Whether the position moves past what is not copied."""
        return self.command.moves and not self.goes_back

    def fits(self, occurrence: Occurrence) -> bool:
        """Return whether it can be acted on: the occurrence is open and has the facts that it rests on.

        What can't be copied may have become more since: that is left to another decision.
        """
        if not occurrence.is_open or occurrence.id != self.occurrence or self.command not in commands_for(self.name):
            return False
        if (occurrence.name, occurrence.offset) != (self.name, self.offset):
            return False
        if self.adopts is (self.adopted is None):
            return False
        if self.goes_back:
            return 0 <= self.end < self.offset
        return not self.moves or self.offset < self.end <= occurrence.end


def holds_decision(key: bytes) -> bool:
    """Return whether a record of the control topic with this key holds a decision."""
    return key.startswith(f"{DECISION}/".encode())


def decode(key: bytes, value: bytes) -> OperatorDecision | None:
    """Decode the decision of a record of the control topic; None for one that may be ignored. Raises NotOurs,
    NewerFormat.
    """
    body = unwrap(key, value, _KINDS)
    if body is None:
        return None
    try:
        found = OperatorDecision.of(body)
    except (ValueError, KeyError, TypeError) as error:
        raise NotOurs(f"unreadable record {key!r}: {error!r}") from error
    if found.key != key:
        raise NotOurs(f"record {key!r} holds the decision of {found.occurrence}")
    return found


def decide(
    start: str,
    command: Command,
    occurrences: Collection[Occurrence],
    decided: Mapping[str, OperatorDecision],
    *,
    by: str,
    why: str,
    now_ms: int,
) -> OperatorDecision:
    """Take a decision, as it is to be written, about the occurrence whose id begins with `start`.

    Args:
        occurrences: all that the claims topic has, open or closed.
        decided: what the control topic has, by occurrence.

    Raises NotDecided.
    """
    it = _named(start, occurrences)
    before = decided.get(it.id)
    if before is not None:
        raise NotDecided(Objection.ALREADY_DECIDED, f"{it.id}: {before.said}{_outcome(it)}")
    if it.closing is not None:
        instead = [other.id for other in occurrences if other.is_open and other.target == it.target]
        now = f"; its partition is stopped by {_listed(instead)} now" if instead else ""
        raise NotDecided(Objection.OUTDATED, f"{it.id} is closed ({it.closing.effect}): its facts have changed{now}")
    fitting = [
        known for known in commands_for(it.name) if not known.moves or it.name == TRUNCATED or it.end > it.offset >= 0
    ]
    if command not in fitting:
        apply = f"use {' or '.join(known.option for known in fitting)}" if fitting else "no command does"
        raise NotDecided(Objection.WRONG_COMMAND, f"{command.option} doesn't apply to {it.name} ({it.id}): {apply}")
    return OperatorDecision(
        occurrence=it.id,
        command=command,
        name=it.name,
        offset=it.offset,
        end=it.end,
        by=by,
        why=why[:WHY_CHARACTERS_MAX],
        at_ms=now_ms,
        token=uuid.uuid4().hex,
    )


def restarted(
    it: Occurrence, decision: OperatorDecision, source: LogEnds, target: LogEnds, claim: Claim | None
) -> OperatorDecision:
    """Return a decision to copy a topic from its beginning, with what both sides are now, and where that is.

    Raises NotDecided where they aren't what the lane has found, and the operator has seen.
    """
    found, now = (it.topic_id, it.target_topic_id), (source.topic_id, target.topic_id)
    if found != now:
        why = f"the ids of {it.source.topic} and {it.target.topic} were {found} when the flow found it, are {now}"
        raise NotDecided(Objection.OUTDATED, f"{it.id}: {why}; run the flow, and look at what it finds")
    former = other = ""
    if claim is not None:
        former, other = claim.former_topic_ids(it.name, claim.source_cluster, it.source, *now)
    if not former:
        why = f"{it.target} was not claimed, or not for {it.source}, or its topics are those that were claimed"
        raise NotDecided(Objection.WRONG_COMMAND, f"{it.id}: {why}; copy the topic by another flow")
    sides = AdoptedSides(
        source_topic_id=now[0],
        target_topic_id=now[1],
        target_end=target.end,
        former_topic_id=former,
        former_other_id=other,
    )
    return replace(decision, end=source.start, adopted=sides)


def _named(start: str, occurrences: Collection[Occurrence]) -> Occurrence:
    fitting = [it for it in occurrences if it.id.startswith(start.lower())] if start else []
    exact = [it for it in fitting if it.id == start.lower()]
    if len(exact) == 1 or len(fitting) == 1:
        return (exact or fitting)[0]
    if fitting:
        raise NotDecided(
            Objection.AMBIGUOUS, f"several ids begin with {start}: {_listed(sorted(it.id for it in fitting))}"
        )
    open_ = sorted(it.id for it in occurrences if it.is_open)
    raise NotDecided(
        Objection.UNKNOWN, f"no incident of a partition has the id {start}; open: {_listed(open_) or 'none'}"
    )


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words)


def _outcome(it: Occurrence) -> str:
    if it.closing is None:
        return "; the flow has not acted on it yet"
    return f"; the incident is closed ({it.closing.effect})"
