"""Consumer groups (KIP-848): writes the records of their state machines before it answers, and keeps their timers.

Part of `GroupCoordinator`. Source: Kafka `GroupMetadataManager.consumerGroupHeartbeat`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from kio.schema.errors import ErrorCode

from embedded_broker.coordinators.background import Background
from embedded_broker.coordinators.group_memory import GroupMemory, Place
from embedded_broker.coordinators.group_registry import GroupRegistry, is_empty
from embedded_broker.coordinators.ports import CoordinatorHost, Topics
from embedded_broker.state import consumer_log, subscriptions
from embedded_broker.state.consumer_groups import ConsumerEffects, ConsumerGroup
from embedded_broker.state.consumer_members import OF_A_MEMBER
from embedded_broker.state.consumer_types import (
    JOIN_EPOCH,
    Catalog,
    ConsumerAnswer,
    ConsumerHeartbeat,
    ConsumerTimer,
    HeartbeatRejected,
    TopicInfo,
    Unwatch,
)
from embedded_broker.state.owners import SOMEBODY, Owner


class TopicCatalog:
    """The broker's topics as a `Catalog`, which group state machines read."""

    def __init__(self, topics: Callable[[], Topics]) -> None:
        self._topics = topics

    @property
    def version(self) -> int:
        """See `Catalog`."""
        return self._topics().version

    def names(self) -> Collection[str]:
        """See `Catalog`."""
        return self._topics().names()

    def infos(self, names: frozenset[str]) -> Mapping[str, TopicInfo]:
        """See `Catalog`."""
        all_names = self._topics().names()
        few, many = (all_names, names) if len(all_names) < len(names) else (names, all_names)
        topics = [(name, self._topics().get(name)) for name in sorted(name for name in few if name in many)]
        return {name: TopicInfo(topic.topic_id, len(topic.partitions)) for name, topic in topics if topic is not None}


class VisibleTopics:
    """A catalog restricted to the topics that a member is authorized to describe; `infos` is not restricted."""

    def __init__(self, topics: Catalog, sees: Callable[[str], bool]) -> None:
        self._topics, self._sees = topics, sees

    @property
    def version(self) -> int:
        """See `Catalog`."""
        return self._topics.version

    def names(self) -> Collection[str]:
        """See `Catalog`."""
        return [name for name in self._topics.names() if self._sees(name)]

    def infos(self, names: frozenset[str]) -> Mapping[str, TopicInfo]:
        """See `Catalog`."""
        return self._topics.infos(names)


