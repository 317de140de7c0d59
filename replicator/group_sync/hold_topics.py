"""The source topics for which groups wait until they are copied: those that the flow file names, or those to which
read-process-write loops write, looked for at the source. Implements `HoldTopics`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import structlog

from replicator.clock import RealClock
from replicator.config import Flow
from replicator.config.patterns import matches
from replicator.coupling.evidence import OFFSETS_TOPIC, ProducerEvidence, SeenIn, written_for_groups
from replicator.lane.ports import Clock
from replicator.model.errors import ReplicatorError, TopicMissing
from replicator.wire.producer_questions import LedTopic, ProducerQuestions

LOOK_S, SHARE = 60.0, 0.01
"""Between two looks at the source at least; longer where a look takes more than this share of that."""


class NamedHoldTopics:
    """Those that match `groups.hold_with`."""

    def __init__(self, patterns: Collection[str]) -> None:
        self._patterns = patterns

    def look(self, copied: Collection[str]) -> None:
        """See `HoldTopics`."""

    def holds(self, topic: str) -> bool:
        """See `HoldTopics`."""
        return matches(self._patterns, topic)

    def close(self) -> None:
        """Do nothing: nothing is open."""


class FoundHoldTopics:
    """Those that are written by producers which commit offsets of groups in their transactions.

    Once found, a topic stays one: an application may have been stopped only for a while.
    """

    def __init__(self, questions: ProducerQuestions, log: structlog.stdlib.BoundLogger, clock: Clock) -> None:
        self._questions, self._log, self._clock = questions, log, clock
        self._found: frozenset[str] = frozenset()
        self._next_s = float("-inf")
        self._unknown = ""

    def look(self, copied: Collection[str]) -> None:
        """See `HoldTopics`. What isn't known is told in the log once; groups are moved without it."""
        began_s = self._clock.now_s()
        if began_s < self._next_s:
            return
        unknown: list[ReplicatorError] = []
        try:
            found = self._found | frozenset(self._look(copied, unknown))
        except ReplicatorError as error:
            unknown, found = [error], self._found
        ended_s = self._clock.now_s()
        self._next_s = ended_s + max(LOOK_S, (ended_s - began_s) / SHARE)
        if found != self._found:
            self._found = found
            self._log.info("groups_held_with", topics=sorted(found))
        reasons = "; ".join(sorted({str(error) for error in unknown}))
        if reasons and reasons != self._unknown:
            self._log.warning("hold_topics_unknown", reason=reasons)
        self._unknown = reasons

    def _look(self, copied: Collection[str], unknown: list[ReplicatorError]) -> Iterator[str]:
        evidence = ProducerEvidence()
        self._take({OFFSETS_TOPIC}, evidence, unknown)
        found = self._questions.transactional_ids()
        unknown += found.unanswered
        for transactional_id, producer_id in found.producer_ids.items():
            evidence.named(transactional_id, producer_id)
        for it in found.transactions:
            evidence.transaction(it, SeenIn.OPEN_TRANSACTION)
        if any(writer.commits_offsets for writer in evidence.writers()):
            self._take(copied, evidence, unknown)
        return (topic for topic in written_for_groups(evidence.writers()) if topic in copied)

    def _take(self, names: Collection[str], evidence: ProducerEvidence, unknown: list[ReplicatorError]) -> None:
        """Ask who writes to these topics."""
        described = self._questions.topics(names)
        unknown += [
            error
            for error in described.values()
            if isinstance(error, ReplicatorError) and not isinstance(error, TopicMissing)
        ]
        producers = self._questions.producers({name: it for name, it in described.items() if isinstance(it, LedTopic)})
        for at, active in producers.found.items():
            evidence.active(at.topic, at.partition, active)
        failed: dict[str, ReplicatorError] = {}
        for at, error in sorted(producers.failed.items()):
            failed.setdefault(at.topic, error)
        unknown += failed.values()

    def holds(self, topic: str) -> bool:
        """See `HoldTopics`."""
        return topic in self._found

    def close(self) -> None:
        """Let go of the source."""
        self._questions.close()


def hold_topics_of(flow: Flow, log: structlog.stdlib.BoundLogger) -> NamedHoldTopics | FoundHoldTopics:
    """Make the hold topics of a flow."""
    if flow.groups.hold_with is not None:
        return NamedHoldTopics(flow.groups.hold_with)
    return FoundHoldTopics(ProducerQuestions(flow.source, f"eos-replicate.{flow.name}.groups"), log, RealClock())
