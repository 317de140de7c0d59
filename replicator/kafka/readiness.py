"""Which partitions of the target can't be written now: no leader, or fewer replicas in sync than min.insync.replicas.
And which of the source nobody leads.

A cached view, so that no transaction waits for it: it asks for metadata now and then and takes the answer at the next
look. Used by `kafka.clusters`.

Such a partition holds up every transaction that it is part of: the broker refuses its records
(NOT_ENOUGH_REPLICAS), and the marker that ends the transaction, as long as that lasts.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from replicator.kafka.answers import AnswerWait
from replicator.kafka.topic_questions import Replicas, TopicAnswers, TopicInfo, TopicQuestions
from replicator.model.errors import ReplicatorError, TopicMissing
from replicator.model.partition import Partition

REFRESH_S, REFRESH_S_MAX = 1.0, 30.0
PARTITIONS_PER_S = 1_000  # a larger answer is asked for less often
MIN_ISR_KEPT_S = 5.0
MIN_ISR = "min.insync.replicas"


class Readiness:
    """Of one cluster. Used by one thread."""

    def __init__(self, topics: TopicQuestions, answers: AnswerWait, timeout_s: float) -> None:
        """`timeout_s`: how long an answer is waited for where it is needed now."""
        self._topics, self._answers, self._timeout_s = topics, answers, timeout_s
        self._names = frozenset[str]()
        self._asked: TopicAnswers[TopicInfo] | None = None
        self._asked_s = 0.0
        self._refresh_s = REFRESH_S
        self._short: dict[str, Mapping[int, Replicas]] = {}
        self._ids: dict[str, str] = {}  # by topic, as the cluster answered last; empty: it has none of that name
        self._min_isr: dict[str, tuple[float, int]] = {}  # by topic: when it was asked for, and the answer

    def not_ready(self, partitions: Collection[Partition], *, now: bool = False) -> dict[Partition, str]:
        """Return those that can't be written, each with the reason; `now`: not as it was a moment ago.

        What isn't known counts as ready: then writing to it shows what it is.
        """
        self._look({at.topic for at in partitions}, now=now)
        if not any(self._short.values()):
            return {}
        found: dict[Partition, str] = {}
        for at in partitions:
            short = self._short.get(at.topic, {}).get(at.partition)
            why = self._hindrance(at, short) if short is not None else ""
            if why:
                found[at] = why
        return found

    def without_leader(self, partitions: Collection[Partition]) -> set[Partition]:
        """Return those that have no leader. What isn't known counts as led."""
        self._look({at.topic for at in partitions}, now=False, wait=False)
        if not any(self._short.values()):
            return set()
        known = {at: self._short.get(at.topic, {}).get(at.partition) for at in partitions}
        return {at for at, short in known.items() if short is not None and short.leader < 0}

    def seen_topic_id(self, topic: str) -> str | None:
        """Return the id of a topic that `not_ready` was asked about, by the last answer: empty where the cluster has no
        such topic, None where nothing is known."""
        return self._ids.get(topic)

    def _look(self, names: set[str], *, now: bool, wait: bool = True) -> None:
        now_s = time.monotonic()
        new = names - self._names
        if self._asked is None and (new or now or now_s >= self._asked_s + self._refresh_s):
            self._names |= names
            self._asked, self._asked_s = self._topics.describe(self._names), now_s
        if self._asked is None:
            return
        wait = wait and (bool(new) or now)
        if now:
            self._min_isr.clear()
        if wait:
            self._answers.until(self._asked.poll, self._timeout_s)
        elif not self._asked.poll(0.0) and now_s < self._asked_s + self._timeout_s:
            return
        answers, self._asked = self._asked.values(), None
        infos = {name: info for name, info in answers.items() if isinstance(info, TopicInfo)}
        self._short |= {name: info.short for name, info in infos.items()}
        self._ids |= {name: info.topic_id for name, info in infos.items()}
        for name, answer in answers.items():
            if isinstance(answer, TopicMissing):
                self._short.pop(name, None)
                self._ids[name] = ""
        asked_for = sum(info.partitions for info in infos.values())
        self._refresh_s = min(REFRESH_S_MAX, max(REFRESH_S, asked_for / PARTITIONS_PER_S))

    def _hindrance(self, at: Partition, short: Replicas) -> str:
        """Say why it can't be written; empty if it can."""
        if short.leader < 0:
            return f"{at} has no leader"
        needed = min(self._needed(at.topic), short.whole)
        if short.in_sync >= needed:
            return ""
        return f"{at} has {short.in_sync} of {short.whole} replicas in sync, fewer than {MIN_ISR}, {needed}"

    def _needed(self, topic: str) -> int:
        """Return the topic's min.insync.replicas; 1 where the cluster doesn't say, or not to this user."""
        now_s = time.monotonic()
        asked_s, known = self._min_isr.get(topic, (-MIN_ISR_KEPT_S, 1))
        if now_s >= asked_s + MIN_ISR_KEPT_S:
            names = [name for name, short in self._short.items() if short]
            asked = self._topics.configs(names)
            self._answers.until(asked.poll, self._timeout_s)
            for name, configs in asked.values().items():
                unknown = isinstance(configs, ReplicatorError)
                self._min_isr[name] = now_s, known if unknown else int(configs.get(MIN_ISR, "1"))  # type: ignore[union-attr]
            known = self._min_isr.get(topic, (now_s, known))[1]
        return known
