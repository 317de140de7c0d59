"""Positions of a lane, whose group's coordinator is found by a broker that refuses to tell it for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from replicator.model.errors import NotAllowed, Unreachable
from replicator.model.partition import Partition
from replicator.planes.batches.answer_classes import TxnApi
from replicator.planes.batches_io.brokers import Brokers, BrokerSettings
from replicator.planes.batches_io.coordinators import Coordinators, TransactionTerms
from replicator.planes.batches_io.link import BrokerLink
from replicator.planes.batches_io.loop import LinkLoop
from replicator.planes.batches_io.position_reader import PositionReader
from replicator.wire.access import access
from tests.replicator.wire.fake_broker import TOPIC, Answer, FakeBroker, Leader, flow_of

pytestmark = pytest.mark.tier("default")  # over sockets
AT = Partition(TOPIC, 0)
LIMIT_S = 10.0
GROUP_DENIED, ID_DENIED = 30, 53


class Coordinator(Leader):
    """Of both keys. `refused`: the error code for each key that may not be looked up."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: dict[str, int] = {}

    def answer_find_coordinator(self, request: Any) -> Answer:
        if code := self.refused.get(request.key):
            return {"error_code": code, "node_id": -1, "host": "", "port": -1}
        assert self.broker is not None
        return {"error_code": 0, "node_id": 1, "host": self.host, "port": self.broker.port}

    def answer_offset_fetch(self, request: Any) -> Answer:
        found = {"partition_index": AT.partition, "committed_offset": -1, "metadata": "", "error_code": 0}
        return {"error_code": 0, "topics": [{"name": AT.topic, "partitions": [found]}]}


class Scene:
    """Reads positions; nothing is looked up or connected yet."""

    def __init__(self, stack: ExitStack) -> None:
        self.coordinator = Coordinator()
        broker = self.coordinator.broker = stack.enter_context(FakeBroker(self.coordinator))
        self.loop = LinkLoop()
        stack.callback(self.loop.close)
        flow = flow_of(broker)
        settings = BrokerSettings(flow.source, access(flow.source), "me", 1 << 20, 5.0)
        self.brokers = Brokers(settings, self.loop, lambda _: None)
        self.coordinators = Coordinators(TransactionTerms("id", "group", "me", 1_000), self.brokers)
        self.reader = PositionReader("west", "group", "me", self.coordinators, LIMIT_S, self.turn)

    def turn(self, timeout_s: float) -> None:
        self.loop.turn(min(timeout_s, 0.01))

    def until(self, done: Callable[[], bool]) -> None:
        for _ in range(int(LIMIT_S / 0.01)):
            if done():
                return
            self.turn(0.01)
        pytest.fail("it isn't done in time")

    def positions(self) -> Any:
        return self.reader.positions([AT])

    def link(self) -> BrokerLink:
        """The connection to the group's coordinator."""
        found = self.coordinators.ready_link(TxnApi.TXN_OFFSET_COMMIT)
        assert found is not None
        return found


@pytest.fixture
def scene() -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(stack)


def test_a_right_that_is_back_is_missing_no_more(scene: Scene) -> None:
    """Also whenever the coordinator isn't connected later: what was refused before says nothing of now."""
    scene.coordinator.refused["group"] = GROUP_DENIED
    for _ in range(2):
        with pytest.raises(NotAllowed, match="Read and Describe on group 'group'"):
            scene.positions()
    scene.coordinator.refused.clear()
    assert scene.positions() == {AT: None}
    scene.link().lose(Unreachable("away"))
    assert scene.positions() == {AT: None}


def test_a_refusal_of_the_transactional_id_is_none_of_the_group(scene: Scene) -> None:
    scene.coordinator.refused["id"] = ID_DENIED

    def denied() -> bool:
        assert scene.coordinators.ready_link(TxnApi.END_TXN) is None
        return "coordinator of 'id': TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in scene.coordinators.why

    scene.until(denied)
    assert scene.positions() == {AT: None}
