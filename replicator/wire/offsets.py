"""Asks the leaders of partitions for offsets of their logs: implements `kafka.offset_questions.OffsetAnswers`.

Any living broker tells who leads what, unless one has told just now; then all leaders are asked at the same time. A
leader that doesn't answer, or isn't one any more, delays its own partitions alone: they are asked for again with fresh
metadata, while the others' answers are kept. Used by `topics`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from itertools import islice

from replicator.backoff import Backoff
from replicator.kafka.offset_questions import MAX_TIMESTAMP, ListedOffsets, OffsetAnswers, Wanted
from replicator.model.errors import ReplicatorError, Unreachable, Unsupported
from replicator.model.partition import Partition
from replicator.wire import list_offsets, metadata_response
from replicator.wire.any_broker import AnyBroker, Question, body_at
from replicator.wire.connection import Address, Connection
from replicator.wire.known_leaders import KnownLeaders
from replicator.wire.leaders import Leaders, TimedRequest, reason
from replicator.wire.metadata_request import metadata_request
from replicator.wire.offset_search import Led, OffsetSearch
from replicator.wire.response_limits import BadResponse

PARTITIONS_MAX = 5_000
"""In one request: its answer has 200 kB, and the broker is done with it in a moment."""
MOVING_S = 1.0
"""So long after the first metadata partitions whose leaders moved are asked for again where nobody wants to wait."""
_AGAIN_FIRST_S, _AGAIN_MAX_S = 0.05, 1.0
_BOTH_S = 0.02  # while leaders and a broker for metadata are waited for at the same time
_EACH_S, _EACH_SEARCHED_S = 0.0005, 0.005
"""What a broker may take longer for each partition; for a time it reads indexes and batches."""

Otherwise = Callable[[], OffsetAnswers]
AskedBrokers = tuple[AnyBroker, Leaders, KnownLeaders, str]
"""Any broker, leaders, who is known to lead, and the client's id."""


