"""What a failure of the producer session means to the lane: its class and code as the errors of `planes.contract`.

Used by `writer`. A failure of the flow's own topics names them, so that the lane knows what they concern.
"""

from __future__ import annotations

from collections.abc import Mapping

from replicator.kafka import failures
from replicator.model import names
from replicator.model.counting import named
from replicator.model.errors import (
    Abortable,
    ConfigError,
    Fatal,
    Fenced,
    NotAllowed,
    ReplicatorError,
    Retriable,
    UnknownOutcome,
)
from replicator.model.partition import Partition
from replicator.planes.batches.answer_classes import AnswerClass, TxnApi
from replicator.planes.batches.fetch_classes import code_name
from replicator.planes.batches.session import TxnFailure
from replicator.planes.contract import RecordsRefused, Refusal

_DOING = {
    TxnApi.PRODUCE: "write records",
    TxnApi.FIND_COORDINATOR: "find a coordinator",
    TxnApi.INIT_PRODUCER_ID: "initialise the transactional id",
    TxnApi.ADD_PARTITIONS_TO_TXN: "write records",
    TxnApi.ADD_OFFSETS_TO_TXN: "commit positions",
    TxnApi.TXN_OFFSET_COMMIT: "commit positions",
    TxnApi.END_TXN: "end the transaction",
}


class Outcomes:
    """Classifies failures of one lane's sessions."""

    def __init__(self, flow: str, cluster: str, transactional_id: str, routes: Mapping[Partition, Partition]) -> None:
        """`cluster` is the target's name, `routes` maps source to target partitions."""
        self._flow, self._cluster, self._id = flow, cluster, transactional_id
        self._sources = {target: source for source, target in routes.items()}

    def of(self, found: list[TxnFailure]) -> ReplicatorError:
        """Say what the failures of one transaction mean: refused records first, then what is worst."""
        refused = [each for each in found if each.answer_class is AnswerClass.REFUSED]
        worst = max(found, key=lambda each: each.answer_class)
        if refused and worst.answer_class < AnswerClass.NEW_SESSION:
            return self._refused(refused)
        return self._of(worst)

    def _refused(self, found: list[TxnFailure]) -> ReplicatorError:
        refusals: dict[Partition, Refusal] = {}
        for each in found:
            for at in each.at:
                if at not in self._sources:
                    return Abortable(self._text(each, f"write to {at}"))
                detail = f"{code_name(each.code)}: {each.detail or 'the broker gives no reason'}"
                too_large, for_timestamp = each.code in failures.TOO_LARGE, each.code in failures.FOR_TIMESTAMP
                refusal = Refusal(each.suspects, detail, too_large, for_timestamp=for_timestamp)
                refusals.setdefault(self._sources[at], refusal)
        listed = named([f"{source}: {refusal.detail}" for source, refusal in sorted(refusals.items())], "; ")
        return RecordsRefused(f"cluster {self._cluster!r}: records were refused: {listed}", refusals)

    def _of(self, failure: TxnFailure) -> ReplicatorError:
        doing = _DOING[failure.api]
        if failure.at and failure.api is TxnApi.PRODUCE:
            doing = f"write to {named([str(at) for at in sorted(failure.at)])}"
        text, class_ = self._text(failure, doing), failure.answer_class
        if class_ is AnswerClass.NOT_ALLOWED:
            doing = _DOING[failure.api]
            denied = failures.classify_code(failure.code, self._cluster, doing, self._right(failure))
            topics = {
                at.topic for at in failure.at
            }  # a right is one of a topic, whichever partition was answered first
            return NotAllowed(str(denied), [source for at, source in self._sources.items() if at.topic in topics])
        if class_ is AnswerClass.FENCED:
            return Fenced(text)
        if class_ is AnswerClass.BUG:
            return Fatal(text)
        if failure.api is TxnApi.INIT_PRODUCER_ID:
            if class_ is AnswerClass.INCIDENT:
                return ConfigError(f"{text}: limits.transaction_timeout_ms is above its transaction.max.timeout.ms")
            return Retriable(text)
        return UnknownOutcome(text) if class_ is AnswerClass.NEW_SESSION else Abortable(text)

    def _right(self, failure: TxnFailure) -> str:
        """Name the right that an answer says is missing."""
        name = code_name(failure.code)
        if name == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED":
            return f"Write and Describe on transactional id {self._id!r}"
        if name == "GROUP_AUTHORIZATION_FAILED":
            return f"Read on group {names.position_group(self._flow)!r}"
        if name == "CLUSTER_AUTHORIZATION_FAILED":
            return "IdempotentWrite on the cluster"
        operation = "Read" if failure.api is TxnApi.TXN_OFFSET_COMMIT else "Write"
        topics = ", ".join(repr(topic) for topic in sorted({at.topic for at in failure.at}))
        return f"{operation} on topic {topics}" if topics else f"{operation} on all target topics of the flow"

    def _text(self, failure: TxnFailure, doing: str) -> str:
        why = code_name(failure.code) if failure.code else failure.answer_class.name
        return f"cluster {self._cluster!r}: cannot {doing}: {why}" + (f": {failure.detail}" if failure.detail else "")
