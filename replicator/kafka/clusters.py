"""What a lane asks of one cluster beside its plane: implements `lane.ports.ClusterQuestions`, with questions about
topics and logs, and a topic reader. Made by the flow's wiring, one of each side for a lane.

All questions about many topics or partitions are asked at once: one request to each broker that leads some of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Literal, TypeVar

from replicator import config
from replicator.config import Flow
from replicator.kafka.answers import AnswerWait
from replicator.kafka.offset_questions import (
    EARLIEST,
    LATEST,
    STABLE,
    ListedOffset,
    ListedOffsets,
    OffsetAnswers,
    Wanted,
)
from replicator.kafka.readiness import Readiness
from replicator.kafka.served import ServedPartitions
from replicator.kafka.topic_questions import TopicAnswers, TopicInfo, TopicQuestions, raised
from replicator.kafka.topic_reader import TopicReader
from replicator.model.errors import NotAllowed, ReplicatorError, Unreachable
from replicator.model.partition import EndRecords, LogEnds, Partition, TopicShape
from replicator.model.rights import MissingRights
from replicator.model.timestamps import replaces_timestamps

IDS_S_MAX = 5.0  # ids are asked for before every commit: a cluster that takes longer is waited for by the lane
Side = Literal["source", "target"]
RIGHTS = {"source": frozenset({"Describe", "Read"}), "target": frozenset({"Describe", "Read", "Write"})}
"""Read on the target's topics is what TxnOffsetCommit asks for."""

Value = TypeVar("Value")
Answers = dict[Partition, int | ReplicatorError]
Ends = dict[Partition, LogEnds | ReplicatorError]


class TopicIds:
    """Implements `lane.ports.IdAnswer`."""

    def __init__(self, asked: TopicAnswers[TopicInfo], timeout_s: float, answers: AnswerWait) -> None:
        self._asked, self._answers = asked, answers
        self._deadline_s = time.monotonic() + timeout_s

    def wait(self) -> dict[str, str | ReplicatorError]:
        """Return the id of each topic, or why it is not known. Returns within the time that the question had."""
        self._answers.until(self._asked.poll, self._deadline_s - time.monotonic())
        return {
            name: found.topic_id if isinstance(found, TopicInfo) else found
            for name, found in self._asked.values().items()
        }


