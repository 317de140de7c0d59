"""A missing right: the text names right, resource and cluster, and the partitions that it stops are told."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from integration_tests.harness import acls
from integration_tests.harness.broker import Kind
from integration_tests.harness.secured import Secured, secured_broker
from integration_tests.planes.conftest import SOON_S, Driven, made_plane, make_flow, only_records
from replicator.config import Flow
from replicator.flow.topics import questions_of
from replicator.model import names
from replicator.model.errors import NotAllowed, ReplicatorError, UnknownOutcome
from replicator.model.partition import Committed, Partition

TIMEOUT_S = 60.0
LOGIN = ("security.protocol", "sasl.mechanism", "sasl.username", "sasl.password")


@pytest.fixture(scope="module")
def secured(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A protected broker."""
    with secured_broker(kind, tmp_path_factory.mktemp("secured")) as broker:
        yield broker


class Scene:
    """A flow of alice's from two topics to two copies on one broker, with three records in each source partition."""

    def __init__(self, broker: Secured, engine: str) -> None:
        self._broker, self._engine = broker, engine
        config = broker.config("alice")
        login = {name: config[name] for name in LOGIN}
        self.flow: Flow = make_flow(config["bootstrap.servers"], config["bootstrap.servers"], login=login)
        self.first, self.second = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("first", "second"))
        topics = [NewTopic(name, 2, 1) for one in (self.first, self.second) for name in (one, f"{one}.copy")]
        for future in broker.admin.create_topics(topics, operation_timeout=TIMEOUT_S).values():
            future.result(TIMEOUT_S)
        writer = Producer(broker.config("admin"))
        for name in (self.first, self.second):
            for number in range(6):
                writer.produce(name, b"v", b"k", number % 2)
        assert writer.flush(TIMEOUT_S) == 0
        lane = names.lane_id(self.flow.name, 1, 0)
        self.allow(ResourceType.TRANSACTIONAL_ID, lane, AclOperation.WRITE, AclOperation.DESCRIBE)
        self.allow(ResourceType.GROUP, names.position_group(self.flow.name), AclOperation.READ)

    def allow(self, kind: ResourceType, name: str, *operations: AclOperation) -> None:
        """Give alice rights; returns once the broker acts by them."""
        literal, allowed = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
        bindings = [AclBinding(kind, name, literal, "User:alice", "*", each, allowed) for each in operations]
        acls.create(self._broker.admin, *bindings)

    def all_but(self, topic: str, *left: AclOperation) -> None:
        """Everything that the flow needs, but of `topic` only `left`."""
        needs = {
            self.first: (AclOperation.READ,),
            self.second: (AclOperation.READ,),
            f"{self.first}.copy": (AclOperation.READ, AclOperation.WRITE),
            f"{self.second}.copy": (AclOperation.READ, AclOperation.WRITE),
        }
        for name, operations in {**needs, topic: left}.items():
            if operations:
                self.allow(ResourceType.TOPIC, name, *operations)

    def plane(self) -> Driven:
        """A plane of the flow, fenced."""
        routes = {
            Partition(name, number): Partition(f"{name}.copy", number)
            for name in (self.first, self.second)
            for number in range(2)
        }
        said: list[str] = []
        plane = made_plane(self._engine, self.flow, names.lane_id(self.flow.name, 1, 0), routes, said)
        plane.fence()
        return Driven(plane, self.flow, routes, said, [])


@pytest.fixture
def scene(secured: Secured, engine: str) -> Scene:
    return Scene(secured, engine)


def denied(call: Callable[[], object]) -> NotAllowed:
    began = time.monotonic()
    with pytest.raises(NotAllowed) as caught:
        call()
    assert time.monotonic() - began < SOON_S
    return caught.value


def partitions(topic: str) -> frozenset[Partition]:
    return frozenset(Partition(topic, number) for number in range(2))


