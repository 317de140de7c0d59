"""Fetch sessions: what is kept for how long, and what a client is told of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.api.fetch_sessions import EPOCH_MAX, Fetching, FetchSessions, SessionError, named
from embedded_broker.config.thresholds import DEFAULTS
from embedded_broker.runtime.fair_share import FairShare

VERSION = 12


@dataclass
class Data:
    partition: int
    fetch_offset: int = 0


@dataclass
class Named:
    topic: str
    partitions: list[Any]


@dataclass
class Request:
    session_id: int = 0
    session_epoch: int = 0
    topics: list[Named] = field(default_factory=list)
    forgotten_topics_data: list[Named] = field(default_factory=list)


def whole(count: int, epoch: int = 0, session_id: int = 0) -> Request:
    return Request(session_id, epoch, [Named("t", [Data(index) for index in range(count)])])


def answer(records: bytes = b"", high_watermark: int = 0, **more: Any) -> dict[str, Any]:
    return {"records": records, "high_watermark": high_watermark, "log_start_offset": 0, **more}


def begin(sessions: FetchSessions, request: Request, version: int, now_s: float) -> Fetching:
    partitions = asyncio.run(named(request, version, FairShare(1_000).request()))
    return sessions.begin(request, version, partitions, now_s)


def opened(sessions: FetchSessions, count: int, now_s: float = 0.0) -> int:
    request = whole(count)
    fetching = begin(sessions, request, VERSION, now_s)
    answers = [answer() for _ in fetching.asked]
    assert len(list(fetching.tell(answers))) == count
    return sessions.open(request, VERSION, fetching, answers, now_s)


def following(sessions: FetchSessions, session_id: int, *answers: dict[str, Any], epoch: int = 1) -> list[int]:
    """The next request, without changes: the partitions that the client is told of."""
    fetching = begin(sessions, Request(session_id, epoch), VERSION, 0.0)
    by_index = dict(enumerate(answers))
    told = fetching.tell([by_index[each.data.partition] | {"index": each.data.partition} for each in fetching.asked])
    return [each["index"] for _, each in told]


def refused(sessions: FetchSessions, request: Request, version: int = VERSION) -> ErrorCode:
    with pytest.raises(SessionError) as caught:
        begin(sessions, request, version, 0.0)
    return caught.value.error_code


def test_a_response_includes_only_changed_partitions_and_all_errors() -> None:
    sessions = FetchSessions()
    session_id = opened(sessions, 3)
    failed = answer(error_code=ErrorCode.offset_out_of_range)
    assert following(sessions, session_id, answer(), answer(), answer()) == []
    assert following(sessions, session_id, answer(), answer(high_watermark=4), failed, epoch=2) == [1, 2]
    assert following(sessions, session_id, answer(), answer(high_watermark=4), failed, epoch=3) == [2]
    assert following(sessions, session_id, answer(), answer(high_watermark=4), answer(), epoch=4) == [2]
    assert following(sessions, session_id, answer(), answer(high_watermark=4), answer(), epoch=5) == []


def test_partitions_with_data_move_to_the_end_of_the_session() -> None:
    sessions = FetchSessions()
    session_id = opened(sessions, 3)
    assert following(sessions, session_id, answer(b"x"), answer(), answer()) == [0]
    order = [each.data.partition for each in sessions.sessions[session_id].partitions.values()]
    assert order == [1, 2, 0]


def test_a_request_out_of_turn_is_refused() -> None:
    sessions = FetchSessions()
    session_id = opened(sessions, 1)
    assert refused(sessions, Request(session_id, 2)) is ErrorCode.invalid_fetch_session_epoch
    assert refused(sessions, Request(session_id + 1, 1)) is ErrorCode.fetch_session_id_not_found
    assert refused(sessions, Request(session_id, 1), 13) is ErrorCode.fetch_session_topic_id_error
    assert following(sessions, session_id, answer()) == []
    assert refused(sessions, Request(session_id, 1)) is ErrorCode.invalid_fetch_session_epoch


def test_the_session_epoch_wraps_around_to_one() -> None:
    sessions = FetchSessions()
    session_id = opened(sessions, 1)
    sessions.sessions[session_id].epoch = EPOCH_MAX
    assert following(sessions, session_id, answer(), epoch=EPOCH_MAX) == []
    assert following(sessions, session_id, answer(), epoch=1) == []


def test_changes_and_the_end_of_a_session() -> None:
    sessions = FetchSessions()
    session_id = opened(sessions, 2)
    change = Request(session_id, 1, [Named("t", [Data(1, 7), Data(2)])], [Named("t", [0])])
    asked = begin(sessions, change, VERSION, 0.0).asked
    assert [(each.data.partition, each.data.fetch_offset) for each in asked] == [(1, 7), (2, 0)]
    everything = Request(session_id, 2, [], [Named("t", [1, 2])])
    assert begin(sessions, everything, VERSION, 0.0).session is None
    assert not sessions.sessions
    for last in (0, -1):
        session_id = opened(sessions, 1)
        begin(sessions, whole(1, last, session_id), VERSION, 0.0)
        assert not sessions.sessions


def test_the_final_epoch_opens_none() -> None:
    sessions = FetchSessions()
    request = whole(1, -1)
    fetching = begin(sessions, request, VERSION, 0.0)
    assert sessions.open(request, VERSION, fetching, [answer()], 0.0) == 0


def test_only_idle_sessions_are_evicted() -> None:
    sessions = FetchSessions(slots_max=2)
    first, second = opened(sessions, 1, 0.0), opened(sessions, 1, 1.0)
    assert opened(sessions, 1, DEFAULTS.fetch_session_idle_s_min - 1) == 0
    begin(sessions, Request(first, 1), VERSION, 50.0)
    third = opened(sessions, 1, DEFAULTS.fetch_session_idle_s_min + 2)
    assert set(sessions.sessions) == {first, third}
    assert second not in sessions.sessions


def test_the_partitions_of_all_sessions_are_bounded() -> None:
    sessions = FetchSessions(partitions_max=5)
    session_id = opened(sessions, 3)
    assert opened(sessions, 3) == 0
    more = Request(session_id, 1, [Named("t", [Data(index) for index in range(6)])])
    assert refused(sessions, more) is ErrorCode.fetch_session_id_not_found
    assert not sessions.sessions
