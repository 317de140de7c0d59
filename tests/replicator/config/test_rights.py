"""Rights of a flow: the same as its page says, with the flow's names, as few and as short as ACLs can say them."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from replicator.config import Flow, load_text
from replicator.config.rights import NEEDED, GrantedBy, On, Resource, Right, kafka_acls, literal_prefix, rights_of
from replicator.config.routing import literals, selects, target_topic

PAGE = Path(__file__).parents[3] / "docs/operate/rights.md"


def flow(topics: str, rename: str = "", heartbeat: str = "") -> Flow:
    more = f", rename: '{rename}'" if rename else ""
    more += f", heartbeat: {heartbeat}" if heartbeat else ""
    clusters = '{a: {properties: {bootstrap.servers: "a:1"}}, b: {properties: {bootstrap.servers: "b:1"}}}'
    return load_text(
        f"clusters: {clusters}\nflows: {{f: {{source: a, target: b, topics: {topics}{more}}}}}\n", env={}
    ).flows["f"]


def named(rights: list[Right], on: Resource, side: GrantedBy) -> set[tuple[str, bool]]:
    return {(right.name, right.prefixed) for right in rights if (right.resource, right.side) == (on, side)}


def test_the_page_has_the_same_table() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith(("| source", "| target"))]
    assert rows == [
        f"| {it.side} | {it.on} | {', '.join(it.operations)} | {'optional: ' if it.optional else ''}{it.needed_for} |"
        for it in NEEDED
    ]
    assert {it.on for it in NEEDED} == set(On)


@pytest.mark.parametrize(
    ("pattern", "prefix"),
    [
        ("^orders.*", "orders"),
        (r"^orders\.eu\..*", "orders.eu."),
        ("^orders-?x", "orders"),
        ("^orders-x", "orders-x"),
        ("^ab*", "a"),
        ("^ab+", "ab"),
        ("^ab{0,2}", "a"),
        (r"^a\.*", "a"),
        ("^(orders|bills)", ""),
        ("^orders|bills", ""),
        ("^.*", ""),
        (r"^\w+", ""),
        ("^(?i)orders", ""),
    ],
)
def test_what_all_matches_begin_with(pattern: str, prefix: str) -> None:
    assert literal_prefix(pattern) == prefix


def test_names_and_prefixes_of_both_sides() -> None:
    rights = rights_of(flow("[orders, events.x, '^events.*', '^events-eu.*']", "x.{topic}.copy"))
    assert named(rights, Resource.TOPIC, GrantedBy.SOURCE) == {
        ("orders", False),
        ("events", True),
        ("__eos.", True),
        ("__consumer_offsets", False),
        ("__transaction_state", False),
    }
    assert named(rights, Resource.TRANSACTIONAL_ID, GrantedBy.SOURCE) == {("", True)}
    assert named(rights, Resource.TOPIC, GrantedBy.TARGET) == {
        ("x.orders.copy", False),
        ("x.events", True),
        ("__eos.f.", True),
        ("__eos.f.offsets", True),
        ("__consumer_offsets", False),
    }
    assert named(rights, Resource.GROUP, GrantedBy.TARGET) == {
        ("eos-replicate.f", False),
        ("eos-replicate.f.workers", False),
    }
    assert named(rights, Resource.TRANSACTIONAL_ID, GrantedBy.TARGET) == {("eos.f.", True)}


def test_heartbeats_need_rights_of_their_own_where_a_flow_has_them() -> None:
    own, copy = ("eos-heartbeat.f", False), ("eos-heartbeat.f.copy", False)
    rights = rights_of(flow("[orders]", "x.{topic}", heartbeat="10s"))
    assert own in named(rights, Resource.TOPIC, GrantedBy.SOURCE)
    assert copy in named(rights, Resource.TOPIC, GrantedBy.TARGET)
    assert own not in named(rights_of(flow("[orders]", "x.{topic}")), Resource.TOPIC, GrantedBy.SOURCE)


def test_the_topic_of_a_schema_registry_has_the_same_name_on_both_sides() -> None:
    both = flow("['^.*'], schema_registry: {mode: topic}", "x.{topic}")
    for side in GrantedBy:
        assert ("_schemas", False) in named(rights_of(both), Resource.TOPIC, side)
    assert literals(both) == ("_schemas",)
    assert (selects(both, "_schemas"), target_topic(both, "_schemas"), target_topic(both, "a")) == (
        True,
        "_schemas",
        "x.a",
    )


def test_a_pattern_without_a_prefix_is_all_topics_of_the_source() -> None:
    rights = rights_of(flow("['^.*']"))
    assert ("", True) in named(rights, Resource.TOPIC, GrantedBy.SOURCE)
    assert ("a.", True) in named(rights, Resource.TOPIC, GrantedBy.TARGET), (
        "the default rename begins with the source's name"
    )
    [command] = kafka_acls(rights[:1], "a:1", "User:x")
    assert shlex.split(command)[-2:] == ["--topic", "*"]


def test_commands_grant_each_right_once() -> None:
    of_target = [right for right in rights_of(flow("[orders]")) if right.side is GrantedBy.TARGET]
    commands = [shlex.split(line) for line in kafka_acls(of_target, "b:1,c:2", "User:two words")]
    assert all(
        words[:6] == ["kafka-acls", "--bootstrap-server", "b:1,c:2", "--add", "--allow-principal", "User:two words"]
        for words in commands
    )
    granted = [
        (tuple(words[words.index("--operation", 6) :][-3:]), operation)
        for words in commands
        for operation in (words[n + 1] for n, word in enumerate(words) if word == "--operation")
    ]
    assert len(granted) == len(set(granted))
    needed = {(right.resource, right.name, each) for right in of_target for each in right.operations}
    assert len(granted) == len(needed), "what two rows need is granted once"
    assert commands[-1][-1] == "--cluster"
