"""Selection, target names, and flows that get into each other's way."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replicator.config import Config, Flow, FlowFileError, load_text, routing


def config(*flows: str, addresses: tuple[str, ...] = ("a:1", "b:1", "c:1")) -> Config:
    """Clusters a, b, c; each flow is written as `name: {…}`."""
    named = zip("abc", addresses, strict=True)
    clusters = "".join(f'  {name}: {{properties: {{bootstrap.servers: "{at}"}}}}\n' for name, at in named)
    return load_text("clusters:\n" + clusters + "flows:\n" + "".join(f"  {flow}\n" for flow in flows), env={})


def flow(settings: str) -> Flow:
    return config(f"f: {{source: a, target: b, {settings}}}").flows["f"]


@pytest.mark.parametrize(
    ("settings", "topic", "expected"),
    [
        ("topics: [orders]", "orders", True),
        ("topics: [orders]", "orders-2", False),
        ("topics: ['^orders.*']", "orders-2", True),
        ("topics: ['^orders']", "orders-2", False),
        ("topics: ['^(a|b)']", "ab", False),
        ("topics: [x, '^y.*']", "yz", True),
        ("topics: [or.ers]", "orders", False),
        ("topics: ['^.*'], exclude: [orders]", "orders", False),
        ("topics: ['^.*'], exclude: ['^.*-tmp']", "x-tmp", False),
        ("topics: ['^.*']", "__consumer_offsets", False),
        ("topics: ['^__eos.*']", "__eos.f.control", False),
    ],
)
def test_selection_matches_whole_names_and_never_internal_topics(settings: str, topic: str, expected: bool) -> None:
    assert routing.selects(flow(settings), topic) is expected


@pytest.mark.parametrize(
    ("rename", "expected"),
    [
        ("{source}.{topic}", "a.t"),
        ("{topic}", "t"),
        ("dr-{flow}-{topic}.{target}", "dr-f-t.b"),
        ("{topic}{topic}", "tt"),
    ],
)
def test_rename(rename: str, expected: str) -> None:
    assert routing.target_topic(flow(f"topics: ['^.*'], rename: '{rename}'"), "t") == expected


def refused(*flows: str, addresses: tuple[str, ...] = ("a:1", "b:1", "c:1")) -> list[str]:
    with pytest.raises(FlowFileError) as caught:
        config(*flows, addresses=addresses)
    return [f"{fault.path}: {fault.message}" for fault in caught.value.faults]


def test_a_flow_that_copies_a_topic_onto_itself() -> None:
    (fault,) = refused("f: {source: a, target: a, topics: [x], rename: '{topic}'}")
    assert fault == "flows.f: would feed itself: 'x' comes back as 'x' (f → f); exclude that name or rename"


def test_a_flow_whose_names_chase_each_other_on_one_cluster() -> None:
    (fault,) = refused("f: {source: a, target: a, topics: ['^.*'], rename: 'copy.{topic}'}")
    assert "would feed itself" in fault
    assert config("f: {source: a, target: a, topics: ['^.*'], exclude: ['^copy[.].*'], rename: 'copy.{topic}'}")


def test_two_flows_in_opposite_directions() -> None:
    there, back = "{source: a, target: b, topics: ['^.*']}", "{source: b, target: a, topics: ['^.*']}"
    faults = refused(f"there: {there}", f"back: {back}")
    assert [fault.split(":")[0] for fault in faults] == ["flows.there", "flows.back"]
    assert "'a' comes back as 'b.a.a' (there → back → there)" in " ".join(faults)
    back = "{source: b, target: a, topics: ['^.*'], exclude: ['^a[.].*']}"
    assert config(f"there: {there}", f"back: {back}")


def test_opposite_directions_without_rename() -> None:
    faults = refused(
        "there: {source: a, target: b, topics: [x], rename: '{topic}'}",
        "back: {source: b, target: a, topics: [x], rename: '{topic}'}",
    )
    assert len(faults) == 2
    assert config(
        "there: {source: a, target: b, topics: [x], rename: '{topic}'}",
        "back: {source: b, target: a, topics: [y], rename: '{topic}'}",
    )


def test_a_circle_of_three() -> None:
    circle = [
        f"f{n}: {{source: {source}, target: {target}, topics: ['^.*'], rename: '{{topic}}'}}"
        for n, (source, target) in enumerate((("a", "b"), ("b", "c"), ("c", "a")))
    ]
    assert len(refused(*circle)) == 3
    assert len(config(*circle[:2]).flows) == 2


def test_two_names_for_one_cluster_are_seen_through() -> None:
    text = "f: {source: a, target: b, topics: [x], rename: '{topic}'}"
    assert "would feed itself" in refused(text, addresses=("k:9092,l:1", "m:1, K", "c:1"))[0]
    there = config(text)
    found = routing.topic_conflicts(there, "f", {"a": ["x"]}, {"a": "same-id", "b": "same-id"})
    assert "would feed itself" in found["x"].detail
    assert routing.topic_conflicts(there, "f", {"a": ["x"]}, {"a": "one-id", "b": "other-id"}) == {}


def test_two_flows_onto_one_target_topic() -> None:
    (fault,) = refused(
        "one: {source: a, target: c, topics: [orders], rename: '{topic}'}",
        "two: {source: b, target: c, topics: ['^ord.*'], rename: '{topic}'}",
    )
    assert fault.startswith("flows.two: would write 'orders' on 'c', as flow 'one' would (from 'orders')")


def test_resolved_topics_find_what_a_pattern_hides() -> None:
    chasing = config("f: {source: a, target: a, topics: ['^q1.*', '^z.q1'], rename: 'z.{topic}'}")
    assert routing.topic_conflicts(chasing, "f", {"a": ["q"]}, {}) == {}
    found = routing.topic_conflicts(chasing, "f", {"a": ["q1"]}, {})
    assert "'q1' comes back as 'z.q1'" in found["q1"].detail


def test_each_topic_in_conflict_is_named_and_no_other() -> None:
    flows = config(
        "one: {source: a, target: b, topics: ['^.q1', '^.q2'], rename: 'x.{topic}'}",
        "two: {source: a, target: b, topics: ['^.q.'], rename: 'x.{topic}'}",
    )
    found = routing.topic_conflicts(flows, "two", {"a": ["aq1", "aq2", "aq3"]}, {})
    assert sorted(found) == ["aq1", "aq2"]
    assert "would write 'x.aq2' on 'b', as flow 'one' would (from 'aq2')" in found["aq2"].detail


def test_two_ways_to_one_topic_over_another_cluster() -> None:
    flows = config(
        "first: {source: a, target: b, topics: ['^q1']}",
        "second: {source: b, target: c, topics: ['^a.q1'], rename: '{topic}'}",
        "direct: {source: a, target: c, topics: ['^q1'], rename: 'a.{topic}'}",
    )
    found = routing.topic_conflicts(flows, "direct", {"a": ["q1"], "b": [], "c": []}, {})
    assert "would write 'a.q1' on 'c', as flow 'second' would" in found["q1"].detail


def test_only_the_asked_flow_is_judged() -> None:
    flows = config(
        "one: {source: a, target: b, topics: ['^q.*'], rename: 'x.{topic}'}",
        "two: {source: a, target: b, topics: ['^.q1'], rename: 'x.{topic}'}",
    )
    assert routing.topic_conflicts(flows, "one", {"a": ["qq1"]}, {}) == {}
    assert list(routing.topic_conflicts(flows, "two", {"a": ["qq1"]}, {})) == ["qq1"]


def test_names_that_kafka_does_not_take() -> None:
    long = flow("topics: ['^.*']")
    (found,) = routing.conflicts([long], {"a": ["t" * 248]})
    assert "250 characters" in found.message
    assert routing.conflicts([long], {"a": ["t" * 247]}) == []
    (fault,) = refused("f: {source: a, target: b, topics: [t], rename: '__{topic}'}")
    assert fault.startswith("flows.f: rename makes '__t' of 't': names with __ are internal")


def shaped(*shapes: tuple[str, str, str, str]) -> list[Flow]:
    """Flows f0, f1, … by source, target, pattern and rename, that nobody has checked."""
    base, clusters = flow("topics: [x]"), config("f: {source: a, target: b, topics: [x]}").clusters
    return [
        base.model_copy(
            update={"name": f"f{n}", "source": clusters[s], "target": clusters[t], "topics": (p,), "rename": r}
        )
        for n, (s, t, p, r) in enumerate(shapes)
    ]


@pytest.mark.tier("extended")
@pytest.mark.parametrize("circles", [2, 3, 12])
def test_a_topic_that_leads_into_circles_of_others_is_followed_to_an_end(circles: int) -> None:
    """Names of names in all orders of the flows would fill the memory."""
    flows = shaped(("a", "c", "^.*", "a.{topic}"), *(("c", "c", "^.*", f"p{n}.{{topic}}") for n in range(circles)))
    found = {it.flow: it.message for it in routing.conflicts(flows, {"a": [f"t{n}" for n in range(50)], "c": ["x"]})}
    assert found.keys() - {"f0"} == {f"f{n + 1}" for n in range(circles)}
    assert all("would feed itself" in message for name, message in found.items() if name != "f0")
    assert ("f0" in found) == (circles == 12)
    assert circles < 12 or found["f0"].startswith("its copies would be copied on without an end: ")


NAMES = st.lists(st.text("ab.", min_size=1, max_size=4), max_size=6, unique=True)
PATTERNS = st.sampled_from(["^.*", "^a.*", "^b.*", "^[ab]", "^.*b"])
RENAMES = st.sampled_from(["{topic}", "{source}.{topic}", "a{topic}", "b.{topic}"])
FLOWS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc"), PATTERNS, RENAMES), min_size=1, max_size=3)


@pytest.mark.tier("extended")
@settings(deadline=None)  # flows are loaded through librdkafka, which takes its time on a busy machine
@given(FLOWS, st.fixed_dictionaries({"a": NAMES, "b": NAMES, "c": NAMES}))
def test_without_conflict_target_topics_are_unique_and_copying_ends(
    shapes: list[tuple[str, str, str, str]], topics: dict[str, list[str]]
) -> None:
    """Simulates copying round by round: each (target, name) has one writer, and no flow sees its own output."""
    flows = shaped(*shapes)
    if routing.conflicts(flows, topics):
        return
    ways: dict[tuple[str, str], tuple[str, ...]] = {(c, name): () for c in topics for name in topics[c]}
    writers: dict[tuple[str, str], tuple[str, str]] = {}
    ahead = list(ways)
    while ahead:
        cluster, name = ahead.pop()
        for each in flows:
            if each.source.name != cluster or not routing.selects(each, name):
                continue
            way = ways[cluster, name]
            assert each.name not in way
            place = (each.target.name, routing.target_topic(each, name))
            assert writers.setdefault(place, (each.name, name)) == (each.name, name)
            if place not in ways:
                ways[place] = (*way, each.name)
                ahead.append(place)