class OffsetListing:
    """One question. `otherwise` asks it with librdkafka, where a broker doesn't speak what is needed."""

    def __init__(self, asked: AskedBrokers, search: OffsetSearch, wanted: Sequence[Wanted]) -> None:
        self._brokers, self._leaders, known, self._client_id = asked
        self._search, self._wanted = search, wanted
        self._question: Question | None = None
        self._asked: dict[Future[list[bytes]], list[Led]] = {}
        self._again = Backoff(_AGAIN_FIRST_S, _AGAIN_MAX_S)
        self._not_before_s = 0.0
        self._described_s: float | None = None  # when metadata came first
        self._refused: ReplicatorError | None = None  # no broker will answer, now or later
        self.unsupported: Unsupported | None = None
        if (metadata := known.metadata(search.topics())) is not None:
            self._ask_leaders(self._search.assign(metadata, just_told=True))
        self._look_up()

    def poll(self, timeout_s: float, *, moving_s: float) -> bool:
        """Wait so long at most. Whether nothing more is to be waited for: all is known, or what isn't yet was asked for
        again for `moving_s`."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            self._take()
            if self._search.done or self._refused is not None or self._enough(moving_s):
                return True
            self._look_up()
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return False
            self._wait(left_s)

    def _enough(self, moving_s: float) -> bool:
        """Return whether all who were asked have answered or won't, and nothing is asked for again any more."""
        since_s = self._described_s
        return since_s is not None and not self._asked and time.monotonic() >= since_s + moving_s

    def _wait(self, left_s: float) -> None:
        """Wait until there is something to do, or a moment is over."""
        if self._question is not None:
            self._question.poll(min(left_s, _BOTH_S) if self._asked else left_s)
            return
        pause_s = max(0.0, self._not_before_s - time.monotonic()) if self._search.topics() else left_s
        if self._asked:
            wait(self._asked, timeout=min(left_s, pause_s), return_when=FIRST_COMPLETED)
        else:
            time.sleep(min(left_s, pause_s))

    def _look_up(self) -> None:
        """Ask who leads those that aren't being asked for: once more of another broker, as the first may know less."""
        if self._question is None and time.monotonic() >= self._not_before_s and (names := self._search.topics()):
            if self._described_s is not None:
                self._brokers.another()
            self._question = self._brokers.ask(
                lambda connection: metadata_request(connection, self._client_id, sorted(names))
            )

    def _take(self) -> None:
        """Take what has come meanwhile."""
        for future in [future for future in self._asked if future.done()]:
            self._answered(future, self._asked.pop(future))
        question = self._question
        if question is not None and (question.answer is not None or question.failed is not None):
            self._question = None
            self._described(question)

    def _described(self, question: Question) -> None:
        self._not_before_s = time.monotonic() + self._again.next_s()
        self._refuse(question.failed)
        if question.answer is None or question.connection is None:
            return
        connection = question.connection
        try:
            at = body_at(question.answer, connection)
            version = connection.version("metadata", metadata_response.VERSIONS[1])
            metadata = metadata_response.read(question.answer, at, version, leaders=True)
        except BadResponse as bad:
            self._brokers.lost(connection, Unreachable(f"{connection.where}: answers with {bad}"))
            return
        self._brokers.learn(list(metadata.brokers.values()))
        if self._described_s is None:
            self._described_s = time.monotonic()
        self._ask_leaders(self._search.assign(metadata))

    def _ask_leaders(self, by_address: Mapping[Address, Led]) -> None:
        for address, led in by_address.items():
            items = iter(led.items())
            chunks = list(iter(lambda items=items: dict(islice(items, PARTITIONS_MAX)), {}))  # type: ignore[misc]
            requests = [self._request(chunk, wanted) for chunk in chunks for wanted in self._wanted]
            self._asked[self._leaders.ask(address, requests)] = chunks

    def _request(self, led: Led, wanted: Wanted) -> TimedRequest:
        lowest, highest = list_offsets.VERSIONS

        def write(connection: Connection) -> bytes:
            version = connection.version(list_offsets.API, highest)
            needed = list_offsets.SINCE.get(wanted.timestamp, lowest)
            if version < needed:
                raise Unsupported(f"{connection.where}: it speaks {list_offsets.API} up to version {version}")
            by_topic = dict[str, list[tuple[int, int]]]()
            for at, epoch in led.items():
                by_topic.setdefault(at.topic, []).append((at.partition, epoch))
            client_id, timestamp = self._client_id, wanted.timestamp
            return list_offsets.request(client_id, version, by_topic, timestamp, stable=wanted.stable)

        searched = wanted.timestamp >= 0 or wanted.timestamp == MAX_TIMESTAMP.timestamp
        return write, len(led) * (_EACH_SEARCHED_S if searched else _EACH_S)

    def _answered(self, future: Future[list[bytes]], chunks: list[Led]) -> None:
        error = reason(future)
        if isinstance(error, Unsupported):
            self._refuse(error)
        for number, led in enumerate(chunks):
            if error is None:
                at = number * len(self._wanted)
                try:
                    answers = [
                        list_offsets.read(data, body_at(data)) for data in future.result()[at : at + len(self._wanted)]
                    ]
                except BadResponse as bad:
                    error = Unreachable(f"its leader answers with {bad}")
                else:
                    self._search.answered(led, answers)
            if error is not None:
                self._search.unanswered(led, error)
        if error is not None and not self._asked:
            self._leaders.unanswered()

    def _refuse(self, error: ReplicatorError | None) -> None:
        if isinstance(error, Unsupported):
            self.unsupported = error
        self._refused = error or self._refused

    def values(self) -> Sequence[ListedOffsets]:
        """Return what is known by now."""
        undescribed = self._brokers.last if self._described_s is None else None
        return self._search.results(self._refused or undescribed)


class LeaderAnswers:
    """Implements `OffsetAnswers` over an `OffsetListing`, or librdkafka where that isn't supported."""

    def __init__(self, listing: OffsetListing, otherwise: Otherwise, *, patient: bool) -> None:
        """`patient`: what is only a matter of time is asked for again as long as somebody waits, not for a moment."""
        self._listing, self._otherwise = listing, otherwise
        self._moving_s = float("inf") if patient else MOVING_S
        self._instead: OffsetAnswers | None = None

    def poll(self, timeout_s: float) -> bool:
        """See `OffsetAnswers`."""
        deadline_s = time.monotonic() + timeout_s
        if self._instead is None:
            if not self._listing.poll(timeout_s, moving_s=self._moving_s):
                return False
            if self._listing.unsupported is None:
                return True
            self._instead = self._otherwise()
        return self._instead.poll(max(0.0, deadline_s - time.monotonic()))

    def values(self) -> Sequence[ListedOffsets]:
        """See `OffsetAnswers`."""
        return self._listing.values() if self._instead is None else self._instead.values()


def listing(
    cluster: str,
    asked: AskedBrokers,
    partitions: Collection[Partition],
    wanted: Sequence[Wanted],
    otherwise: Otherwise,
    *,
    patient: bool,
) -> OffsetAnswers:
    """Ask a question of the leaders of `partitions`."""
    search = OffsetSearch(cluster, partitions, wanted, patient=patient)
    return LeaderAnswers(OffsetListing(asked, search, wanted), otherwise, patient=patient)
