"""Reads source partitions over real connections: does what `batches.fetcher` asks for. Used by `plane`.

A broker has one fetch under way, and the next one is sent as soon as that is answered, before its batches are written:
so the source is read ahead, within the bytes that a lane, and all lanes of the process, may hold.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from replicator.model.errors import ReplicatorError, Unsupported
from replicator.model.partition import Partition
from replicator.planes.batches.fetcher import BatchFetcher
from replicator.planes.batches.fetcher_terms import FetchedNews, FetcherSettings
from replicator.planes.batches.part_read import ToldBy, TopicLeaders
from replicator.planes.batches_io.brokers import DATA, Brokers
from replicator.planes.batches_io.budget import FetchBudget
from replicator.planes.batches_io.link import AnswerLate, AnswerTooLarge, BrokerLink, Pieces, framed
from replicator.planes.contract import ReadPlan
from replicator.planes.fetch_watch import FetchWatch
from replicator.wire import epoch_ends, fetch
from replicator.wire.any_broker import body_at
from replicator.wire.connection import ConnectionLost
from replicator.wire.fetch import FetchLimits
from replicator.wire.metadata_response import Metadata

LEADERS_AGE_S = 60.0
"""How old what is known of leaders may be. The Java client's metadata.max.age.ms is 300 s."""
_HEADER_BYTES = 5


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """`held_bytes_max`: what is fetched and not yet taken, besides one response of each broker. `answer_s`: how long a
    broker may take to answer, besides the time that it may wait for records."""

    fetcher: FetcherSettings
    limits: FetchLimits
    client_id: str
    held_bytes_max: int
    answer_s: float


