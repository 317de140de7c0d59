"""Transactional ids: who may write, in which state their transaction is. Pure.

Behaviour follows org.apache.kafka.coordinator.transaction.TransactionCoordinator and TransactionMetadata, with
transaction protocol 1 (EndTxn up to v4, partitions added explicitly).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

EPOCH_MAX = 32_767


class State(StrEnum):
    """State of a transactional id."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


S = State
# From which states each state may be entered; everything else is a bug and raises.
TRANSITIONS: Mapping[State, frozenset[State]] = {
    S.EMPTY: frozenset({S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}),
    S.ONGOING: frozenset({S.EMPTY, S.ONGOING, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}),
    S.PREPARE_COMMIT: frozenset({S.ONGOING}),
    S.PREPARE_ABORT: frozenset({S.ONGOING}),
    S.COMPLETE_COMMIT: frozenset({S.PREPARE_COMMIT}),
    S.COMPLETE_ABORT: frozenset({S.PREPARE_ABORT}),
}
PREPARED = frozenset({S.PREPARE_COMMIT, S.PREPARE_ABORT})


class IllegalTransition(RuntimeError):
    """A transition that the table rules out."""


class Refused(Exception):
    """A request that the state does not allow; `error` is the protocol's name of the reason."""

    def __init__(self, error: str) -> None:
        super().__init__(error)
        self.error = error


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transactional id. `partitions` and `groups` are those of the transaction under way."""

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: State = State.EMPTY
    partitions: frozenset[tuple[str, int]] = field(default_factory=frozenset)
    groups: frozenset[str] = field(default_factory=frozenset)
    started_ms: int = -1
    updated_ms: int = -1

    def to(self, state: State, now_ms: int, **changes: object) -> Transaction:
        """This id in `state`; raises IllegalTransition."""
        if self.state not in TRANSITIONS[state]:
            raise IllegalTransition(f"{self.transactional_id}: {self.state} → {state}")
        return replace(self, state=state, updated_ms=now_ms, **changes)  # type: ignore[arg-type]

    def check_producer(self, producer_id: int, epoch: int) -> None:
        """Raise Refused unless this is the current incarnation."""
        if producer_id != self.producer_id:
            raise Refused("invalid_producer_id_mapping")
        if epoch != self.epoch:
            raise Refused("producer_fenced")

    def initialise(self, fresh_id: int, timeout_ms: int, now_ms: int) -> Transaction:
        """The next incarnation: epoch one higher, or a fresh producer id when epochs are used up."""
        exhausted = self.epoch >= EPOCH_MAX - 1
        return self.to(
            S.EMPTY,
            now_ms,
            producer_id=fresh_id if exhausted else self.producer_id,
            epoch=0 if exhausted else self.epoch + 1,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            groups=frozenset(),
            started_ms=-1,
        )

    def add(self, partitions: frozenset[tuple[str, int]], groups: frozenset[str], now_ms: int) -> Transaction:
        """More partitions or groups in the transaction, which begins with the first."""
        if self.state in PREPARED:
            raise Refused("concurrent_transactions")
        begun = self.state is S.ONGOING
        return self.to(
            S.ONGOING,
            now_ms,
            partitions=(self.partitions if begun else frozenset()) | partitions,
            groups=(self.groups if begun else frozenset()) | groups,
            started_ms=self.started_ms if begun else now_ms,
        )

    def end(self, commit: bool, now_ms: int) -> Transaction | None:
        """Prepared to commit or abort; None when exactly that is done already (a retried EndTxn)."""
        done = S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT
        if self.state is done:
            return None
        if self.state in PREPARED:
            same = (self.state is S.PREPARE_COMMIT) == commit
            raise Refused("concurrent_transactions" if same else "invalid_txn_state")
        if self.state is not S.ONGOING:
            raise Refused("invalid_txn_state")
        return self.to(S.PREPARE_COMMIT if commit else S.PREPARE_ABORT, now_ms)

    def fence(self, now_ms: int) -> Transaction:
        """Abort an ongoing transaction on behalf of the coordinator: the epoch moves on, the owner is fenced."""
        return self.to(S.PREPARE_ABORT, now_ms, epoch=min(self.epoch + 1, EPOCH_MAX - 1))

    def complete(self, now_ms: int) -> Transaction:
        """After all markers are written."""
        done = S.COMPLETE_COMMIT if self.state is S.PREPARE_COMMIT else S.COMPLETE_ABORT
        return self.to(done, now_ms, partitions=frozenset(), groups=frozenset(), started_ms=-1)

    def expired(self, now_ms: int) -> bool:
        """Whether the transaction has been open for longer than its producer allowed."""
        return self.state is S.ONGOING and now_ms - self.started_ms >= self.timeout_ms

    def encode(self) -> bytes:
        """Value in the transaction log."""
        return json.dumps(
            {
                "producer_id": self.producer_id,
                "epoch": self.epoch,
                "timeout_ms": self.timeout_ms,
                "state": self.state.value,
                "partitions": sorted(self.partitions),
                "groups": sorted(self.groups),
                "started_ms": self.started_ms,
                "updated_ms": self.updated_ms,
            },
            separators=(",", ":"),
        ).encode()


def decode(key: bytes, value: bytes) -> Transaction:
    """A transactional id out of the transaction log."""
    body = json.loads(value)
    return Transaction(
        key.decode(),
        body["producer_id"],
        body["epoch"],
        body["timeout_ms"],
        State(body["state"]),
        frozenset((topic, number) for topic, number in body["partitions"]),
        frozenset(body["groups"]),
        body["started_ms"],
        body["updated_ms"],
    )
