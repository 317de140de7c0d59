"""Lines of the client library: a few a minute for each cause, and how many were left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog

from replicator.client_lines import CAUSES_MAX, LINES_MAX, WINDOW_S, ClientLines, cause_of

REFUSED = (
    "cluster 'b': FAIL [eos.f.lane#producer-{n}] [thrd:b.example:9092/{n}]: b.example:9092/{n}: Connect to "
    "ipv4#10.0.0.{n}:9092 failed: Connection refused (after {n}ms in state CONNECT, {n} identical error(s) suppressed)"
)
DENIED = "cluster 'b': FAIL [x] [thrd:y]: b.example:9092/1: SASL authentication error: denied (after 5ms in state AUTH)"


class Written:
    """What a log has let through, at a time that is set."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.entries: list[dict[str, Any]] = []

    def note(self, logger: object, method: str, entry: Any) -> Any:
        self.entries.append(dict(entry))
        raise structlog.DropEvent

    def say(self, *lines: str) -> None:
        for line in lines:
            structlog.get_logger().bind(flow="f").info("client", detail=line)

    def taken(self) -> list[dict[str, Any]]:
        taken, self.entries = self.entries, []
        return taken


@pytest.fixture
def written() -> Iterator[Written]:
    before, it = structlog.get_config(), Written()
    structlog.configure(processors=[ClientLines(lambda: it.now_s), it.note])
    yield it
    structlog.configure(**before)


def test_a_cause_is_what_is_said_whoever_it_is_about() -> None:
    assert cause_of(REFUSED.format(n=1)) == cause_of(REFUSED.format(n=234))
    assert cause_of(REFUSED.format(n=1)) != cause_of(DENIED)
    assert cause_of(DENIED) == "cluster 'b': FAIL : : SASL authentication error: denied"
    assert cause_of("broker b1 is away") != cause_of("broker is away")


def test_of_each_cause_a_few_lines_are_written(written: Written) -> None:
    written.say(*(REFUSED.format(n=n) for n in range(500)), DENIED)
    assert [entry["detail"] for entry in written.taken()] == [
        *(REFUSED.format(n=n) for n in range(LINES_MAX)),
        DENIED,
    ]


def test_what_was_left_out_is_counted_with_the_last_of_it(written: Written) -> None:
    written.say(*(REFUSED.format(n=n) for n in range(500)), DENIED)
    written.taken()
    written.now_s += WINDOW_S - 1
    structlog.get_logger().info("summary")
    assert [entry["event"] for entry in written.taken()] == ["summary"], "the minute is not over"
    written.now_s += 1
    structlog.get_logger().info("summary")
    told, summary = written.taken()
    left_out = 500 - LINES_MAX
    assert told == {"event": "client", "flow": "f", "detail": REFUSED.format(n=499), "left_out": left_out - 1}
    assert summary == {"event": "summary"}
    structlog.get_logger().info("summary")
    assert len(written.taken()) == 1, "it is told once"


def test_the_next_minute_begins_anew(written: Written) -> None:
    for _ in range(3):
        written.say(*[DENIED] * 10)
        told = [entry.get("left_out", 0) for entry in written.taken()]
        assert sum(1 + left_out for left_out in told) in (LINES_MAX, LINES_MAX + 10 - LINES_MAX)
        written.now_s += WINDOW_S
    written.say(DENIED)
    assert [entry.get("left_out") for entry in written.taken()] == [10 - LINES_MAX - 1, None]


@pytest.mark.parametrize("make", [lambda n: f"cause {'x' * n}"])
def test_causes_without_end_are_bounded(written: Written, make: Callable[[int], str]) -> None:
    written.say(*(make(n) for n in range(CAUSES_MAX * 3)))
    assert len(written.taken()) == CAUSES_MAX + LINES_MAX
    written.now_s += WINDOW_S
    structlog.get_logger().info("summary")
    assert written.taken()[0]["left_out"] == CAUSES_MAX * 2 - LINES_MAX - 1


def test_nothing_else_is_left_out(written: Written) -> None:
    for _ in range(10):
        structlog.get_logger().info("incident", detail="the same")
    assert len(written.taken()) == 10
