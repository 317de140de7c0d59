"""A member of a consumer group (KIP-848) in the group workload: follows the broker's assignment."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from embedded_broker.simulation.group_history import GroupHistory, Ownership
from embedded_broker.simulation.history import History, TopicPartition
from embedded_broker.simulation.member import DISK_FULL, NONE, REBALANCE_MS, RETRIABLE, MembershipLost, SimulatedMember
from embedded_broker.simulation.wire import SimulatedClient

JOIN, LEAVE = 0, -1
MISTAKE_CHANCE, MISTAKE_STEP = 0.02, 7
"""Of a heartbeat with an epoch that the member doesn't have: no lost response is needed for it to be fenced."""
WRONG_EPOCH = ErrorCode.fenced_member_epoch
FENCED = frozenset({WRONG_EPOCH, ErrorCode.unknown_member_id, ErrorCode.group_id_not_found})
STALE = frozenset({ErrorCode.stale_member_epoch})


class ModernMember(SimulatedMember):
    """A member of a consumer group. It revokes partitions before it takes others, and confirms by heartbeat."""

    def __init__(self, client: SimulatedClient, history: History, group_history: GroupHistory, name: str) -> None:
        super().__init__(client, history, group_history, name)
        self._topic_id = UUID(int=0)
        self._says_all = True
        self._has_changed = False
        self._given_back: list[Ownership] = []
        self._keeps_id = False

    @property
    def instance_id(self) -> str | None:
        """See Member. It has none."""
        return None

    async def join(self) -> None:
        """See Member. After a lost connection it goes on with what it holds."""
        self._says_all = True
        if self.epoch > JOIN:
            return
        self.release_all()
        if self._keeps_id:
            # Its delayed commits would be its own.
            self._former = [each for each in self._former if each[0].member_id != self.member_id]
        else:
            self.member_id = str(UUID(int=self.random.getrandbits(128), version=4))
        self._keeps_id = False
        self.epoch = JOIN
        while self.epoch == JOIN:
            await self.heartbeat()

    async def heartbeat(self) -> None:
        """See Member."""
        sent, self.crashes_at_send = self.group_history.tick(), self.history.crashes
        fields = self._heartbeat()
        is_mistaken = not self.fault_free and self.epoch > JOIN and self.random.random() < MISTAKE_CHANCE
        if is_mistaken:
            fields["member_epoch"] += MISTAKE_STEP
        answer = await self.client.call("consumer_group_heartbeat", 1, **fields)
        if answer.error_code is NONE:
            if answer.member_epoch > self.epoch:
                # Not before: who has to give back more still has the epoch, and may commit whatever it names (as in
                # Kafka, which looks at the epoch only).
                self._end_given_back()
            self.epoch = answer.member_epoch
            self._says_all = self._has_changed = False
            if answer.assignment is not None:
                await self._follow(answer.assignment, sent)
        elif answer.error_code is DISK_FULL:
            self.history.refused(self.client.now_s, f"{self.name}: a heartbeat gave {answer.error_code.name}")
        elif answer.error_code not in RETRIABLE:
            if self.epoch == JOIN or answer.error_code not in FENCED:
                self.unexplained("heartbeat", answer.error_code)
            if is_mistaken:
                self._given_back.clear()  # the error says nothing of them
            self._is_fenced(answer.error_code)

    def _is_fenced(self, error_code: ErrorCode) -> None:
        """Release all partitions, and join again. Raises MembershipLost."""
        released = self.release(list(self.held))
        if error_code is WRONG_EPOCH:
            # The broker goes on counting it as a member, with an epoch that it has not heard of: what it had given back
            # is no longer its own, what it held may be. It may join again under its id (KAFKA-19233), or another one.
            for ownership in released:
                ownership.is_abandoned = True
            self._keeps_id = self.random.random() < 0.5
        else:
            self._given_back += released
        self._end_given_back(error_after=self.crashes_at_send)
        self.epoch = -1
        raise MembershipLost

    def _end_given_back(self, error_after: int | None = None) -> None:
        for ownership in self._given_back:
            self.group_history.end(ownership, error_after)
        self._given_back.clear()

    def _heartbeat(self) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "group_id": self.group_history.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "rebalance_timeout": -1,
            "topic_partitions": None,
            "subscribed_topic_names": None,
        }
        if self._says_all or self.epoch == JOIN:
            fields |= {"rebalance_timeout": REBALANCE_MS, "subscribed_topic_names": [self.topic]}
        if self._says_all or self._has_changed or self.epoch == JOIN:
            indexes = sorted(index for _, index in self.held)
            fields["topic_partitions"] = [{"topic_id": self._topic_id, "partitions": indexes}] if indexes else []
        return fields

    async def _follow(self, assignment: Any, sent: int) -> None:
        """Revoke partitions that aren't assigned, then take those that are.

        Raises NoResponse; the next heartbeat gets the whole assignment again then.
        """
        wanted: set[TopicPartition] = set()
        for topic in assignment.topic_partitions:
            self._topic_id = topic.topic_id
            wanted |= {(self.topic, index) for index in topic.partitions}
        leaving = [partition for partition in self.held if partition not in wanted]
        coming = sorted(wanted - set(self.held))
        self._has_changed = bool(leaving or coming)
        if leaving and self.random.random() < 0.7:
            await self.commit(leaving)
        self._given_back += self.release(leaving)
        await self.take(self.group_history.given(self.member_id, coming, sent))

    async def leave(self) -> None:
        """See Member."""
        fields = {"group_id": self.group_history.group, "member_id": self.member_id, "member_epoch": LEAVE}
        ownerships = [*self.release(list(self.held)), *self._given_back]
        self._given_back.clear()
        self.epoch = -1
        answer = await self.client.call(
            "consumer_group_heartbeat", 1, rebalance_timeout=-1, topic_partitions=None, **fields
        )
        if answer.error_code is NONE:
            for ownership in ownerships:
                self.group_history.end(ownership)

    def commit_refused(self, error_code: ErrorCode) -> None:
        """See Member."""
        if error_code in FENCED:
            self._is_fenced(error_code)
        elif error_code not in STALE:  # then the next heartbeat tells the epoch
            self.unexplained("a commit", error_code)

    def release_all(self) -> None:
        """See Member. It joins with a new id afterwards."""
        super().release_all()
        self._given_back.clear()
        self.epoch = -1