class ConsumerGroups:
    """All groups of the consumer protocol. Called on the event loop only."""

    def __init__(
        self,
        host: CoordinatorHost,
        background: Background,
        registry: GroupRegistry,
        catalog: TopicCatalog,
        memory: GroupMemory,
    ) -> None:
        """`memory`: of all groups, those of the classic protocol included."""
        self._host, self._background, self._registry, self.catalog = host, background, registry, catalog
        self.memory = memory

    def resume(self) -> None:
        """Start the session timeout of every member found at recovery."""
        for group in self._registry.all():
            if isinstance(group, ConsumerGroup):
                for member in group.members:
                    self.memory.found(Place(group.group_id, member.member_id), member.client_host)
                    self._note(group, member.member_id)
                self._carry_out(group, group.resume())

    async def heartbeat(
        self,
        group_id: str,
        request: ConsumerHeartbeat,
        version: int,
        sees: Callable[[str], bool] | None = None,
        owner: Owner = SOMEBODY,
    ) -> ConsumerAnswer:
        """Handle ConsumerGroupHeartbeat. Returns only once what it changed, and what was changed before, is on disk.
        Raises NoSpace.

        Args:
            group_id: which group.
            request: the heartbeat.
            version: of the API.
            sees: whether the member may see a topic; None: all. As in Kafka, the patterns of all members find what the
                one may see whose heartbeat comes first after a topic has come or gone, or with a new pattern.
            owner: the client's connection.
        """
        try:
            subscriptions.check(group_id, request, version)
            group, is_new = self._find(group_id, request)
        except HeartbeatRejected as refused:
            return ConsumerAnswer(refused.error_code, str(refused))
        if request.member_epoch <= JOIN_EPOCH or request.says_something:
            self._registry.refuse_if_full()
        if not request.member_id:
            request = replace(request, member_id=str(self._host.new_uuid()))
        if not self._admits(group_id, request, owner):
            message = "The members of all groups, or those of this client, take all the memory that there is for them."
            return ConsumerAnswer(ErrorCode.group_max_size_reached, message)
        topics = self.catalog if sees is None else VisibleTopics(self.catalog, sees)
        answer, effects = group.heartbeat(request, topics)
        self._carry_out(group, effects, is_new=is_new and answer.error_code is ErrorCode.none)
        self.memory.forget_absent(Place(group_id, request.member_id))
        await self._registry.durable()
        return answer

    def _admits(self, group_id: str, request: ConsumerHeartbeat, owner: Owner) -> bool:
        """Return whether there is memory for what a member says of itself; most heartbeats say nothing."""
        if request.member_epoch < JOIN_EPOCH or (request.member_epoch != JOIN_EPOCH and not request.says_something):
            return True
        return self.memory.admit(owner, Place(group_id, request.member_id), request.size_bytes)

    def evict(self, group: ConsumerGroup, member_id: str) -> None:
        """Do as if the member had left."""
        _, effects = group.remove([(member_id, None)])
        self._carry_out(group, effects)

    def _note(self, group: ConsumerGroup, member_id: str) -> None:
        """Note that a member has come, has changed or has left."""
        member, place = group.members.get(member_id), Place(group.group_id, member_id)
        if member is None:
            self.memory.left(place)
        else:
            self.memory.note_one(place, member.size_bytes(len(group.members.targets.get(member_id, ()))))

    async def remove(self, group: ConsumerGroup, leaving: list[tuple[str, str | None]]) -> list[ErrorCode]:
        """Handle LeaveGroup by (member id, instance id), for an admin client. Returns only once it is on disk. Raises
        NoSpace."""
        self._registry.refuse_if_full()
        results, effects = group.remove(leaving)
        self._carry_out(group, effects)
        await self._registry.durable()
        return results

    def _find(self, group_id: str, request: ConsumerHeartbeat) -> tuple[ConsumerGroup, bool]:
        """Find the group, and whether it is new, that is not registered. Raises HeartbeatRejected."""
        group = self._registry.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group, False
        if group is None and request.member_epoch != JOIN_EPOCH:
            raise HeartbeatRejected(ErrorCode.group_id_not_found, f"Consumer group {group_id} not found.")
        if group is not None and (request.member_epoch != JOIN_EPOCH or not is_empty(group)):
            raise HeartbeatRejected(ErrorCode.group_id_not_found, f"Group {group_id} is not a consumer group.")
        return self._registry.new_consumer(group_id), True

    def _carry_out(self, group: ConsumerGroup, effects: ConsumerEffects, is_new: bool = False) -> None:
        """Write one batch of records, then set the timers. A new group is known from here on: when it can be
        written.
        """
        records = [consumer_log.encode(group.group_id, change) for change in effects.records]
        tombstones = self._registry.adopt(group) if is_new else []
        self._registry.append([*tombstones, *records])
        for member_id in {each.member_id: None for each in effects.records if isinstance(each, OF_A_MEMBER)}:
            self._note(group, member_id)
        for timer in effects.timers:
            key = (group.group_id, timer.key)
            if isinstance(timer, Unwatch):
                self._background.cancel(key)
            else:
                self._background.schedule(key, timer.delay_ms, self._expiry(group, timer.event))

    def _expiry(self, group: ConsumerGroup, event: ConsumerTimer) -> Callable[[], None]:
        return lambda: self._carry_out(group, group.expired(event))
