"""What a group has committed, as it stands: asked of its coordinator, over one connection that was made beforehand."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from replicator.model.errors import NotAllowed, Retriable
from replicator.model.partition import Committed, Partition
from replicator.wire.committed_offsets import CommittedOffsets
from tests.replicator.wire.fake_broker import TOPIC, Answer, FakeBroker, Leader, flow_of

pytestmark = pytest.mark.tier("default")  # a broker is asked again and again
GROUP, ASKED = "g", [Partition(TOPIC, 0), Partition(TOPIC, 1)]
NOT_COORDINATOR, LOADING, GROUP_DENIED, TOPIC_DENIED = 16, 14, 30, 29


class Coordinator(Leader):
    """Coordinates the group."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[int] = []
        self.partition_error = 0

    def answer_find_coordinator(self, request: Any) -> Answer:
        assert (request.key, request.key_type) == (GROUP, 0)
        return {"error_code": 0, "node_id": 1, "host": "127.0.0.1", "port": self.broker.port if self.broker else 0}

    def answer_offset_fetch(self, request: Any) -> Answer:
        assert not request.require_stable
        one = {"partition_index": 0, "committed_offset": 7, "metadata": "m\0", "error_code": 0}
        none = {"partition_index": 1, "committed_offset": -1, "metadata": "", "error_code": self.partition_error}
        code = self.errors.pop(0) if self.errors else 0
        return {"error_code": code, "topics": [{"name": TOPIC, "partitions": [one, none]}]}


@contextmanager
def asking(request_timeout_ms: int = 5_000) -> Iterator[tuple[Coordinator, CommittedOffsets]]:
    answers = Coordinator()
    with FakeBroker(answers) as broker:
        answers.broker = broker
        flow = flow_of(broker, request_timeout_ms=request_timeout_ms)
        with closing(CommittedOffsets(flow, flow.target, GROUP, threading.Event(), "test")) as offsets:
            yield answers, offsets


def test_offsets_and_their_metadata() -> None:
    with asking() as (_, offsets):
        assert offsets.read_committed_positions(ASKED) == {ASKED[0]: Committed(7, "m"), ASKED[1]: Committed(-1, "")}


def test_who_has_connected_beforehand_asks_one_question() -> None:
    with asking() as (answers, offsets):
        assert answers.broker is not None
        offsets.connect()
        before = len(answers.broker.asked)
        offsets.read_committed_positions(ASKED)
        assert [api for api, _, _ in answers.broker.asked[before:]] == ["offset_fetch"]


@pytest.mark.parametrize("error", [NOT_COORDINATOR, LOADING])
def test_a_coordinator_that_has_moved_is_looked_up_again(error: int) -> None:
    with asking() as (answers, offsets):
        offsets.connect()
        answers.errors = [error]
        assert offsets.read_committed_positions(ASKED)[ASKED[0]].offset == 7


def test_a_refusal_is_told() -> None:
    with asking() as (answers, offsets):
        answers.errors = [GROUP_DENIED]
        with pytest.raises(NotAllowed, match="Read and Describe on group 'g'"):
            offsets.read_committed_positions(ASKED)
        answers.partition_error = TOPIC_DENIED
        with pytest.raises(NotAllowed, match="Describe on topic"):
            offsets.read_committed_positions(ASKED)


def test_what_does_not_pass_in_time_is_retriable() -> None:
    with asking(request_timeout_ms=1_000) as (answers, offsets):
        answers.errors = [LOADING] * 100
        with pytest.raises(Retriable):
            offsets.read_committed_positions(ASKED)
