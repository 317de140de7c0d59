"""Ends transactions of the lane's own producer that Kafka has left open in a target partition (KIP-664). Used by
`lane.start`, after the fence and after an abort, when the lane itself has no transaction open. What it would do is
asked by `inspect.expected_starts`, too.

A broker that skips a marker, or appends a batch that comes after the marker, leaves a transaction open that no
coordinator knows: the last stable offset stands still, for readers and for the lane.

Invariants
- A marker is written only for the producer id that the coordinator has for the lane's transactional id now, with no
  later epoch, and only while the coordinator has nothing under way for it: then nobody else will write that marker.
  A successor that fences this lane meanwhile has a later epoch, and the leader refuses an older one's marker.
- Records and position end the same way. Where the position covers none of the transaction, it wasn't committed. Where
  the position covers all of it (it begins with the block of records that was committed with the position, and the log
  ends with that), it was. In any other case nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from replicator.config import Flow
from replicator.lane.partition import LanePartition
from replicator.lane.plan import LanePlan
from replicator.lane.ports import ClusterQuestions, OpenTransactions
from replicator.model.checkpoint import Evidence
from replicator.model.errors import Incident, ReplicatorError, Retriable, Unreachable
from replicator.model.partition import LogEnds, Partition
from replicator.model.transactions import IDLE, Marker, OpenTransaction, ProducerState

OPEN = "target_transaction_open"
"""The incident that is looked into here."""


@dataclass(frozen=True, slots=True)
class Left:
    """A transaction that is left open: `why`, and since which offset if it may be aborted by hand."""

    why: str
    abort_at: int | None = None


def decide_marker(
    at: Partition, open_: Sequence[OpenTransaction], own: ProducerState, position: Evidence, end: int
) -> Marker | Retriable | Left:
    """Decide over one target partition: the marker to write, an error to wait for, or why nothing may be written.

    Args:
        at: the target partition.
        open_: the transactions that are open in it, read first.
        own: the lane's transactional id at its coordinator, read after them.
        position: evidence of the committed position.
        end: the partition's high watermark, read last.
    """
    covered = position.next_target_offset
    if not open_:
        return Retriable(f"{at}: the transaction that was open has ended")
    mine = next((one for one in open_ if one.producer_id == own.producer_id), None)
    if mine is None:
        first = min(open_, key=lambda one: one.start)
        why = f"producer id {first.producer_id}, which isn't this lane's, has it open since offset {first.start}"
        return Left(why, first.start if first.start >= covered else None)
    since = f"this lane's producer has it open since offset {mine.start}"
    if mine.epoch > own.epoch:
        return Left(f"{since}, with epoch {mine.epoch}, which is later than this lane's ({own.epoch})")
    if own.state not in IDLE:
        return Retriable(f"{at}: {since}, and its coordinator has yet to end it ({own.state})")
    if mine.start >= covered:
        return Marker(at, mine, commit=False)
    if mine.start == position.block_first and end == covered:
        return Marker(at, mine, commit=True)
    block = f"the last block of records that the position covers is [{position.block_first}, {covered})"
    return Left(f"{since}, and the log ends at {end}: {block}")


Decision = Marker | Retriable | Left


def decide(
    at: Partition,
    position: Evidence,
    transactional_id: str,
    target: ClusterQuestions,
    transactions: OpenTransactions,
) -> Decision:
    """Ask for what a decision needs of the target partition `at`, in the order that it needs, and decide; nothing is
    written.

    Raises as `OpenTransactions`, and what keeps the end of the partition from being known.
    """
    open_ = transactions.open_in(at)
    own = transactions.producer(transactional_id)
    log = target.log_ends([at])[at]
    if not isinstance(log, LogEnds):
        raise log
    return decide_marker(at, open_, own, position, log.end)


def left_open(incident: Incident, left: Left, flow: Flow, target: Partition) -> Incident:
    """Return the incident `OPEN` with the cause, and what an operator can do about it."""
    detail = f"{incident.detail}; {left.why}"
    if left.abort_at is not None:
        servers = ",".join(flow.target.bootstrap_servers)
        detail += (
            f". If nobody is about to end it: kafka-transactions.sh --bootstrap-server {servers} abort "
            f"--topic {target.topic} --partition {target.partition} --start-offset {left.abort_at}"
        )
    facts = {**incident.facts, "detail": detail}
    return Incident(**facts)  # type: ignore[arg-type]


@dataclass(slots=True)
class Looked:
    """What became of open transactions, by source partition.

    `ended`: a marker was written, or is there by now. `instead`: what is to be said of those that stay open.
    """

    ended: list[Partition] = field(default_factory=list)
    instead: dict[Partition, Incident | ReplicatorError] = field(default_factory=dict)


class OwnTransactions:
    """Of one producer session."""

    def __init__(
        self,
        plan: LanePlan,
        target: ClusterQuestions,
        transactions: OpenTransactions,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        self._plan, self._target, self._transactions, self._log = plan, target, transactions, log

    def end(self, lane: Mapping[Partition, LanePartition], found: Mapping[Partition, Incident]) -> Looked:
        """End those that are proven to be the lane's own. `found`: the incidents `OPEN` of source partitions.

        Of any other the incident says, with the cause, what an operator can do. While a broker gives no answer the
        partition waits.
        """
        looked = Looked()
        for at, incident in found.items():
            outcome = self._end_one(at, lane[at])
            if outcome is None:
                looked.ended.append(at)
            else:
                looked.instead[at] = (
                    outcome
                    if isinstance(outcome, ReplicatorError)
                    else left_open(incident, outcome, self._plan.flow, lane[at].route.target)
                )
        return looked

    def _end_one(self, source: Partition, partition: LanePartition) -> Left | ReplicatorError | None:
        """Return None if it was ended."""
        at, position = partition.route.target, partition.position
        assert position is not None
        decision: Decision | None = None
        try:
            decision = decide(at, position.evidence, self._plan.transactional_id, self._target, self._transactions)
            if not isinstance(decision, Marker):
                return decision
            self._transactions.end(decision)
        except (Retriable, Unreachable) as error:
            return error
        except ReplicatorError as error:
            if not isinstance(decision, Marker):
                return Left(str(error))
            kept = "; it must not be aborted by hand: the position covers its records" if decision.commit else ""
            return Left(f"{error}{kept}", None if decision.commit else decision.transaction.start)
        self._tell(source, decision)
        return None

    def _tell(self, at: Partition, marker: Marker) -> None:
        one = marker.transaction
        self._log.warning(
            "open_transaction_ended",
            topic=at.topic,
            partition=at.partition,
            detail=(
                f"{marker.at} had a transaction of this lane's own producer (producer id {one.producer_id}, epoch "
                f"{one.epoch}) open since offset {one.start}, which its coordinator didn't know: "
                + (
                    "it is committed, as its position is"
                    if marker.commit
                    else "it is aborted, as its position is not there"
                )
            ),
        )
