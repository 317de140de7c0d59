"""The control plane, plan and status on a real Kafka with passwords and ACLs."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from integration_tests.harness.authorizing_kafka import Kafka, World, begun, running
from replicator.config import Flow
from replicator.flow.listing import Listing
from replicator.flow.setup import Setup
from replicator.flow.topic_rules import ListedTopic
from replicator.flow.topics import ControlPlane
from replicator.model import names
from replicator.model.errors import Incident, NotAllowed, Unreachable
from replicator.model.route import Route
from replicator.offset_map.topic import CONFIGS
from replicator.state.claims import Claim

pytestmark = [pytest.mark.kafka, pytest.mark.tier(kafka="full")]


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with running() as broker:
        yield broker


@pytest.fixture
def world(kafka: Kafka, tmp_path: Path) -> World:
    return World(kafka, tmp_path / "flows.yaml", f"x{uuid.uuid4().hex[:8]}")


def reasons(setup: Setup, listing: Listing) -> dict[str, str]:
    """What keeps each partition back; nothing for those that are copied."""
    routes = setup.routes(listing).routes
    return {str(at): route.stopped.name if route.stopped else route.waiting for at, route in routes.items()}


def claim_all(world: World, flow: Flow, routes: Iterable[Route]) -> None:
    """What a lane writes into the claims topic."""
    producer = Producer({"bootstrap.servers": world.kafka.plain, "log_level": 0})
    for route in routes:
        ids = route.source_topic_id, route.target_topic_id
        key, value = Claim(route.target, route.source, *ids, 0, 0, 1, "me", 1).encode()
        producer.produce(names.claims_topic(flow.name), value, key, 0)
    assert producer.flush(30) == 0


def test_target_topics_get_partitions_and_configs_of_their_source(world: World) -> None:
    flow = world.flow()
    one, two = f"{world.prefix}-1", f"{world.prefix}-2"
    world.kafka.create(one, 3, cleanup_policy="compact", retention_ms="12345", min_insync_replicas="1", flush_ms="7")
    world.kafka.create(two, 1, max_message_bytes="77777")
    with begun(flow) as (setup, plane):
        listing = setup.begin()
        assert listing.partitions == {one: 3, two: 1}
        routing = setup.routes(listing)
        assert sorted(routing.routes) == [(one, 0), (one, 1), (one, 2), (two, 0)]
        assert routing.sizes(routing.routes.values()) == [77777, 1048588]
        targets = plane.list_target(listing.topics, configs=True)
        assert targets[f"a.{one}"].partitions == 3
        configs = targets[f"a.{one}"].configs
        assert (configs["cleanup.policy"], configs["retention.ms"]) == ("compact", "12345")
        assert configs["flush.ms"] != "7"
        ids = {
            (route.source_topic_id, route.target_topic_id) for at, route in routing.routes.items() if at.topic == one
        }
        assert ids == {(listing.topics[one].topic_id, targets[f"a.{one}"].topic_id)}
        assert "" not in next(iter(ids))
        assert setup.routes(listing) == routing, "nothing is left to do"


def test_only_the_flows_own_topics_grow(world: World) -> None:
    flow = world.flow()
    topic = f"{world.prefix}-1"
    world.kafka.create(topic, 3)
    world.kafka.create(f"a.{topic}", 1)
    with begun(flow) as (setup, _):
        listing = setup.begin()
        assert set(reasons(setup, listing).values()) == {"target_topic_too_small"}
        claim_all(world, flow, [route for route in setup.routes(listing).routes.values() if route.target_topic_id])
        assert set(reasons(setup, listing).values()) == {""}
        assert world.mine()[f"a.{topic}"] == 3


def test_a_topic_made_by_somebody_else_meanwhile_is_judged_as_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = world.flow()
    topic = f"{world.prefix}-1"
    world.kafka.create(topic, 3)
    world.kafka.create(f"a.{topic}", 1)
    with begun(flow) as (setup, plane):
        listing = setup.begin()
        look_again = plane.listed_target
        answers = iter([{f"a.{topic}": ListedTopic()}])
        monkeypatch.setattr(plane, "listed_target", lambda wanted: next(answers, None) or look_again(wanted))
        assert set(reasons(setup, listing).values()) == {"target_topic_too_small"}


def test_internal_topics_are_made_once_and_the_claims_topic_grows(world: World) -> None:
    control, claims = names.control_topic(world.prefix), names.claims_topic(world.prefix)
    offsets = names.offsets_topic(world.prefix)
    for lanes, partitions in ((2, 2), (1, 2), (3, 3)):
        with begun(world.flow(f"lanes: {lanes}")) as (setup, plane):
            setup.begin()
            assert world.mine() == {control: 1, claims: partitions, offsets: 16}
    with ControlPlane(world.flow()) as plane:
        found = plane.target.topics([control, claims, offsets], configs=True)
        assert {found[name].configs["cleanup.policy"] for name in (control, claims)} == {"compact"}
        assert found[offsets].configs.items() >= CONFIGS.items()


def test_a_control_topic_made_by_somebody_else_is_refused(world: World) -> None:
    flow = world.flow()
    world.kafka.create(names.control_topic(flow.name), 2)
    with begun(flow) as (setup, _), pytest.raises(Incident, match="control_topic_unfit"):
        setup.begin()


@pytest.mark.parametrize("emptied", [False, True])
def test_a_control_topic_that_is_lost_is_not_made_again(world: World, emptied: bool) -> None:
    flow = world.flow()
    topic = f"{world.prefix}-1"
    world.kafka.create(topic, 1)
    with begun(flow) as (setup, _):
        claim_all(world, flow, setup.routes(setup.begin()).routes.values())
    control = names.control_topic(flow.name)
    if not emptied:
        world.kafka.delete(control)
    with begun(flow) as (setup, _), pytest.raises(Incident, match="control_topic_lost"):
        setup.begin()
    assert (control in world.mine()) == emptied


def test_a_target_topic_that_was_deleted_is_not_made_again(world: World) -> None:
    flow = world.flow()
    topic = f"{world.prefix}-1"
    world.kafka.create(topic, 1)
    with begun(flow) as (setup, _):
        listing = setup.begin()
        claim_all(world, flow, setup.routes(listing).routes.values())
        world.kafka.delete(f"a.{topic}")
        assert reasons(setup, listing) == {f"{topic}[0]": "target_topic_deleted"}
        assert f"a.{topic}" not in world.mine()


def test_a_target_that_would_change_timestamps_is_refused_before_the_first_record(world: World) -> None:
    """One with a bound is not: whether it refuses a record is seen when that record comes."""
    one, two = f"{world.prefix}-1", f"{world.prefix}-2"
    world.kafka.create(one, 1)
    world.kafka.create(two, 1)
    world.kafka.create(f"a.{one}", 1, message_timestamp_type="LogAppendTime")
    world.kafka.create(f"a.{two}", 1, message_timestamp_before_max_ms="1000")
    with begun(world.flow()) as (setup, _):
        assert reasons(setup, setup.begin()) == {f"{one}[0]": "target_rewrites_timestamps", f"{two}[0]": ""}


def test_a_topic_that_is_named_but_not_there_is_not_created(world: World) -> None:
    flow = world.flow(topics=f"{world.prefix}-nope")
    with begun(flow) as (setup, _), pytest.raises(Incident, match=f"no topic '{world.prefix}-nope'"):
        setup.begin()
    assert world.mine() == {}


def test_a_wrong_password_is_found_at_once_and_names_the_cluster(world: World) -> None:
    flow = world.flow(source="wrong")
    began = time.monotonic()
    with ControlPlane(flow) as plane, pytest.raises(Unreachable) as caught:
        plane.connect()
    assert time.monotonic() - began < 5
    assert str(caught.value).startswith("cluster 'wrong' refused the credentials: ")
    assert "secret-typo" not in str(caught.value)


@pytest.mark.parametrize(("cluster", "why"), [("nobody", "Connection refused"), ("nowhere", "Failed to resolve")])
def test_an_unreachable_cluster_is_given_up_within_its_time(world: World, cluster: str, why: str) -> None:
    flow = world.flow("limits: {connect_timeout_ms: 1500}", target=cluster)
    began = time.monotonic()
    with ControlPlane(flow) as plane, pytest.raises(Unreachable) as caught:
        plane.connect()
    assert 1 < time.monotonic() - began < 5
    assert f"cluster {cluster!r}" in str(caught.value)
    assert why in str(caught.value)


def test_a_missing_right_holds_back_its_topic_only_and_is_named(world: World) -> None:
    one, two = f"{world.prefix}-1", f"{world.prefix}-2"
    world.kafka.create(one, 1)
    world.kafka.create(two, 1)
    topics = f"{one}, {two}"
    flow = world.flow(source="alice", topics=topics)
    world.kafka.allow("DESCRIBE", "TOPIC", one)
    world.kafka.allow("DESCRIBE_CONFIGS", "TOPIC", one)
    with begun(flow) as (setup, _):
        with pytest.raises(NotAllowed, match=f"'alice'.*Describe on topic '{two}'"):
            setup.begin()
        world.kafka.allow("DESCRIBE", "TOPIC", two)
        found = reasons(setup, setup.begin())
        assert found[f"{one}[0]"] == ""
        assert f"DescribeConfigs on topic '{two}'" in found[f"{two}[0]"]
        assert "cluster 'alice'" in found[f"{two}[0]"]
        world.kafka.allow("DESCRIBE_CONFIGS", "TOPIC", two)
        assert set(reasons(setup, setup.listing()).values()) == {""}


def test_a_right_that_is_missing_at_the_target_is_waited_for(world: World) -> None:
    one, two = f"{world.prefix}-1", f"{world.prefix}-2"
    world.kafka.create(one, 1)
    world.kafka.create(two, 1)
    flow = world.flow(target="alice")
    for operation in ("DESCRIBE", "DESCRIBE_CONFIGS", "READ", "WRITE", "CREATE"):
        world.kafka.allow(operation, "TOPIC", f"__eos.{world.prefix}")
    for operation in ("DESCRIBE", "DESCRIBE_CONFIGS"):
        world.kafka.allow(operation, "TOPIC", f"a.{one}")
    world.kafka.allow("READ", "GROUP", f"eos-replicate.{world.prefix}")
    with begun(flow) as (setup, _):
        listing = setup.begin()
        found = reasons(setup, listing)
        assert f"Create on topic 'a.{one}'" in found[f"{one}[0]"]
        assert f"Describe on topic 'a.{two}'" in found[f"{two}[0]"]
        world.kafka.allow("CREATE", "TOPIC", f"a.{one}")
        found = reasons(setup, setup.listing())
        assert (found[f"{one}[0]"], found[f"{two}[0]"] == "") == ("", False)
