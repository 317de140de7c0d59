"""The server-side assignors: coverage, balance, stickiness, and runs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embedded_broker.state.assignors import Assignee, assign
from embedded_broker.state.consumer_types import NOTHING, Partitions
from tests.budget import budget
from tests.embedded_broker.state.consumers import partitions, topic_id

TOPICS = ["t", "u", "v"]
counts = st.fixed_dictionaries({name: st.integers(0, 5) for name in TOPICS})
member_sets = st.dictionaries(st.sampled_from("abcd"), st.sets(st.sampled_from(TOPICS)), min_size=1)


def assignees(subscribed: dict[str, set[str]], targets: dict[str, Partitions] | None = None) -> list[Assignee]:
    targets = targets or {}
    return [
        Assignee(name, None, frozenset(map(topic_id, names)), targets.get(name, NOTHING))
        for name, names in subscribed.items()
    ]


@pytest.mark.tier("default")
@settings(max_examples=budget(200, 5_000), deadline=None)
@given(st.sampled_from(["uniform", "range"]), counts, member_sets, counts, member_sets)
def test_each_partition_goes_to_one_subscriber_whatever_was_before(
    assignor: str,
    before: dict[str, int],
    subscribed_before: dict[str, set[str]],
    after: dict[str, int],
    subscribed: dict[str, set[str]],
) -> None:
    targets = assign(assignor, assignees(subscribed_before), {topic_id(name): each for name, each in before.items()})
    members = assignees(subscribed, targets)
    found = assign(assignor, members, {topic_id(name): each for name, each in after.items()})
    given_out = [partition for mine in found.values() for partition in mine]
    wanted = {name for names in subscribed.values() for name in names}
    assert sorted(given_out) == sorted(each for name in wanted for each in partitions(name, *range(after[name])))
    for member in members:
        assert {each[0] for each in found[member.member_id]} <= member.topic_ids
    if assignor == "uniform":
        for rich in members:
            for poor in members:
                could_move = [each for each in found[rich.member_id] if each[0] in poor.topic_ids]
                spread = len(found[rich.member_id]) - len(found[poor.member_id])
                assert not could_move or spread <= 1, (rich.member_id, poor.member_id)


@settings(max_examples=budget(100, 2_000), deadline=None)
@given(counts, st.integers(1, 4), st.integers(1, 4))
def test_uniform_moves_no_more_than_it_must(sizes: dict[str, int], before: int, after: int) -> None:
    topics = {topic_id(name): each for name, each in sizes.items()}
    first = assign("uniform", assignees({name: set(TOPICS) for name in "abcd"[:before]}), topics)
    second = assign("uniform", assignees({name: set(TOPICS) for name in "abcd"[:after]}, first), topics)
    stayed = sum(len(first.get(name, NOTHING) & mine) for name, mine in second.items())
    total = sum(sizes.values())
    share, extra = divmod(total, after)
    # Whoever was there keeps the smaller of what it had and what it may have.
    held = sorted((len(first.get(name, NOTHING)) for name in "abcd"[:after]), reverse=True)
    assert stayed == sum(min(had, share + (number < extra)) for number, had in enumerate(held))


def test_range_gives_runs_and_cuts_topics_alike() -> None:
    members = [
        Assignee("z", "1", frozenset({topic_id("t"), topic_id("u")}), NOTHING),
        Assignee("a", None, frozenset({topic_id("t"), topic_id("u")}), NOTHING),
    ]
    found = assign("range", members, {topic_id("t"): 3, topic_id("u"): 3})
    assert found["z"] == partitions("t", 0, 1) | partitions("u", 0, 1), "static members come first"
    assert found["a"] == partitions("t", 2) | partitions("u", 2)


def test_uniform_spreads_topics_of_one_partition() -> None:
    found = assign("uniform", assignees({"a": {"t", "u"}, "b": {"t", "u"}}), {topic_id("t"): 1, topic_id("u"): 1})
    assert sorted(map(len, found.values())) == [1, 1]


def test_assignors_accept_groups_without_subscribers() -> None:
    assert assign("uniform", [], {topic_id("t"): 1}) == {}
    assert assign("range", assignees({"a": set()}), {}) == {"a": NOTHING}