class SourceReader:
    """Of one lane."""

    def __init__(self, settings: ReaderSettings, brokers: Brokers, budget: FetchBudget, fetches: FetchWatch) -> None:
        self._settings, self._brokers, self._budget, self._fetches = settings, brokers, budget, fetches
        self._fetcher = BatchFetcher(settings.fetcher)
        self._looking: set[str] = set()
        # The lanes of a process begin together, and aren't to ask together for ever.
        self._refresh_s = time.monotonic() + random.uniform(0.0, LEADERS_AGE_S)
        self._taken_bytes = 0  # by `take`, less those of `took`
        self._unsupported: Unsupported | None = None

    def seek(self, plans: Mapping[Partition, ReadPlan]) -> None:
        """Read exactly these partitions; what was fetched is forgotten."""
        self._fetcher.seek(plans)
        self._taken_bytes = 0
        self._hold()

    def check(self) -> None:
        """Raise Unsupported: a broker is too old to be read from, which no other answer changes."""
        if self._unsupported is not None:
            raise self._unsupported

    def stop(self, at: Partition) -> None:
        """Read a partition no further, until it is sought again."""
        self._fetcher.stop(at)

    def take(self) -> FetchedNews:
        """Return what is new; `took` says when bytes of it are held no more."""
        news = self._fetcher.take()
        self._taken_bytes += news.bytes
        return news

    def took(self, size: int) -> None:
        """Note that so many fetched bytes are held no more."""
        self._taken_bytes -= size
        self._hold()

    def _hold(self) -> int:
        """Note what is held, also of what wait for `take`: nobody calls that while acknowledgements are waited for."""
        held = self._taken_bytes + self._fetcher.news_bytes
        self._budget.hold(self, held)
        return held

    @property
    def under_way(self) -> bool:
        """Whether anything is being asked that may bring records which are there."""
        return self._fetcher.behind(time.monotonic())

    def wake_s(self, now_s: float) -> float:
        """Say in how many seconds there may be something to ask without an answer coming first."""
        wake_s = self._fetcher.wake_s(now_s)
        return 1.0 if wake_s is None else max(0.0, min(1.0, wake_s - now_s))

    def pump(self, now_s: float) -> None:
        """Ask what is to be asked now."""
        topics = self._fetcher.topics(now_s) - self._looking
        if topics:
            self._look_up(topics)
        if now_s >= self._refresh_s:
            self._refresh_s = now_s + LEADERS_AGE_S
            self._refresh(self._fetcher.led)
        full = self._hold() >= self._settings.held_bytes_max or not self._budget.allows(self)
        for broker in self._fetcher.brokers(now_s):
            link = self._brokers.link(broker, DATA)
            if link is None:
                self._fetcher.broker_lost(broker, str(self._brokers.last or "it isn't known where it is"), now_s)
            elif link.ready and now_s >= link.quiet_until_s and not link.expired(now_s):
                self._ask(broker, link, now_s, full=full)

    def _look_up(self, topics: frozenset[str]) -> None:
        self._looking |= topics

        def answered(found: Metadata, told: ToldBy) -> bool:
            self._looking.difference_update(topics)
            return self._fetcher.looked_up(_leaders(found), time.monotonic(), told)

        def lost(why: str) -> None:
            self._looking.difference_update(topics)
            self._fetcher.look_up_failed(why, time.monotonic())

        self._brokers.ask_topics(topics, answered, lost)

    def _refresh(self, topics: frozenset[str]) -> None:
        """Ask who leads what is read without a failure, each time another broker."""

        def answered(found: Metadata, _: ToldBy) -> bool:
            self._fetcher.leaders_told(_leaders(found))
            return False

        if topics:
            self._brokers.ask_topics(topics, answered, lambda why: None)

    def _ask(self, broker: int, link: BrokerLink, now_s: float, *, full: bool) -> None:
        settings = self._settings
        lost, until_s = partial(self._lost, broker), now_s + settings.answer_s * self._fetches.step.patience
        if questions := self._fetcher.next_check(broker, now_s):

            def checked(link: BrokerLink, data: bytes | bytearray) -> None:
                answers = epoch_ends.read(bytes(data), link.version(epoch_ends.API))
                self._fetcher.checked(broker, answers, time.monotonic())

            link.ask(
                lambda link, number: framed(
                    epoch_ends.request(settings.client_id, link.version(epoch_ends.API), questions), number
                ),
                checked,
                lost,
                until_s,
            )
        if full or (request := self._fetcher.next_fetch(broker, now_s)) is None:
            return

        def fetched(link: BrokerLink, data: bytes | bytearray) -> None:
            at, then_s = body_at(bytes(data[:_HEADER_BYTES])), time.monotonic()
            throttled_s = int.from_bytes(data[1:_HEADER_BYTES], "big") / 1000
            link.throttle(throttled_s, then_s)
            self._fetches.arrived()
            self._fetcher.fetched(broker, request.number, fetch.read(data, at, throttled_s), then_s)

        def write(link: BrokerLink, number: int) -> Pieces:
            version = link.version(fetch.API)
            if version < fetch.VERSIONS[0]:
                raise Unsupported(f"{link.where}: it doesn't read topics by id (Kafka 3.1 and later do)")
            limits = settings.limits if request.patient else settings.limits._replace(wait_ms=0)
            return framed(fetch.request(settings.client_id, version, request.ask, limits), number)

        def not_fetched(error: ReplicatorError) -> None:
            if isinstance(error, AnswerLate):
                self._fetches.late()
            elif isinstance(error, ConnectionLost):
                self._fetches.broke()
            elif isinstance(error, Unsupported) and not isinstance(error, AnswerTooLarge):
                self._unsupported = error
            lost(error)

        link.ask(write, fetched, not_fetched, until_s + settings.limits.wait_ms / 1000)

    def _lost(self, broker: int, error: ReplicatorError) -> None:
        if isinstance(error, AnswerTooLarge):
            self._fetcher.too_large(broker, str(error), time.monotonic())
        else:
            self._fetcher.broker_lost(broker, str(error), time.monotonic())

    def close(self) -> None:
        """Let go of what is held."""
        self._budget.hold(self, 0)


def _leaders(found: Metadata) -> dict[str, TopicLeaders]:
    return {each.name: TopicLeaders(each.error, bytes(each.topic_id), each.leaders) for each in found.topics}
