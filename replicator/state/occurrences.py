"""Occurrences of incidents, as lanes write them to the flow's claims topic. Pure; lanes write, `claims` reads.

An occurrence is one incident of one partition, from when a lane has found it until it is closed, under an id that no
other has had: a decision names it. Only the lane knows what it has found, so it writes all that a decision must know.

Invariants, the first two of invariant 12
- An occurrence is written in a transaction of its partition's lane, and so is its end, together with the position that
  it moved: whoever reads it as closed finds the position where it says, and a decision about it is never done twice.
- It goes from open to closed and never back. What was found again after that is another one.
- One is open per partition and kind: found again with the same offset it keeps its id, and its detail is brought up to
  date; with another offset it is another one.
- A closed one that moved the position stays: it is the record of what was left out, and by whose decision.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from replicator.model.errors import Incident
from replicator.model.partition import Partition
from replicator.state.decisions import OperatorDecision
from replicator.state.envelope import wrap

OCCURRENCE = "occurrence"
ID_DIGITS = 12


class Ending(StrEnum):
    """How an occurrence has ended."""

    GONE = "gone"  # its cause: the partition is copied again, or was copied past the record
    REPLACED = "replaced"  # by another one of its kind, whose facts are others
    RETRIED = "retried"  # the partition was checked again, whatever came of that
    SKIPPED = "skipped"  # the position went past what was not copied
    SET_ASIDE = "set-aside"  # the same, and the record was kept aside
    RESTARTED = "restarted"  # a topic that was created again is copied from its beginning
    ADOPTED = "adopted"  # the partition has a position now: what the target had was taken for the copy of all before


MOVED = (Ending.SKIPPED, Ending.SET_ASIDE, Ending.ADOPTED, Ending.RESTARTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """How an occurrence was closed: `moved` says from which position to which, None where it stood still. `by` is the
    owner of the lane, `decision` what it acted on, if anything; `kept`: how much of a record that was set aside is held
    (see `lane.aside`)."""

    effect: Ending
    by: str
    at_ms: int
    moved: tuple[int, int] | None = None
    decision: OperatorDecision | None = None
    kept: str = ""

    def __post_init__(self) -> None:
        if (self.moved is not None) != (self.effect in MOVED):
            raise ValueError(f"an occurrence that ends as {self.effect} has moved {self.moved}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """One incident of a partition. `offset`: the source offset where the partition stands, or of the record that stops
    it (-1: none). `end`: one past the last source offset that skipping it leaves out (-1: it can't be skipped).
    `topic_id`: the source topic's, of which these are offsets, and `target_topic_id` the target topic's, as they were
    when it was found; empty where that wasn't known.

    `generation` and `at_ms` are those of this record, which tell the newest one. `closing` None: it is open.
    """

    id: str
    target: Partition
    source: Partition
    name: str
    detail: str
    offset: int
    end: int
    found_by: str
    found_ms: int
    generation: int
    at_ms: int
    topic_id: str = ""
    target_topic_id: str = ""
    closing: Closing | None = None

    @property
    def key(self) -> bytes:
        """Key of its record."""
        return f"{OCCURRENCE}/{self.target.topic}/{self.target.partition}/{self.id}".encode()

    @property
    def is_open(self) -> bool:
        """Whether nothing has ended it."""
        return self.closing is None

    @property
    def moved(self) -> tuple[int, int] | None:
        """The positions before and after, where a decision has moved it."""
        return None if self.closing is None else self.closing.moved

    @property
    def incident(self) -> Incident:
        """The incident, with who has found it and when."""
        at, found = self.source, datetime.fromtimestamp(self.found_ms / 1000, UTC).isoformat(timespec="seconds")
        detail = f"{self.detail} (found by {self.found_by} at {found})"
        return Incident(self.name, detail, topic=at.topic, partition=at.partition, offset=self.offset, end=self.end)

    def is_of(self, incident: Incident) -> bool:
        """Return whether `incident`, of this partition, is this one, found again."""
        return self.is_open and (self.name, self.offset) == (incident.name, incident.offset)

    def found_again(self, incident: Incident, generation: int, now_ms: int) -> Occurrence | None:
        """Return the occurrence as it is to be written again, with what is found now; None where that is the same."""
        if not self.is_of(incident):
            raise ValueError(f"{self.id} is {self.name} at {self.offset}, not {incident}")
        if (self.detail, self.end) == (incident.detail, incident.end):
            return None
        return replace(
            self,
            detail=incident.detail,
            end=incident.end,
            generation=max(generation, self.generation),
            at_ms=max(now_ms, self.at_ms),
        )

    def closed(self, closing: Closing, generation: int) -> Occurrence:
        """Return the occurrence as it is written when it ends. Raises ValueError for one that has ended before."""
        if self.closing is not None:
            raise ValueError(f"{self.id} was closed before: {self.closing.effect}")
        return replace(
            self,
            closing=closing,
            generation=max(generation, self.generation),
            at_ms=max(self.at_ms, closing.at_ms),
        )

    def encode(self) -> tuple[bytes, bytes]:
        """Return key and value of its record."""
        content: dict[str, Any] = {
            "id": self.id,
            "target": [*self.target],
            "source": [*self.source],
            "name": self.name,
            "detail": self.detail,
            "offset": self.offset,
            "end": self.end,
            "found_by": self.found_by,
            "found_ms": self.found_ms,
            "generation": self.generation,
            "at_ms": self.at_ms,
            "topic_id": self.topic_id,
            "target_topic_id": self.target_topic_id,
            "closed": None if self.closing is None else _encoded(self.closing),
        }
        return self.key, wrap(OCCURRENCE, content, must_understand=False)


def found(
    incident: Incident,
    target: Partition,
    source: Partition,
    owner: str,
    generation: int,
    now_ms: int,
    topic_id: str = "",
    target_topic_id: str = "",
) -> Occurrence:
    """Make the occurrence of an incident that nobody has found before, under a new id."""
    return Occurrence(
        id=uuid.uuid4().hex[:ID_DIGITS],
        target=target,
        source=source,
        name=incident.name,
        detail=incident.detail,
        offset=incident.offset,
        end=incident.end,
        found_by=owner,
        found_ms=now_ms,
        generation=generation,
        at_ms=now_ms,
        topic_id=topic_id,
        target_topic_id=target_topic_id,
    )


def decode(body: Mapping[str, Any]) -> Occurrence:
    """Decode the occurrence that a record of the claims topic holds. Raises ValueError, KeyError, TypeError."""
    closed = body["closed"]
    return Occurrence(
        id=str(body["id"]),
        target=_partition(body["target"]),
        source=_partition(body["source"]),
        name=str(body["name"]),
        detail=str(body["detail"]),
        offset=int(body["offset"]),
        end=int(body["end"]),
        found_by=str(body["found_by"]),
        found_ms=int(body["found_ms"]),
        generation=int(body["generation"]),
        at_ms=int(body["at_ms"]),
        topic_id=str(body.get("topic_id", "")),
        target_topic_id=str(body.get("target_topic_id", "")),
        closing=None if closed is None else _closing(closed),
    )


def _encoded(closing: Closing) -> dict[str, Any]:
    return {
        "effect": closing.effect.value,
        "by": closing.by,
        "at_ms": closing.at_ms,
        "moved": None if closing.moved is None else [*closing.moved],
        "decision": None if closing.decision is None else closing.decision.content(),
        "kept": closing.kept,
    }


def _closing(body: Mapping[str, Any]) -> Closing:
    moved, decision = body["moved"], body["decision"]
    return Closing(
        effect=Ending(body["effect"]),
        by=str(body["by"]),
        at_ms=int(body["at_ms"]),
        moved=None if moved is None else (int(moved[0]), int(moved[1])),
        decision=None if decision is None else OperatorDecision.of(decision),
        kept=str(body.get("kept", "")),
    )


def _partition(pair: Any) -> Partition:
    topic, number = pair
    return Partition(str(topic), int(number))
