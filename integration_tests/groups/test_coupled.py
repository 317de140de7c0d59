"""Topics that transactions tie together are found at a real source: every pair, none invented; what can't be seen is
said."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import yaml
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from integration_tests.conftest import MakeCopying
from integration_tests.groups.test_group_sync import EVERY
from integration_tests.harness import acls, clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.copying import ASKED_S_MAX
from integration_tests.harness.coupling import play
from integration_tests.harness.group_reading import offsets
from integration_tests.harness.processes import wait_until
from integration_tests.harness.secured import Secured
from integration_tests.harness.two_topics import TwoTopics, numbered
from integration_tests.test_control import typed
from integration_tests.test_metrics import observed
from replicator.config import Flow, load_text
from replicator.inspect import coupled_topics
from tests.budget import budget
from tests.replicator.coupling.graphs import Graph, pairs_of
from tests.running.users_packages import users_packages

PARTITIONS = 2
SEEDS_EACH, SEEDS = 5, budget(5, 50)


def flow_file(bootstrap: str, prefix: str, **source: str) -> str:
    properties = {"source": {"bootstrap.servers": bootstrap, **source}, "target": {"bootstrap.servers": "127.0.0.1:9"}}
    clusters = {name: {"properties": it} for name, it in properties.items()}
    flow = {"source": "source", "target": "target", "topics": [f"^{prefix}.*"], "exclude": [f"{prefix}t0"]}
    return yaml.safe_dump({"clusters": clusters, "flows": {"f": flow}})


def flow_of(bootstrap: str, prefix: str, **source: str) -> Flow:
    return load_text(flow_file(bootstrap, prefix, **source), env={}).flows["f"]


def drawn(bootstrap: str, seed: int, prefix: str) -> Graph:
    graph = Graph(seed, prefix)
    for topic in graph.topics:
        clients.create_topic(bootstrap, topic, PARTITIONS)
    return graph


@pytest.mark.tier("full", kafka="long")
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_EACH))
def test_every_coupled_pair_is_found_and_none_is_invented(
    source: BrokerHandle, unique: Callable[[str], str], first: int
) -> None:
    for seed in range(first, first + SEEDS_EACH):
        prefix = unique(f"seed-{seed}") + "."
        graph = drawn(source.bootstrap, seed, prefix)
        kept = play(source.bootstrap, graph, PARTITIONS, Random(seed))
        found = coupled_topics.look(flow_of(source.bootstrap, prefix))
        left_out = f"{prefix}t0"
        assert pairs_of(found.sets) == graph.pairs()
        assert all((left_out in it.topics) == (left_out in it.outside) for it in found.sets)
        groups = {group for it in graph.applications for group in it.reads}
        assert {group for it in found.sets for group in it.groups} <= groups
        known = {it.transactional_id for it in graph.applications}
        assert {writer.transactional_id for it in found.sets for writer in it.writers} <= known
        assert [it for it in found.unseen if prefix in str(it)] == []
        del kept


def allow(secured: Secured, operation: str, kind: str, name: str) -> None:
    made = AclBinding(
        ResourceType[kind],
        name,
        ResourcePatternType.LITERAL if name.startswith("__") or name == "*" else ResourcePatternType.PREFIXED,
        "User:alice",
        "*",
        AclOperation[operation],
        AclPermissionType.ALLOW,
    )
    acls.create(secured.admin, made)


@pytest.mark.tier("long")
def test_what_may_not_be_seen_is_said_and_what_logs_tell_is_enough(
    secured: Secured, unique: Callable[[str], str]
) -> None:
    """Without Read on the topics no producer is shown: as with one that the broker has forgotten."""
    prefix = unique("coupled") + "."
    graph = next(it for it in (Graph(seed, prefix) for seed in range(100)) if len(it.pairs()) > 5)
    for topic in graph.topics:
        clients.create_topic(secured.bootstrap, topic, PARTITIONS)
    kept = play(secured.bootstrap, graph, PARTITIONS, Random(1))
    login = {key: str(secured.config("alice")[key]) for key in LOGIN}
    flow = flow_of(secured.config("alice")["bootstrap.servers"], prefix, **login)
    allow(secured, "DESCRIBE", "TOPIC", prefix)
    found = coupled_topics.look(flow)
    said = "\n".join(map(str, found.unseen))
    assert found.sets == []
    for topic in graph.topics[1:]:
        assert f"producers of topic {topic!r}" in said
    assert "topic '__consumer_offsets'" in said
    assert "topic '__transaction_state'" in said
    allow(secured, "READ", "TOPIC", "__consumer_offsets")
    allow(secured, "READ", "TOPIC", "__transaction_state")
    found = coupled_topics.look(flow)
    assert pairs_of(found.sets) == graph.pairs()
    allow(secured, "READ", "TOPIC", prefix)
    allow(secured, "DESCRIBE", "TRANSACTIONAL_ID", "*")
    found = coupled_topics.look(flow)
    assert pairs_of(found.sets) == graph.pairs()
    assert [it for it in found.unseen if prefix in str(it)] == []
    del kept


LOGIN = ("security.protocol", "sasl.mechanism", "sasl.username", "sasl.password")


def asked(path: Path, command: str, *options: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", command, "-c", str(path), *options],
        capture_output=True, text=True, check=False, timeout=ASKED_S_MAX, env=users_packages(),
    )  # fmt: skip
    return done.returncode, done.stdout + ("" if done.stdout else done.stderr)


@pytest.mark.tier("long")
def test_the_command_shows_them(source: BrokerHandle, unique: Callable[[str], str], tmp_path: Path) -> None:
    path, prefix = tmp_path / "flows.yaml", unique("coupled") + "."
    seed = next(seed for seed in range(100) if any(f"{prefix}t0" in pair for pair in Graph(seed, prefix).pairs()))
    graph = drawn(source.bootstrap, seed, prefix)
    kept = play(source.bootstrap, graph, PARTITIONS, Random(seed))
    path.write_text(flow_file(source.bootstrap, prefix))
    code, out = asked(path, "coupled", "--json")
    (found,) = json.loads(out)["flows"]
    assert code == bool(found["unseen"])
    assert {
        frozenset((one, other)) for it in found["sets"] for one in it["topics"] for other in it["topics"]
    } >= graph.pairs()
    code, out = asked(path, "coupled")
    assert f"{prefix}t0 (not copied)" in out
    assert all(it["topics"][1] in out for it in found["sets"])
    path.write_text(flow_file("127.0.0.1:9", prefix))
    assert asked(path, "coupled")[0] == 3
    del kept


def loop(bootstrap: str, group: str, write: tuple[str, bytes], read: tuple[str, int]) -> None:
    """An application that writes a record, and commits with it up to where it has read."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{group}.producer"})
    producer.init_transactions(clients.TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(write[0], write[1], key=b"key", partition=0)
    consumer = clients.consumer(bootstrap, group_id=group)
    at = [TopicPartition(read[0], 0, read[1])]
    producer.send_offsets_to_transaction(at, consumer.consumer_group_metadata(), clients.TIMEOUT_S)
    producer.commit_transaction(clients.TIMEOUT_S)
    consumer.close()


@pytest.mark.tier("long")
@pytest.mark.parametrize("hold_with", ["auto", []], ids=["auto", "none"])
def test_a_group_waits_until_what_its_application_has_written_is_copied(
    make_copying: MakeCopying, unique: Callable[[str], str], hold_with: object
) -> None:
    """With `hold_with: []` it doesn't: so it is that which holds it."""
    copying, group = make_copying(partitions=1, groups={**EVERY, "hold_with": hold_with}), unique("loop")
    two = TwoTopics(copying)
    copying.file.write(topics=[two.first, two.second])
    page = observed(copying)
    read, written = two.first, two.second

    def there() -> int:
        return offsets(copying.target, group, two.copy_of(read), 1)[0]

    two.put(read, numbered("in", 9))
    loop(copying.source, group, (written, b"first"), (read, 3))
    _, plan = copying.asked("plan")
    assert plan["coupled"] == [{"topics": sorted((read, written)), "outside": [], "groups": [group]}]
    worker = copying.running()
    two.wait_copied(written, b"first")
    wait_until(lambda: there() == 3, "the group is there", lambda: str(there()))
    assert [it["topics"] for it in worker.seen("groups_held_with")] == ([[written]] if hold_with else [])
    typed(copying, "pause", "--topics", written)
    worker.wait_event("waiting", reason="paused", topic=written)
    loop(copying.source, group, (written, b"second"), (read, 6))
    if hold_with:
        labels = {"flow": copying.name, "group": group, "verdict": "held"}
        page.wait("the group is held", lambda it: it.value("eos_group_partitions", **labels) == 1)
        assert there() == 3
        typed(copying, "resume", "--topics", written)
        two.wait_copied(written, b"second")
    wait_until(lambda: there() == 6, "the group has moved", lambda: str(there()))
    assert worker.stop() == 0, worker.tail()
    assert worker.seen("hold_topics_unknown") == []
