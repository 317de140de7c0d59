"""Which partitions their leader doesn't serve, although it answers: a cached view. Used by `kafka.clusters`.

A broker whose disk has failed may go on as leader, in metadata, and answer KAFKA_STORAGE_ERROR to what is asked of the
partitions there. librdkafka takes that for something that passes: it reads, or writes, again and again, and says
nothing. So their ends are asked for, now and then, and the answer is taken at a later look: no transaction waits for
it.
"""

from __future__ import annotations

import time
from collections.abc import Collection

from replicator.kafka.answers import AnswerWait
from replicator.kafka.offset_questions import STABLE, ListedOffset, OffsetAnswers
from replicator.kafka.topic_questions import TopicQuestions
from replicator.model.errors import Retriable
from replicator.model.partition import Partition

REFRESH_S = 2.0
PARTITIONS_PER_S = 1_000  # a larger answer is asked for less often


class ServedPartitions:
    """Of one cluster. Used by one thread."""

    def __init__(self, topics: TopicQuestions, answers: AnswerWait, timeout_s: float) -> None:
        """`timeout_s`: how long an answer may take."""
        self._topics, self._answers, self._timeout_s = topics, answers, timeout_s
        self._asked: OffsetAnswers | None = None
        self._asked_s, self._refresh_s = -REFRESH_S, REFRESH_S
        self._refused: dict[Partition, str] = {}
        self._ends: dict[Partition, int] = {}

    def unserved(self, partitions: Collection[Partition], *, now: bool) -> dict[Partition, str]:
        """Return those of which their leader refused to tell the end, by its last answer, each with what it said. What
        isn't known counts as served. `now`: wait for an answer."""
        now_s = time.monotonic()
        if self._asked is None and partitions and (now or now_s >= self._asked_s + self._refresh_s):
            self._asked, self._asked_s = self._topics.list_offsets(partitions, (STABLE,)), now_s
            self._refresh_s = max(REFRESH_S, len(partitions) / PARTITIONS_PER_S)
        if self._asked is not None:
            if now:
                self._answers.until(self._asked.poll, self._timeout_s)
            self._take(self._asked, late=now or now_s >= self._asked_s + self._timeout_s)
        return {at: self._refused[at] for at in partitions if at in self._refused}

    def _take(self, asked: OffsetAnswers, *, late: bool) -> None:
        if not asked.poll(0.0) and not late:
            return
        self._asked = None
        (found,) = asked.values()
        self._refused = {at: str(answer) for at, answer in found.items() if isinstance(answer, Retriable)}
        self._ends = {at: answer.offset for at, answer in found.items() if isinstance(answer, ListedOffset)}

    def seen_end(self, at: Partition) -> int | None:
        """Return the last stable offset, as the leader told it last; None where it wasn't asked, or didn't."""
        return self._ends.get(at)
