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
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from integration_tests.harness import acls, clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.copying import ASKED_S_MAX
from integration_tests.harness.coupling import play
from integration_tests.harness.secured import Secured
from replicator.config import Flow, load_text
from replicator.inspect import coupled_topics
from tests.budget import budget
from tests.replicator.coupling.graphs import Graph, pairs_of
from tests.running.users_packages import users_packages

PARTITIONS = 2
SEEDS = budget(4, 50)


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
@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_coupled_pair_is_found_and_none_is_invented(
    source: BrokerHandle, unique: Callable[[str], str], seed: int
) -> None:
    prefix = unique("coupled") + "."
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


@pytest.mark.tier("full", kafka="long")
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


@pytest.mark.tier("full", kafka="long")
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
