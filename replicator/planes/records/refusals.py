"""What failed writes of a transaction mean for its source partitions: refused records, missing rights. Used by `plane`.

Invariant: a refusal is never hidden. What was purged, timed out or met a failed transaction says nothing of its own
record, and counts only where nothing else was found.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from confluent_kafka import KafkaError

from replicator.kafka import failures
from replicator.model.counting import named
from replicator.model.errors import Abortable, Fenced, NotAllowed, ReplicatorError
from replicator.model.partition import Partition
from replicator.planes.contract import RecordsRefused, Refusal
from replicator.planes.records.acks import AckError, refusal
from replicator.planes.records.copying import Run

OFFSETS = "Failed to commit offsets"  # of TxnOffsetCommit, which asks for Read on the target's topics
SAYS_NOTHING = frozenset(
    {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._STATE, KafkaError._INVALID_DIFFERENT_RECORD}
)


class Refusals:
    """Classifies errors of the target by source partition."""

    def __init__(self, cluster: str, routes: Mapping[Partition, Partition]) -> None:
        """`cluster` is the target's name, `routes` maps source to target partitions."""
        self._cluster = cluster
        self._sources = {target: source for source, target in routes.items()}
        self._routes = routes

    def of_runs(self, runs: Sequence[Run], failure: KafkaError | None) -> RecordsRefused | NotAllowed | None:
        """Find refused records, or else missing rights, by the reports of `runs` and the transaction's own
        `failure`."""
        refused: dict[Partition, Refusal] = {}
        for source, (errors, every_ack) in _errors(runs).items():
            found = refusal(errors, every_ack=every_ack)
            if found is not None:
                refused[source] = found
        if not refused and failure is not None:
            found_by_name = self.explain(failure, ())
            return found_by_name if isinstance(found_by_name, RecordsRefused) else None
        if refused:
            return self._refused(refused)
        return self._denied(runs)

    def _refused(self, refused: Mapping[Partition, Refusal]) -> RecordsRefused:
        listed = named([f"{self._routes[source]}: {found.detail}" for source, found in sorted(refused.items())], "; ")
        return RecordsRefused(f"cluster {self._cluster!r}: records were refused: {listed}", refused)

    def _denied(self, runs: Sequence[Run]) -> NotAllowed | None:
        """Find a missing right to describe a topic: it shows in delivery reports only; its transaction has not
        failed."""
        denied: dict[Partition, KafkaError] = {}
        for source, (errors, _) in _errors(runs).items():
            for found in errors.values():
                if found.error.code() in failures.NOT_ALLOWED:
                    denied[self._routes[source]] = found.error
                    break
        if not denied:
            return None
        return self.not_allowed(next(iter(denied.values())), denied.keys(), "write records")

    def of_errors(self, runs: Sequence[Run], *, transactional: bool) -> ReplicatorError | None:
        """Make what is left: records failed, none was refused, and the transaction itself goes on; None if none failed.

        A fenced producer means the lane only where its id is the lane's (`transactional`).
        """
        every = [found.error for errors, _ in _errors(runs).values() for found in errors.values()]
        telling = [error for error in every if error.code() not in SAYS_NOTHING] or every
        if not telling:
            return None
        text = failures.describe(telling[0], self._cluster, "write records")
        return Fenced(text) if transactional and telling[0].code() in failures.FENCED else Abortable(text)

    def explain(self, error: KafkaError, denied: Iterable[Partition]) -> ReplicatorError | None:
        """Say what the reason of a failed transaction means for the partitions that its text names; None where it is no
        refusal and no missing right of a topic.

        `denied`: target partitions that could not be added to the transaction.
        """
        named = failures.partitions_named(error.str())
        if error.code() in failures.REFUSED_RECORD:
            detail = f"{error.name()}: {failures.reason(error)}"
            code = error.code()
            found = Refusal((), detail, code in failures.TOO_LARGE, for_timestamp=code in failures.FOR_TIMESTAMP)
            refused = {self._sources[target]: found for target in named if target in self._sources}
            if refused:
                return self._refused(refused)
            return RecordsRefused(failures.describe(error, self._cluster, "write records"), {})
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            if OFFSETS in error.str():
                return self.not_allowed(error, named, "commit positions", "Read")
            return self.not_allowed(error, named | set(denied), "write records")
        return None

    def not_allowed(
        self, error: KafkaError, targets: Collection[Partition], doing: str, operation: str = "Write"
    ) -> NotAllowed:
        """Name a right that is missing on the topics of `targets`; with none the text cannot say which."""
        topics = ", ".join(repr(topic) for topic in sorted({target.topic for target in targets}))
        right = f"{operation} on topic {topics}" if topics else f"{operation} on all target topics of the flow"
        return NotAllowed(
            failures.describe(error, self._cluster, doing, right),
            [self._sources[target] for target in targets if target in self._sources],
        )


def _errors(runs: Sequence[Run]) -> dict[Partition, tuple[dict[int, AckError], bool]]:
    """Collect the errors of each source partition by source offset, and whether each of its records' reports was asked
    for."""
    found: dict[Partition, tuple[dict[int, AckError], bool]] = {}
    for run in runs:
        errors, every_ack = found.get(run.source, ({}, True))
        found[run.source] = (errors | run.acks.errors, every_ack and run.every_ack)
    return found
