"""Drawn lives of consumer groups at the target while the source's move on: the flow never moves one that has members,
nor an offset that a member has committed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from integration_tests.conftest import MakeCopying
from integration_tests.groups.test_group_sync import EVERY, wait_offsets
from integration_tests.harness import clients
from integration_tests.harness.copying import PARTITIONS, Copying
from integration_tests.harness.group_reading import begin, offsets
from tests.budget import budget

SCHEDULES = budget(6, 200)
AT_ONCE = 6
EVERY_S = 0.2
RECORDS = 400
SESSION_MS = 6_000
JOINED_S_MAX = 60.0


@dataclass(slots=True)
class Life:
    """One group: what is drawn, and what must stand at the target.

    Attributes:
        theirs: offsets that members have committed, by partition: they stay for good.
        flows: what the flow had committed last before that: the same offset again is the flow's, as far as it can know.
        sources: the source's offsets, which only grow here.
    """

    name: str
    draw: random.Random
    theirs: dict[int, int] = field(default_factory=dict)
    flows: dict[int, int] = field(default_factory=dict)
    sources: list[int] = field(default_factory=lambda: [0] * PARTITIONS)

    def draws(self, number: int, before: int) -> int:
        """Return an offset for a member to commit."""
        found = self.draw.randint(0, max(0, before))
        return found + 1 if found == self.flows.get(number) else found

    def move_source(self, copying: Copying) -> None:
        """Have the source's group consume some more."""
        ends = [clients.stable_end(copying.source, copying.topic, number) for number in range(PARTITIONS)]
        self.sources = [self.draw.randint(at, end) for at, end in zip(self.sources, ends, strict=True)]
        begin(copying.source, self.name, [(copying.topic, *it) for it in enumerate(self.sources)])

    def look(self, copying: Copying) -> list[int]:
        """Return what stands at the target; what members have committed does."""
        found = offsets(copying.target, self.name, copying.copy, PARTITIONS)
        assert {number: found[number] for number in self.theirs} == self.theirs, (self.name, found)
        return found


def join(life: Life, copying: Copying) -> Consumer:
    """A member of one of both protocols, static or not, that has all partitions."""
    consumer_protocol = life.draw.random() < 0.5
    properties: dict[str, object] = {"group_protocol": "consumer"}
    if not consumer_protocol:
        properties = {"group_protocol": "classic", "session_timeout_ms": SESSION_MS}
        if life.draw.random() < 0.3:
            properties["group_instance_id"] = f"{life.name}-{life.draw.randrange(3)}"
    give_up_s = time.monotonic() + JOINED_S_MAX
    made = subscribed(life, copying, properties)
    while len(made.assignment()) < PARTITIONS:
        assert time.monotonic() < give_up_s, f"{life.name}: no assignment, {properties}"
        message = made.poll(0.1)
        error = None if message is None else message.error()
        if (
            error is not None and error.code() == KafkaError._FATAL
        ):  # a static member of the other protocol stays until its session ends
            made.close()
            made = subscribed(life, copying, properties)
    return made


def subscribed(life: Life, copying: Copying, properties: dict[str, object]) -> Consumer:
    made = clients.consumer(copying.target, group_id=life.name, **properties)
    made.subscribe([copying.copy])
    return made


def act(life: Life, member: Consumer, copying: Copying) -> None:
    """Have the member commit in some partitions, or not, while the source moves on; nothing else changes there."""
    before = life.look(copying)
    for _ in range(life.draw.randint(1, 3)):
        if life.draw.random() < 0.5:
            chosen = life.draw.sample(range(PARTITIONS), life.draw.randint(1, PARTITIONS))
            committed = {number: life.draws(number, before[number]) for number in chosen}
            wanted = [TopicPartition(copying.copy, number, offset) for number, offset in committed.items()]
            member.commit(offsets=wanted, asynchronous=False)
            for number, offset in committed.items():
                if offset != before[number] or number in life.theirs:  # else it is the flow's own, to whoever looks
                    life.flows.setdefault(number, before[number])
                    life.theirs[number] = offset
            before = [committed.get(number, offset) for number, offset in enumerate(before)]
        life.move_source(copying)
        life.draw.choice((lambda: None, lambda: member.poll(0.3)))()
        time.sleep(life.draw.uniform(0, 3 * EVERY_S))  # rounds go by
        assert life.look(copying) == before, life.name


def live(life: Life, copying: Copying) -> None:
    """The whole life, and in the end what the flow does with what is left to it."""
    life.move_source(copying)
    wait_offsets(copying, life.name, lambda found: all(offset >= 0 for offset in found))
    for _ in range(life.draw.randint(1, 2)):
        member = join(life, copying)
        act(life, member, copying)
        member.close()
        if life.draw.random() < 0.5:
            life.move_source(copying)
            time.sleep(life.draw.uniform(0, 3 * EVERY_S))
            life.look(copying)


def settled(life: Life, copying: Copying) -> None:
    """What nobody else has committed is where the source's group ends; what a member has committed is as it was."""
    end = [clients.stable_end(copying.source, copying.topic, number) for number in range(PARTITIONS)]
    begin(copying.source, life.name, [(copying.topic, *it) for it in enumerate(end)])
    copies = [clients.stable_end(copying.target, copying.copy, number) for number in range(PARTITIONS)]

    def moved(found: Sequence[int]) -> bool:
        return all(found[number] >= copies[number] - 1 for number in range(PARTITIONS) if number not in life.theirs)

    wait_offsets(copying, life.name, moved)
    life.look(copying)


@pytest.mark.tier("long")
@pytest.mark.timeout(budget(300, 3_000))
def test_a_group_that_lives_is_never_moved(make_copying: MakeCopying, unique: Callable[[str], str]) -> None:
    copying = make_copying(groups=EVERY)
    producer = clients.producer(copying.source)
    for number in range(RECORDS * PARTITIONS):
        producer.produce(copying.topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(clients.TIMEOUT_S) == 0
    worker = copying.running()
    lives = [Life(unique(f"life-{seed}"), random.Random(seed)) for seed in range(SCHEDULES)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda life: live(life, copying), lives))
        list(pool.map(lambda life: settled(life, copying), lives))
    assert worker.stop() == 0, worker.tail()
    assert any(life.theirs for life in lives)
    assert any(len(life.theirs) < PARTITIONS for life in lives)
