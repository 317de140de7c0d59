"""Two brokers, of which the first is cut off from the controllers: it names itself as leader, under its old epoch, and
its logs never grow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from replicator.config import Cluster, Flow, Properties
from replicator.flow.newest_topics import newest_topics
from replicator.kafka.topic_questions import TopicQuestions
from replicator.model.partition import Partition
from replicator.wire.topics import AnyBrokerTopics
from tests.replicator.wire.fake_broker import FakeBroker, flow_of
from tests.replicator.wire.test_offsets import Broker, Logs


class CutOff:
    """The cluster, and a client that asks for the flow's own topics. A test says which broker it is connected to."""

    def __init__(self, at: Partition, brokers: list[FakeBroker], logs: list[Logs]) -> None:
        self.at, self.logs = at, logs
        flow = flow_of(brokers[0], request_timeout_ms=3_000)
        servers = ",".join(f"127.0.0.1:{broker.port}" for broker in brokers)
        cluster = Cluster(name="east", properties=Properties({"bootstrap.servers": servers}))
        self.flow: Flow = flow.model_copy(update={"source": cluster, "target": cluster})
        self.topics: TopicQuestions = newest_topics(self.flow, self.flow.target)
        self._brokers = brokers

    def connect_to(self, number: int) -> None:
        """Connect to this broker, which is asked next who leads."""
        assert isinstance(self.topics, AnyBrokerTopics)
        any_ = self.topics._brokers
        any_.close()
        any_._avoided = {other.address: float("inf") for n, other in enumerate(self._brokers) if n != number}
        any_.connection()
        any_._avoided = {}

    def expire(self) -> None:
        """Let the time pass after which another broker is asked."""
        assert isinstance(self.topics, AnyBrokerTopics)
        assert self.topics._brokers._kept_s == self.flow.limits.discovery_interval_ms / 2000
        self.topics._brokers._since_s = float("-inf")


@contextmanager
def cut_off(at: Partition) -> Iterator[CutOff]:
    """The old leader has epoch 7, and its log ends at 3; the new one has 8, and 5."""
    logs = [Logs(1, 1), Logs(1, 1)]
    for number, each in enumerate(logs):
        each.leaders, each.epochs, each.ends = {at: number}, {at: 7 + number}, {at: 3 + 2 * number}
        each.topic_errors[at.topic] = each.unstable = 0
    with ExitStack() as stack:
        brokers = [stack.enter_context(FakeBroker(Broker(number, each))) for number, each in enumerate(logs)]
        for each in logs:
            each.brokers = brokers
        made = CutOff(at, brokers, logs)
        stack.callback(made.topics.close)
        yield made