class KafkaClusterQuestions:
    """Implements `lane.ports.ClusterQuestions` for one side of a flow. Used by one thread."""

    def __init__(
        self,
        flow: Flow,
        cluster: config.Cluster,
        side: Side,
        topics: TopicQuestions,
        *,
        asked: threading.Event | None = None,
        reader: TopicReader | None = None,
    ) -> None:
        """`cluster` is the flow's cluster of this `side`, and `topics` asks it. `asked` is set when the lane shall
        stop: from then on answers are waited for as `AnswerWait` says. `reader` reads its records, with the same
        `topics`; one is made where none is given. Both are closed with this."""
        self._answers = AnswerWait(threading.Event() if asked is None else asked)
        self._flow, self._cluster, self._side = flow, cluster, side
        self._request_s = flow.limits.request_timeout_ms / 1000
        self._topics, self._reader = topics, reader or TopicReader(flow, cluster, topics)
        self._readiness = Readiness(self._topics, self._answers, min(self._request_s, IDS_S_MAX))
        self._served = ServedPartitions(self._topics, self._answers, min(self._request_s, IDS_S_MAX))

    def connect(self, topics: Collection[str]) -> None:
        """Connect, also to the leaders of these topics, and return within some seconds: the first questions find
        connections."""
        self._topics.connect(topics)

    def topic_ids(self, topics: Collection[str]) -> TopicIds:
        """Ask for the ids of topics as the cluster has them now. Returns at once."""
        return TopicIds(self._topics.describe(topics), min(self._request_s, IDS_S_MAX), self._answers)

    def log_ends(self, partitions: Collection[Partition]) -> Ends:
        """Ask for topic ids and both ends of logs; a partition's error is its value. All is asked for at the same
        time, the last stable offset behind the end: it is below the end only where a transaction is open.

        A leader that can't be reached is an error of what it leads, also where nothing else was asked for: any other
        broker tells which topics there are. Raises Unreachable where none does.
        """
        if not partitions:
            return {}
        described = self._topics.describe({at.topic for at in partitions})
        ids = TopicIds(described, self._request_s, self._answers)
        return self._log_ends(partitions, ids, self._topics.list_offsets(partitions, (EARLIEST, LATEST, STABLE)))

    def ask_log_ends(self, partitions: Collection[Partition]) -> Callable[[], Ends]:
        """Ask as `log_ends`, but return at once; the function that it returns waits for the answers. Nothing else is
        asked of this cluster before.

        In a thread: who leads what is asked first, and what follows that answer must not wait for another cluster's.
        """
        with_answer: Future[Ends] = Future()
        thread = threading.Thread(target=_run, args=(with_answer, partial(self.log_ends, partitions)), daemon=True)
        thread.start()
        return with_answer.result

    def _log_ends(self, partitions: Collection[Partition], ids: TopicIds, asked: OffsetAnswers) -> Ends:
        listed = self._listed(asked)
        epochs = {at: it.leader_epoch for at, it in listed[1].items() if isinstance(it, ListedOffset)}
        starts, ends, stables = map(_offsets_only, listed)
        known = _raise_common(ids.wait())
        found: Ends = {}
        for at in partitions:
            topic_id, start, stable, end = known[at.topic], starts[at], stables[at], ends[at]
            error = next((one for one in (topic_id, start, stable, end) if isinstance(one, ReplicatorError)), None)
            if error is not None:
                found[at] = error
            else:
                assert isinstance(topic_id, str)
                assert isinstance(start, int) and isinstance(stable, int) and isinstance(end, int)  # noqa: PT018
                found[at] = LogEnds(topic_id, start, stable, max(stable, end), epochs.get(at, -1))
        return found

    def offsets_at(self, partitions: Collection[Partition], timestamp_ms: int) -> Answers:
        """Find the first committed offset at or after a time; -1 where there is none. Errors are told as by
        `log_ends`."""
        if not partitions:
            return {}
        (listed,) = self._listed(self._topics.list_offsets(partitions, (Wanted(timestamp_ms, stable=True),)))
        found = _offsets_only(listed)
        if all(isinstance(answer, Unreachable) for answer in found.values()):
            _raise_common(self.topic_ids({at.topic for at in partitions}).wait())
        return found

    def _listed(self, asked: OffsetAnswers) -> Sequence[ListedOffsets]:
        self._answers.until(asked.poll, self._request_s)
        return asked.values()

    def ask_another(self) -> None:
        """Ask another broker next who leads what: the last one has named a leader of before, which answers for itself.
        It may be cut off from the controllers."""
        self._topics.ask_another()

    def end_records(
        self, starts: Mapping[Partition, int], ends: Mapping[Partition, int]
    ) -> dict[Partition, EndRecords | ReplicatorError]:
        """Read each partition, read_committed, from its start until the last stable offset has reached its end.

        Waits at most the request timeout for open transactions; stops at the second record of a partition.
        """
        return self._reader.end_records(starts, ends)

    def not_ready(self, partitions: Collection[Partition], *, now: bool = False) -> dict[Partition, str]:
        """Return those that can't be written, each with the reason, as it was a moment ago, or `now`."""
        return self._readiness.not_ready(partitions, now=now)

    def without_leader(self, partitions: Collection[Partition]) -> set[Partition]:
        """Return those that nobody leads, as it was a moment ago."""
        return self._readiness.without_leader(partitions)

    def unserved(self, partitions: Collection[Partition], *, now: bool = False) -> dict[Partition, str]:
        """Return those that their leader refuses to serve, each with what it said, as it was a moment ago, or `now`."""
        return self._served.unserved(partitions, now=now)

    def seen_end(self, at: Partition) -> int | None:
        """Return the last stable offset of a partition that `unserved` was asked about, by its last answer."""
        return self._served.seen_end(at)

    def seen_topic_id(self, topic: str) -> str | None:
        """Return the id of a topic that `not_ready` was asked about, as it was a moment ago; empty where it is gone."""
        return self._readiness.seen_topic_id(topic)

    def topic_shape(self, topic: str) -> TopicShape:
        """Ask for a topic's id, its number of partitions, and its configs. Raises what the cluster says instead."""
        described, asked = self._topics.describe([topic]), self._topics.configs([topic])
        self._answers.until(asked.poll, self._request_s)
        self._answers.until(described.poll, self._request_s)
        info = raised(described.values()[topic])
        return TopicShape(info.topic_id, info.partitions, raised(asked.values()[topic]))

    def holds(self, at: Partition, offset: int) -> bool:
        """Tell whether there is a record at this offset, of an aborted transaction too."""
        return self._reader.holds(at, offset)

    def compacted(self, topic: str) -> bool:
        """Tell whether the topic's cleanup.policy has compact."""
        return "compact" in raised(self._configs([topic])[topic])["cleanup.policy"].split(",")

    def rewrites_timestamps(self, topics: Collection[str]) -> dict[str, bool | ReplicatorError]:
        """Tell whether each topic stamps records with the time of their append, as it is configured now."""
        return {
            name: answer if isinstance(answer, ReplicatorError) else replaces_timestamps(answer)
            for name, answer in self._configs(topics).items()
        }

    def _configs(self, topics: Collection[str]) -> Mapping[str, Mapping[str, str] | ReplicatorError]:
        asked = self._topics.configs(topics)
        self._answers.until(asked.poll, self._request_s)
        return asked.values()

    def missing_rights(self, topics: Collection[str]) -> dict[str, MissingRights]:
        """Say what the user may not do with topics of this side.

        Topics without fault, those that are not there and those of which the broker tells nothing are left out.
        """
        asked = self._topics.describe(topics, rights=True)
        self._answers.until(asked.poll, self._request_s)
        found: dict[str, frozenset[str] | ReplicatorError | None] = {
            name: answer.rights if isinstance(answer, TopicInfo) else answer for name, answer in asked.values().items()
        }
        _raise_common(found)
        lacking: dict[str, MissingRights] = {}
        for name, answer in found.items():
            needed = RIGHTS[self._side]
            if isinstance(answer, NotAllowed):
                missing = needed
            elif answer is None or isinstance(answer, ReplicatorError):
                continue
            else:
                missing = needed - answer
            if missing:
                listed = ", ".join(sorted(missing))
                text = f"cluster {self._cluster.name!r}: the user needs {listed} on topic {name!r}"
                lacking[name] = MissingRights(frozenset(missing), text)
        return lacking

    def offsets_retention_ms(self) -> int | None:
        """Say how long the cluster keeps committed offsets of a group without members; None where it doesn't say, or
        where the user may not ask."""
        asked = self._topics.broker_configs()
        self._answers.until(asked.poll, self._request_s)
        configs = asked.values()
        if isinstance(configs, ReplicatorError):
            return None
        return int(configs["offsets.retention.minutes"]) * 60_000

    def close(self) -> None:
        """Let go of connections; a later question connects again."""
        self._topics.close()
        self._reader.close()


def _offsets_only(listed: ListedOffsets) -> Answers:
    return {at: it.offset if isinstance(it, ListedOffset) else it for at, it in listed.items()}


def _run(answer: Future[Ends], ask: Callable[[], Ends]) -> None:
    try:
        answer.set_result(ask())
    except BaseException as error:  # noqa: BLE001 - raised where the answer is taken
        answer.set_exception(error)


def _raise_common(found: dict[Any, Any]) -> dict[Any, Any]:
    """Return what any broker could tell of topics, unless none has: that is an error of the whole request."""
    errors = [value for value in found.values() if isinstance(value, ReplicatorError)]
    if errors and len(errors) == len(found) and all(isinstance(error, Unreachable) for error in errors):
        raise errors[0]
    return found
