"""A fetch session: what is named again, and what ends it."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from replicator.model.fetches import FetchAnswer, FetchAsk, FetchedPart, FetchFrom, FetchKey
from replicator.planes.batches.fetch_session import FetchSessionHandler

A, B, C = [(b"t" * 16, number) for number in range(3)]


def start(offset: int) -> FetchFrom:
    return FetchFrom(offset, 5, 100)


def answer(*keys: FetchKey, session_id: int = 9, code: int = 0) -> FetchAnswer:
    return FetchAnswer(code, session_id, tuple(FetchedPart(key, 0) for key in keys))


def begun() -> FetchSessionHandler:
    session = FetchSessionHandler()
    assert session.next_request({A: start(0), B: start(0)}) == FetchAsk(0, 0, ((A, start(0)), (B, start(0))))
    assert session.answered(answer(A, B))
    return session


def test_only_what_changes_is_named_again() -> None:
    session = begun()
    assert session.next_request({A: start(7), B: start(0)}) == FetchAsk(9, 1, ((A, start(7)),))
    assert session.answered(answer())
    assert session.next_request({A: start(7), C: start(0)}) == FetchAsk(9, 2, ((C, start(0)),), (B,))
    assert session.answered(answer(C))
    assert session.next_request({A: start(7), C: start(0)}) == FetchAsk(9, 3)


def test_after_the_highest_epoch_comes_the_first() -> None:
    session = begun()
    session._epoch = 2**31 - 1
    assert session.next_request({A: start(0), B: start(0)}).session_epoch == 2**31 - 1
    assert session.answered(answer())
    assert session.next_request({A: start(0), B: start(0)}).session_epoch == 1


@pytest.mark.parametrize(
    ("bad", "session_id"),
    [
        (answer(code=ErrorCode.fetch_session_id_not_found), 0),
        (answer(code=ErrorCode.invalid_fetch_session_epoch), 9),
        (answer(code=ErrorCode.fetch_session_topic_id_error), 9),
        (answer(code=ErrorCode.unknown_server_error), 9),
        (answer(C), 9),
        (answer(A, A), 9),
    ],
)
def test_what_leaves_doubt_ends_the_session(bad: FetchAnswer, session_id: int) -> None:
    session = begun()
    session.next_request({A: start(7), B: start(0)})
    assert not session.answered(bad)
    assert session.next_request({A: start(7)}) == FetchAsk(session_id, 0, ((A, start(7)),))


def test_a_lost_answer_ends_the_session() -> None:
    session = begun()
    session.next_request({A: start(7), B: start(0)})
    session.lost()
    assert session.next_request({A: start(7)}) == FetchAsk(9, 0, ((A, start(7)),))


def test_a_broker_without_room_is_asked_for_everything_each_time() -> None:
    session = FetchSessionHandler()
    session.next_request({A: start(0)})
    assert session.answered(answer(A, session_id=0))
    assert session.next_request({A: start(1)}) == FetchAsk(0, 0, ((A, start(1)),))
    session = begun()
    session.next_request({A: start(7), B: start(0)})
    assert session.answered(answer(session_id=0))  # it was ended there
    assert session.next_request({B: start(0)}) == FetchAsk(0, 0, ((B, start(0)),))


def test_a_whole_request_is_answered_for_all_partitions() -> None:
    session = FetchSessionHandler()
    session.next_request({A: start(0), B: start(0)})
    assert not session.answered(answer(A))
    session.next_request({A: start(0), B: start(0)})
    assert session.answered(answer(A, B))
