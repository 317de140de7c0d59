"""A consumer group's machine in memory, and members that behave like clients."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID, uuid5

from kio.schema.errors import ErrorCode

from embedded_broker.state import consumer_log
from embedded_broker.state.codec import FieldReader
from embedded_broker.state.consumer_groups import ConsumerEffects, ConsumerGroup
from embedded_broker.state.consumer_types import (
    NOTHING,
    ConsumerAnswer,
    ConsumerGroupConfig,
    ConsumerHeartbeat,
    ConsumerTimer,
    Partitions,
    TopicInfo,
    Unwatch,
    Watch,
)

NAMESPACE = UUID(int=7)


def topic_id(name: str) -> UUID:
    return uuid5(NAMESPACE, name)


def partitions(name: str, *indexes: int) -> Partitions:
    return frozenset((topic_id(name), index) for index in indexes)


class Topics:
    """A `Catalog` that tests can change."""

    def __init__(self, **counts: int) -> None:
        self.version = 0
        self._counts = dict(counts)

    def names(self) -> Collection[str]:
        return self._counts.keys()

    def infos(self, names: frozenset[str]) -> dict[str, TopicInfo]:
        return {name: TopicInfo(topic_id(name), self._counts[name]) for name in sorted(names & self._counts.keys())}

    def set(self, name: str, count: int | None) -> None:
        self.version += 1
        if count is None:
            self._counts.pop(name, None)
        else:
            self._counts[name] = count

    def everything(self) -> Partitions:
        return frozenset((topic_id(name), index) for name, count in self._counts.items() for index in range(count))


class Log:
    """A group with its timers and its log; `restart` makes it anew from the log."""

    def __init__(self, topics: Topics, config: ConsumerGroupConfig | None = None) -> None:
        self.topics = topics
        self.group = ConsumerGroup("g", config or ConsumerGroupConfig())
        self.timers: dict[str, Watch] = {}
        self.written: dict[bytes, bytes | None] = {}

    def send(self, request: ConsumerHeartbeat) -> ConsumerAnswer:
        answer, effects = self.group.heartbeat(request, self.topics)
        self._take(effects)
        return answer

    def expire(self, event: ConsumerTimer) -> None:
        self._take(self.group.expired(event))

    def _take(self, effects: ConsumerEffects) -> None:
        for change in effects.records:
            key, value = consumer_log.encode("g", change)
            self.written.pop(key, None)
            if value is not None:
                self.written[key] = value
        for timer in effects.timers:
            if isinstance(timer, Unwatch):
                self.timers.pop(timer.key, None)
            else:
                self.timers[timer.key] = timer

    def restart(self) -> None:
        self.group = ConsumerGroup("g", self.group.config)
        for key, value in self.written.items():
            reader = FieldReader(key)
            record = consumer_log.decode(reader.number("h"), reader, value)
            self.group.replay(record.change)
        self.timers.clear()
        self._take(self.group.resume())


class Client:
    """A member as KIP-848 wants it; `holds` is what it consumes from."""

    def __init__(self, log: Log, member_id: str, *names: str, **said: object) -> None:
        self.log, self.member_id, self.said = log, member_id, said
        self.names: frozenset[str] | None = frozenset(names) if names else None
        self.epoch = 0
        self.holds: Partitions = NOTHING
        self.told: Partitions = NOTHING
        self.joined = False
        self.unsure = False

    def beat(self, *, lose_answer: bool = False, **changes: object) -> ConsumerAnswer:
        """One heartbeat. Says everything when joining and after a lost answer, else what it holds.

        What it was told and has yet to take counts as held: whoever takes a partition after having said that it holds
        none shares it with the next owner, on Kafka too.
        """
        owned = self.holds | self.told
        fields: dict[str, object] = {"member_id": self.member_id, "member_epoch": self.epoch, "owned": owned}
        if "instance_id" in self.said:
            fields["instance_id"] = self.said["instance_id"]
        if not self.joined or self.unsure:
            fields |= {"topic_names": self.names or frozenset(), "rebalance_timeout_ms": 1_000, **self.said}
        if not self.joined:
            fields["owned"] = NOTHING
        answer = self.log.send(ConsumerHeartbeat(**(fields | changes)))  # type: ignore[arg-type]
        self.unsure = lose_answer
        if lose_answer:
            return answer
        if answer.error_code in (ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id):
            self.epoch, self.holds, self.told, self.joined = 0, NOTHING, NOTHING, False
        elif answer.error_code is ErrorCode.none:
            self.joined, self.epoch = True, answer.member_epoch
            if answer.assignment is not None:
                self.told = answer.assignment
        return answer

    def revoke(self) -> None:
        """Let go of what it may no longer hold."""
        self.holds &= self.told

    def take(self) -> None:
        """Hold all that it may."""
        self.holds = self.told

    def turn(self) -> ConsumerAnswer:
        """A heartbeat, and do as told."""
        answer = self.beat()
        self.take()
        return answer


def settle(*clients: Client) -> None:
    """Heartbeats in turn until each member has what it shall have."""
    for _ in range(10):
        for client in clients:
            client.turn()
        group = clients[0].log.group
        if group.state.value == "Stable":
            return
    raise AssertionError(f"not settled: {group.state}, {[(each.member_id, each.holds) for each in clients]}")
