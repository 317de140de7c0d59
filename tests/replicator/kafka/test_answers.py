"""How long a lane waits for answers, and how much of that is left once it shall stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from replicator.kafka import answers
from replicator.kafka.answers import AnswerWait

NEVER: Future[Any] = Future()
LONG_S = 30.0


def took_s(act: Callable[[], None]) -> float:
    began_s = time.monotonic()
    act()
    return time.monotonic() - began_s


def test_answers_that_are_there_are_not_waited_for() -> None:
    done: Future[int] = Future()
    done.set_result(1)
    assert took_s(lambda: AnswerWait(threading.Event()).complete([done], LONG_S)) < 1


def test_an_answer_ends_the_wait() -> None:
    late: Future[int] = Future()
    threading.Timer(0.3, late.set_result, (1,)).start()
    assert 0.2 < took_s(lambda: AnswerWait(threading.Event()).complete([late], LONG_S)) < LONG_S / 2


@pytest.mark.parametrize("stopping", [False, True])
def test_a_question_is_waited_for_no_longer_than_it_may_take(stopping: bool) -> None:
    asked = threading.Event()
    if stopping:
        asked.set()
    assert took_s(lambda: AnswerWait(asked).complete([NEVER], 0.3)) < answers.STOPPING_S


@pytest.mark.tier("default")
def test_once_a_stop_is_asked_for_all_questions_share_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "STOPPING_S", 0.5)
    asked = threading.Event()
    waiting = AnswerWait(asked)
    threading.Timer(0.3, asked.set).start()

    def stop() -> None:
        for _ in range(40):
            waiting.complete([NEVER], LONG_S)

    assert 0.5 <= took_s(stop) < LONG_S / 2  # 20 s if each had a time of its own


def test_a_stop_leaves_time_for_a_cluster_that_answers() -> None:
    asked = threading.Event()
    asked.set()
    waiting = AnswerWait(asked)
    late: Future[int] = Future()
    threading.Timer(0.2, late.set_result, (1,)).start()
    waiting.complete([late], LONG_S)
    assert late.done()


def test_what_has_come_counts_though_the_time_is_over() -> None:
    """A long flush comes between a question and its answer, which nobody else takes from its socket."""
    asked: list[float] = []
    AnswerWait(threading.Event()).until(lambda slice_s: not asked.append(slice_s), -1.0)  # type: ignore[func-returns-value]
    assert asked == [0.0]
