"""Where a leader epoch ends is asked of whoever leads now: brokers that are cut off name an old leader for ever."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from replicator.model.fetches import EpochEnd
from replicator.model.partition import Partition
from replicator.wire.leader_epochs import LeaderEpochs, OldLeader
from tests.replicator.wire.fake_broker import TOPIC, Answer, FakeBroker, Leader, flow_of

pytestmark = pytest.mark.tier("default")  # brokers are asked again after a pause
AT = Partition(TOPIC, 0)
FENCED, UNKNOWN = 74, 75


class Member(Leader):
    """One of two: names as the leader itself, since `epoch`, and answers of its log, as Kafka does, only whoever knows
    that it leads since then."""

    def __init__(self, number: int, cluster: list[FakeBroker], epoch: int, end: int) -> None:
        super().__init__()
        self.number, self.cluster, self.epoch, self.end = number, cluster, epoch, end
        self.names_epoch, self.names = epoch, number

    def answer_metadata(self, request: Any) -> Answer:
        known = [{"node_id": n, "host": "127.0.0.1", "port": each.port} for n, each in enumerate(self.cluster)]
        return {**self.metadata(leader_id=self.names, leader_epoch=self.names_epoch), "brokers": known}

    def answer_offset_for_leader_epoch(self, request: Any) -> Answer:
        asked = request.topics[0].partitions[0]
        code = 0
        if asked.current_leader_epoch not in (-1, self.epoch):
            code = FENCED if asked.current_leader_epoch < self.epoch else UNKNOWN
        found = {"partition": 0, "error_code": code, "leader_epoch": min(asked.leader_epoch, self.epoch)}
        return {"topics": [{"topic": TOPIC, "partitions": [{**found, "end_offset": self.end}]}]}


@contextmanager
def asking(epochs: tuple[int, int], **settings: Any) -> Iterator[tuple[list[Member], LeaderEpochs]]:
    """The first of the two is asked first, and its log ends at 900."""
    cluster: list[FakeBroker] = []
    members = [
        Member(number, cluster, epoch, end) for number, epoch, end in zip((0, 1), epochs, (900, 4_990), strict=True)
    ]
    with FakeBroker(members[0]) as first, FakeBroker(members[1]) as second:
        cluster += [first, second]
        flow = flow_of(first, **settings)
        with closing(LeaderEpochs(flow, flow.source, threading.Event())) as asked:
            yield members, asked


def test_an_old_leader_that_names_itself_is_not_believed() -> None:
    with asking((4, 5)) as (_, epochs):
        assert epochs.end_of(AT, 5) == EpochEnd(0, 5, 4_990)


def test_a_leader_that_knows_a_newer_epoch_has_it_looked_up_elsewhere() -> None:
    """A broker that names it under the epoch before would answer so for ever."""
    with asking((5, 6)) as (members, epochs):
        members[0].names = 1
        assert epochs.end_of(AT, 5) == EpochEnd(0, 5, 4_990)
        assert sum(api == "offset_for_leader_epoch" for api, _, _ in members[0].cluster[1].asked) == 2


def test_a_cluster_of_old_leaders_alone_is_told() -> None:
    with (
        asking((4, 3), request_timeout_ms=1_000) as (_, epochs),
        pytest.raises(OldLeader, match=r"where leader epoch 5 of orders.0. ends: its leader is told with epoch [34]"),
    ):
        epochs.end_of(AT, 5)