def test_write_on_a_target_topic(scene: Scene) -> None:
    scene.all_but(f"{scene.second}.copy", AclOperation.DESCRIBE)
    driven = scene.plane()
    with closing(driven.plane):
        driven.seek()
        error = denied(lambda: driven.read_and_flush(12))
        assert str(error).startswith("cluster 'west': cannot write records: the user needs Write on topic ")
        assert f"'{scene.second}.copy'" in str(error)
        assert f"'{scene.first}.copy'" not in str(error)
        assert error.partitions == partitions(scene.second)
        try:  # whether librdkafka may abort it depends on what the coordinator has seen of the transaction
            driven.plane.abort()
        except UnknownOutcome as error_of_abort:
            assert "INVALID_TXN_STATE" in str(error_of_abort)  # noqa: PT017
            return
        for at in partitions(scene.second):
            del driven.routes[at]  # type: ignore[attr-defined]
        driven.seek()
        copied = driven.read_and_flush(6)
        assert {at: done.next_offset for at, done in copied.items()} == dict.fromkeys(partitions(scene.first), 3)


def test_write_and_describe_on_a_target_topic(scene: Scene) -> None:
    """Only delivery reports tell of it: the transaction goes on."""
    scene.all_but(f"{scene.second}.copy")
    driven = scene.plane()
    with closing(driven.plane):
        driven.seek()
        error = denied(lambda: driven.read_and_flush(12))
        assert f"the user needs Write on topic '{scene.second}.copy'" in str(error)
        assert error.partitions
        assert error.partitions <= partitions(scene.second)


def test_read_on_a_target_topic(scene: Scene) -> None:
    scene.all_but(f"{scene.second}.copy", AclOperation.WRITE)
    driven = scene.plane()
    with closing(driven.plane):
        positions = {at: Committed(1, "m") for name in (scene.first, scene.second) for at in partitions(f"{name}.copy")}
        error = denied(lambda: driven.plane.commit(positions))
        assert "cluster 'west': cannot commit positions: the user needs Read on topic" in str(error)
        assert partitions(scene.second) <= error.partitions


def test_read_on_a_source_topic(scene: Scene) -> None:
    scene.all_but(scene.second, AclOperation.DESCRIBE)
    driven = scene.plane()
    with closing(driven.plane):
        driven.seek()
        driven.read(1_000_000, until=lambda result: len(driven.failed) == 2)
        assert driven.failed.keys() == partitions(scene.second)
        for at, error in driven.failed.items():
            assert str(error).startswith(f"cluster 'east': cannot read {at}: the user needs Read on topic ")
            assert isinstance(error, NotAllowed)
            assert error.partitions == {at}
        assert "None" not in "".join(driven.said)


def test_read_and_describe_on_a_source_topic(scene: Scene) -> None:
    """The cluster does not even say that there is such a topic, and librdkafka is silent for 30 s."""
    scene.all_but(scene.second)
    driven = scene.plane()
    with closing(driven.plane):
        driven.seek()
        driven.read(6)
        assert driven.failed.keys() == partitions(scene.second)
        assert all(isinstance(error, ReplicatorError) for error in driven.failed.values())


def test_the_transactional_id(secured: Secured, engine: str) -> None:
    config = secured.config("bob")
    login = {name: config[name] for name in LOGIN}
    flow = make_flow(config["bootstrap.servers"], config["bootstrap.servers"], login=login)
    plane = made_plane(engine, flow, "mine", {}, [])
    with closing(plane):
        error = denied(plane.fence)
    assert "the user needs Write and Describe on transactional id 'mine'" in str(error)


@only_records("it has nothing to do with the plane")
def test_a_cluster_tells_what_is_missing_on_each_side(scene: Scene) -> None:
    scene.all_but(scene.second, AclOperation.DESCRIBE)
    topics = [scene.first, scene.second, f"{scene.first}.copy", f"{scene.second}.copy", "not-there"]
    with closing(questions_of(scene.flow, "source")) as cluster:
        found = cluster.missing_rights(topics[:2])
        assert found.keys() == {scene.second}
        assert found[scene.second].text == f"cluster 'east': the user needs Read on topic '{scene.second}'"
        ids = cluster.topic_ids([scene.first, "not-there"]).wait()
        assert isinstance(ids[scene.first], str)
        assert isinstance(ids["not-there"], NotAllowed)
    with closing(questions_of(scene.flow, "target")) as cluster:
        assert cluster.missing_rights(topics[2:4]) == {}
        lacking = cluster.missing_rights([scene.first])[scene.first]
        assert lacking.operations == {"Write"}
        assert lacking.text == f"cluster 'west': the user needs Write on topic '{scene.first}'"
