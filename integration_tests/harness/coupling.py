"""Plays applications that read and write topics: transactional producers that commit offsets of groups, and others."""

from __future__ import annotations

from random import Random

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.replicator.coupling.graphs import Application, Graph

ANSWER_S_MAX = 60.0


def play(bootstrap: str, graph: Graph, partitions: int, random: Random) -> list[Producer]:
    """Each application does all that it does, in transactions that are drawn, and some are closed then.

    Returns producers, some of which have a transaction that is open: the caller keeps them as long as it looks.
    """
    consumers: dict[str, Consumer] = {}
    plain = [it for it in graph.plain if it.writes]
    for it in plain:
        _plain(bootstrap, it, partitions, random)
    kept = []
    for it in graph.applications:
        for last in [False] * (len(it.producer_ids) - 1) + [True]:
            producer = _transactional(bootstrap, it, consumers, partitions, random)
            if not last or random.random() < 0.6:
                del producer  # ended some time ago, or before its successor begins
            else:
                kept.append(producer)
    for consumer in consumers.values():
        consumer.close()
    return kept


def _plain(bootstrap: str, it: Application, partitions: int, random: Random) -> None:
    settings = {"bootstrap.servers": bootstrap, "enable.idempotence": random.random() < 0.7}
    producer = Producer(settings)
    for topic in it.writes:
        for number in range(partitions):
            producer.produce(topic, b"plain", partition=number)
    assert producer.flush(ANSWER_S_MAX) == 0


def _transactional(
    bootstrap: str, it: Application, consumers: dict[str, Consumer], partitions: int, random: Random
) -> Producer:
    """One run of the application. The last of its transactions may stay open."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": it.transactional_id})
    producer.init_transactions(ANSWER_S_MAX)
    steps: list[tuple[str, str, str]] = [("write", topic, "") for topic in sorted(it.writes)]
    steps += [("commit", topic, group) for group, topics in sorted(it.reads.items()) for topic in sorted(topics)]
    random.shuffle(steps)
    cut = random.randint(0, len(steps)) if random.random() < 0.5 else len(steps)
    if random.random() < 0.3:  # one that is aborted, before
        _transaction(producer, bootstrap, steps, consumers, partitions, random)
        producer.abort_transaction(ANSWER_S_MAX)
    if steps[:cut]:
        _transaction(producer, bootstrap, steps[:cut], consumers, partitions, random)
        producer.commit_transaction(ANSWER_S_MAX)
    if steps[cut:]:
        _transaction(producer, bootstrap, steps[cut:], consumers, partitions, random)
        if any(kind == "commit" for kind, _, _ in steps[cut:]) or random.random() < 0.7:
            producer.commit_transaction(ANSWER_S_MAX)
    return producer


def _transaction(
    producer: Producer,
    bootstrap: str,
    steps: list[tuple[str, str, str]],
    consumers: dict[str, Consumer],
    partitions: int,
    random: Random,
) -> None:
    producer.begin_transaction()
    for kind, topic, group in steps:
        at = random.randrange(partitions)
        if kind == "write":
            producer.produce(topic, b"written", partition=at)
            continue
        if group not in consumers:
            consumers[group] = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        metadata = consumers[group].consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition(topic, at, 1)], metadata, ANSWER_S_MAX)
    assert producer.flush(ANSWER_S_MAX) == 0
