"""Which topics are coupled follows from what was seen of producers: every pair is found, none is invented."""

from __future__ import annotations

from random import Random

import pytest

from replicator.coupling.evidence import (
    OFFSETS_TOPIC,
    ActiveProducer,
    CommittedFor,
    ProducerEvidence,
    SeenIn,
    SeenTransaction,
    written_for_groups,
)
from replicator.coupling.sets import coupled_sets, split_sets
from tests.budget import budget
from tests.replicator.coupling.graphs import Graph, pairs_of


def seen(graph: Graph, random: Random) -> ProducerEvidence:
    """Each fact is seen at least in one way, drawn."""
    evidence = ProducerEvidence()
    facts = []
    for it in graph.applications:
        for topic in it.writes:
            facts.append((it, random.choice(it.producer_ids), topic))
        for producer_id in it.producer_ids:
            evidence.named(it.transactional_id, producer_id)
        for group, topics in it.reads.items():
            for topic in topics:
                evidence.committed_offset(
                    CommittedFor(random.choice(it.producer_ids), group, topic, random.randint(0, 9))
                )
    facts += [(it, it.producer_ids[0], topic) for it in graph.plain for topic in it.writes]
    random.shuffle(facts)
    for it, producer_id, topic in facts:
        logged = bool(it.transactional_id) and random.random() < 0.5
        if logged:
            made = SeenTransaction(it.transactional_id, producer_id, {topic: (0,), OFFSETS_TOPIC: (7,)}, 5)
            evidence.transaction(made, random.choice((SeenIn.TRANSACTION_LOG, SeenIn.OPEN_TRANSACTION)))
        if not logged or random.random() < 0.5:
            ended = bool(it.transactional_id) and random.random() < 0.9
            evidence.active(topic, random.randint(0, 2), [ActiveProducer(producer_id, 3, ended)])
    return evidence


def test_every_coupled_pair_is_found_and_none_is_invented() -> None:
    for seed in range(budget(50, 5_000)):
        graph = Graph(seed)
        found = coupled_sets(seen(graph, Random(-seed)).writers(), graph.topics)
        assert pairs_of(found) == graph.pairs(), seed
        known = {it.transactional_id for it in graph.applications}
        assert {writer.transactional_id for it in found for writer in it.writers} <= known, seed
        assert [it.topics for it in found] == sorted(it.topics for it in found), seed


def test_graphs_are_not_all_alike() -> None:
    sizes = [len(Graph(seed).pairs()) for seed in range(50)]
    assert min(sizes) == 0 < max(sizes)
    assert len(set(sizes)) > 5


def test_a_producer_whose_transactional_id_is_not_shown_couples_by_its_markers() -> None:
    evidence = ProducerEvidence()
    for topic in ("a", "b"):
        evidence.active(topic, 0, [ActiveProducer(7, 5, topic == "a"), ActiveProducer(8, 5, False)])
    (found,) = coupled_sets(evidence.writers(), ["a"])
    assert (found.topics, found.outside) == (("a", "b"), ("b",))
    assert [(it.transactional_id, it.producer_ids) for it in found.writers] == [("", (7,))]
    assert found.as_json()["evidence"][0] == {
        "transactional_id": None,
        "producer_ids": [7],
        "writes": {topic: {"seen_ms": 5, "seen_in": ["describe_producers"]} for topic in "ab"},
        "reads": {},
        "group_unknown": False,
    }


def test_a_set_without_a_topic_of_the_flow_is_not_its_business() -> None:
    evidence = ProducerEvidence()
    evidence.transaction(SeenTransaction("x", 1, {"a": (0,), "b": (0,)}), SeenIn.TRANSACTION_LOG)
    assert coupled_sets(evidence.writers(), ["c"]) == []


@pytest.mark.parametrize("known_by", ["id", "group", "topic"])
def test_lanes_of_the_replicator_couple_nothing(known_by: str) -> None:
    """They write records of all topics in the same transactions, and commit their positions in them."""
    evidence = ProducerEvidence()
    if known_by == "id":
        evidence.named("eos.orders.3.0", 1)
    for topic in ("a", "b"):
        evidence.active(topic, 0, [ActiveProducer(1, 5, True)])
    if known_by == "group":
        evidence.committed_offset(CommittedFor(1, "eos-replicate.orders", "a", 5))
    if known_by == "topic":
        evidence.active("__eos.orders.offsets", 0, [ActiveProducer(1, 5, True)])
    assert evidence.writers() == []


def test_ids_that_only_look_like_those_of_the_replicator_are_of_applications() -> None:
    evidence = ProducerEvidence()
    evidence.transaction(SeenTransaction("eos.orders.billing", 1, {"a": (0,), "b": (0,)}), SeenIn.TRANSACTION_LOG)
    assert len(coupled_sets(evidence.writers(), ["a"])) == 1


def test_topics_of_loops_are_known_without_their_groups() -> None:
    evidence = ProducerEvidence()
    evidence.active("out", 0, [ActiveProducer(1, 5, True)])
    evidence.active("other", 0, [ActiveProducer(2, 5, True)])
    evidence.active(OFFSETS_TOPIC, 13, [ActiveProducer(1, 5, False), ActiveProducer(3, 5, True)])
    writers = {it.producer_ids: it for it in evidence.writers()}
    assert writers[1,].offsets_partitions == {13}
    assert writers[1,].as_json()["group_unknown"]
    assert written_for_groups(writers.values()) == {"out"}


def test_which_sets_a_choice_of_topics_would_split() -> None:
    evidence = ProducerEvidence()
    for number, topics in enumerate((("a", "b", "c"), ("d", "e"), ("f", "g"))):
        evidence.transaction(SeenTransaction(f"x{number}", number, dict.fromkeys(topics, (0,))), SeenIn.TRANSACTION_LOG)
    sets = coupled_sets(evidence.writers(), ["a", "d", "f"])
    assert [(it.chosen, it.left) for it in split_sets(sets, {"a", "c", "f", "g", "z"})] == [(("a", "c"), ("b",))]
    assert split_sets(sets, set("abcdefg")) == split_sets(sets, []) == []
