"""Fetch sessions: a client names its partitions once, and then only changes (KIP-227). Used by the handler of Fetch.

Source: org.apache.kafka FetchSession, FetchSessionCache. A session can be used with its id on any connection.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from embedded_broker.config.thresholds import DEFAULTS
from embedded_broker.runtime.fair_share import Share

INITIAL, FINAL = 0, -1
"""Epochs of whole requests: the first wants a session, the last none."""
EPOCH_MAX = 2**31 - 1
TOPIC_IDS_SINCE = 13
PARTITIONS_MAX = 200_000
"""Of all sessions together; they need not exist, so nothing else bounds them."""

TopicKey = str | UUID
Answers = list[dict[str, Any]]


class SessionError(Exception):
    """The request must be sent again, whole; `error_code` says why."""

    def __init__(self, error_code: ErrorCode) -> None:
        super().__init__(error_code.name)
        self.error_code = error_code


@dataclass(slots=True)
class Asked:
    """One partition that is fetched: its topic by name or id, and the request's own entry for it."""

    topic: TopicKey
    data: Any
    # As in the last response that included the partition; -1 before, and after an error, so that it is sent again.
    high_watermark: int = -1
    log_start: int = -1

    def is_news(self, answer: Mapping[str, Any]) -> bool:
        """Return whether the response must include the partition; if so, note what it contains."""
        failed = answer.get("error_code", ErrorCode.none) is not ErrorCode.none
        moved = (self.high_watermark, self.log_start) != (answer["high_watermark"], answer["log_start_offset"])
        self.high_watermark = -1 if failed else answer["high_watermark"]
        self.log_start = answer["log_start_offset"]
        return bool(answer["records"]) or moved or failed


Partitions = dict[tuple[TopicKey, int], Asked]


@dataclass(slots=True)
class FetchSession:
    """What a client has asked for so far."""

    session_id: int
    by_id: bool
    # In the order in which they are read: those that had data go to the end, so that all have their turn.
    partitions: Partitions
    used_s: float
    # Invariant: that of the next request; a request with any other one is late, lost or doubled.
    epoch: int = INITIAL + 1


@dataclass(slots=True)
class Fetching:
    """One Fetch request: the partitions to read, and the choice of those that the response includes."""

    asked: list[Asked]
    session: FetchSession | None = None

    def tell(self, answers: Answers) -> Iterator[tuple[TopicKey, dict[str, Any]]]:
        """Yield those answers, in the order of `asked`, that the client needs, with their topics."""
        for each, answer in zip(self.asked, answers, strict=True):
            if self.session is None:
                yield each.topic, answer
            elif each.is_news(answer):
                self._to_the_end(self.session.partitions, each, answer)
                yield each.topic, answer

    @staticmethod
    def _to_the_end(partitions: Partitions, each: Asked, answer: Mapping[str, Any]) -> None:
        key = each.topic, each.data.partition
        if answer["records"] and partitions.get(key) is each:
            partitions[key] = partitions.pop(key)


@dataclass(slots=True)
class FetchSessions:
    """All sessions, the one used longest ago first."""

    new_uuid: Callable[[], UUID] = uuid.uuid4
    slots_max: int = DEFAULTS.fetch_sessions_max
    partitions_max: int = PARTITIONS_MAX
    idle_s_min: float = DEFAULTS.fetch_session_idle_s_min
    sessions: dict[int, FetchSession] = field(default_factory=dict)

    def begin(self, request: Any, version: int, named: list[Asked], now_s: float) -> Fetching:
        """Return what a request is for that names these partitions. Raises SessionError."""
        by_id = version >= TOPIC_IDS_SINCE
        epoch = getattr(request, "session_epoch", FINAL)
        if epoch in (INITIAL, FINAL):
            self.sessions.pop(getattr(request, "session_id", 0), None)
            return Fetching(named)
        session = self.sessions.get(request.session_id)
        if session is None:
            raise SessionError(ErrorCode.fetch_session_id_not_found)
        if session.epoch != epoch:
            raise SessionError(ErrorCode.invalid_fetch_session_epoch)
        if session.by_id != by_id:
            raise SessionError(ErrorCode.fetch_session_topic_id_error)
        self._update(session, named, request.forgotten_topics_data)
        if not session.partitions:
            del self.sessions[session.session_id]
            return Fetching([])
        if named and not self._fits(0):
            del self.sessions[session.session_id]
            raise SessionError(ErrorCode.fetch_session_id_not_found)
        session.epoch = epoch + 1 if epoch < EPOCH_MAX else INITIAL + 1
        session.used_s = now_s
        self.sessions[session.session_id] = self.sessions.pop(session.session_id)
        return Fetching(list(session.partitions.values()), session)

    @staticmethod
    def _update(session: FetchSession, named: list[Asked], forgotten: Any) -> None:
        for each in named:
            known = session.partitions.setdefault((each.topic, each.data.partition), each)
            known.data = each.data
        for topic in forgotten:
            for index in topic.partitions:
                session.partitions.pop((topic.topic_id if session.by_id else topic.topic, index), None)

    def open(self, request: Any, version: int, fetching: Fetching, answers: Answers, now_s: float) -> int:
        """Open a new session and return its id, if the request wants one and it fits, after all of it was answered;
        else 0.
        """
        if getattr(request, "session_epoch", FINAL) != INITIAL or not self._evict_for(len(fetching.asked), now_s):
            return 0
        while (session_id := self.new_uuid().int & EPOCH_MAX) in self.sessions or not session_id:
            pass
        partitions = {(each.topic, each.data.partition): each for each in fetching.asked}
        for each, answer in zip(fetching.asked, answers, strict=True):
            each.high_watermark, each.log_start = answer["high_watermark"], answer["log_start_offset"]
        self.sessions[session_id] = FetchSession(session_id, version >= TOPIC_IDS_SINCE, partitions, now_s)
        return session_id

    def _fits(self, more: int) -> bool:
        return more + sum(len(session.partitions) for session in self.sessions.values()) <= self.partitions_max

    def _evict_for(self, more: int, now_s: float) -> bool:
        while len(self.sessions) >= self.slots_max or not self._fits(more):
            oldest = next(iter(self.sessions.values()), None)
            if oldest is None or now_s - oldest.used_s < self.idle_s_min:
                return False
            del self.sessions[oldest.session_id]
        return True


async def named(request: Any, version: int, share: Share) -> list[Asked]:
    """Return the partitions that a request names; of one that is named again the last counts, as in Kafka's
    FetchRequest.
    """
    by_id, found = version >= TOPIC_IDS_SINCE, Partitions()
    for topic in request.topics:
        key = topic.topic_id if by_id else topic.topic
        for data in topic.partitions:
            found[key, data.partition] = Asked(key, data)
            await share.spent(1)
    return list(found.values())
