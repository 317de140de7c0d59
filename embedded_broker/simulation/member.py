"""A consumer in a group, of either protocol: processes its partitions, commits, crashes, falls silent, restarts."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable

from kio.schema.errors import ErrorCode

from embedded_broker.simulation.fetching import Style
from embedded_broker.simulation.group_history import GroupHistory, Ownership
from embedded_broker.simulation.history import History, TopicPartition, ViolationKind
from embedded_broker.simulation.readers import SimulatedReader, fetch_offsets
from embedded_broker.simulation.wire import NoResponse, SimulatedClient

NONE = ErrorCode.none
SESSION_MS = 1_000
REBALANCE_MS = 2_000
FAULT_CHANCE = 0.06
HEARTBEAT_INTERVALS_S = (0.0, 0.3, 0.7)
"""Within `SESSION_MS`. What a rebalance takes from a member, it has until its next heartbeat, and works on."""
LATE_CHANCE = 0.5
FORMER_MAX = 4
RETRIABLE = frozenset(
    {ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available, ErrorCode.rebalance_in_progress}
)
DISK_FULL = ErrorCode.not_coordinator


class MemberStopped(Exception):
    """The member has crashed, left, or was replaced by another with its instance id; it restarts."""


class MembershipLost(Exception):
    """The member is no longer in its group, and joins again."""


class SimulatedMember(ABC):
    """One consumer, over any number of restarts."""

    def __init__(self, client: SimulatedClient, history: History, group_history: GroupHistory, name: str) -> None:
        self.client, self.history, self.group_history, self.name = client, history, group_history, name
        self.random = client.random
        self.fault_free = False
        """Whether it causes no more faults by itself."""
        self.held: dict[TopicPartition, Ownership] = {}
        self.member_id, self.epoch = "", -1
        self.crashes_at_send = 0
        """How many crashes there had been when it sent the request whose response says whether it is a member."""
        self._reader: SimulatedReader
        self._heartbeat_interval_s = 0.0
        self._committed: dict[TopicPartition, int] = {}
        self._former: list[tuple[Ownership, int, int]] = []  # ownerships that are over, with epoch and offset

    @property
    def topic(self) -> str:
        """What it is subscribed to."""
        return self.group_history.partitions[0][0]

    @property
    def is_at_rest(self) -> bool:
        """Whether it has processed and committed all records of its partitions."""
        return all(
            self._committed.get(each) == self._reader.positions.get(each) == self._reader.reads[each].high_watermark
            for each in self.held
        )

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            style, partitions = Style.of(self.random), self.group_history.partitions
            self._heartbeat_interval_s = self.random.choice(HEARTBEAT_INTERVALS_S)
            self._reader = SimulatedReader(self.client, self.history, self.name, partitions, False, style)
            for reads in self._reader.reads.values():
                reads.complete = False
            try:
                await self._live()
            except MemberStopped:
                self.release_all()
                self.client.disconnect()
                await asyncio.sleep(0 if self.fault_free else self.random.uniform(0, 3))

    async def _live(self) -> None:
        while True:
            try:
                await self.join()
                while True:
                    await self._cycle()
            except MembershipLost:
                self.release_all()
            except NoResponse:
                await self.client.pause()

    async def _cycle(self) -> None:
        await self.heartbeat()
        due_s = self.client.now_s + self._heartbeat_interval_s
        if self.random.random() < LATE_CHANCE:
            await self._commit_late()
        await self._work()
        while self.client.now_s < due_s:
            await self._work()

    async def _work(self) -> None:
        if self.held:
            await self._process()
            if self.fault_free or self.random.random() < 0.6:
                await self.commit(list(self.held))
        await asyncio.sleep(self.random.uniform(0.02, 0.2))
        if not self.fault_free and self.random.random() < FAULT_CHANCE:
            await self._inject_fault()

    async def _inject_fault(self) -> None:
        what = self.random.choice(("crash", "silence", "silence", "leave"))
        if what == "silence":
            await asyncio.sleep(self.random.uniform(0.3, 4))
            if self.held:  # as far as it knows
                await self._process()
                await self.commit(list(self.held))
            return
        if what == "leave":
            with contextlib.suppress(NoResponse):  # whoever leaves doesn't wait for the answer for ever
                await self.leave()
        raise MemberStopped

    async def _process(self) -> None:
        for partition, records in (await self._reader.poll(max_wait_ms=100)).items():
            self.group_history.processed[partition].update(records)

    async def commit(self, partitions: Iterable[TopicPartition]) -> None:
        """Commit its positions. Raises NoResponse, MembershipLost."""
        for partition in partitions:
            offset = self._reader.positions[partition]
            if offset != self._committed.get(partition):
                error_code = await self._commit(self.held[partition], self.member_id, self.epoch, offset)
                if error_code is NONE:
                    self._committed[partition] = offset
                elif error_code is DISK_FULL:
                    self.history.refused(self.client.now_s, f"{self.name}: {error_code.name}")
                else:
                    self.commit_refused(error_code)

    async def _commit(self, ownership: Ownership, member_id: str, epoch: int, offset: int) -> ErrorCode:
        commit, self.crashes_at_send = self.group_history.sent(ownership, epoch, offset), self.history.crashes
        partition = {"partition_index": ownership.partition[1], "committed_offset": offset, "committed_metadata": ""}
        answer = await self.client.call(
            "offset_commit",
            9,
            group_id=self.group_history.group,
            member_id=member_id,
            generation_id_or_member_epoch=epoch,
            group_instance_id=self.instance_id,
            topics=[{"name": ownership.partition[0], "partitions": [partition]}],
        )
        error_code: ErrorCode = answer.topics[0].partitions[0].error_code
        if error_code is NONE:
            self.group_history.accepted(commit)
        else:
            commit.refused = True
        return error_code

    async def _commit_late(self) -> None:
        """Send a commit for a partition that it no longer owns, as a delayed request would arrive."""
        late = [each for each in self._former if each[0].may_be_late]
        if late:
            ownership, epoch, offset = late[-1]
            self._former.remove(late[-1])
            await self._commit(ownership, ownership.member_id, epoch, offset)

    async def take(self, ownerships: Iterable[Ownership]) -> None:
        """Take more partitions, from the committed offsets on. Raises NoResponse; then it doesn't own them."""
        found = {ownership.partition: ownership for ownership in ownerships}
        if not found:
            return
        sent = self.group_history.tick()
        offsets = await fetch_offsets(self.client, self.group_history.group, list(found))
        for partition, offset in offsets.items():
            self.group_history.check_fetched(partition, offset, sent)
            self._reader.positions[partition] = max(offset, 0)
            self._committed[partition] = max(offset, 0)
        self.held.update(found)
        self._seek_to_held()

    def release(self, partitions: Iterable[TopicPartition]) -> list[Ownership]:
        """Give up partitions; returns their ownerships."""
        gone = [self.held.pop(partition) for partition in partitions]
        for ownership in gone:
            self._former.append((ownership, self.epoch, self._reader.positions.get(ownership.partition, 0)))
            self._committed.pop(ownership.partition, None)
        del self._former[:-FORMER_MAX]
        self._seek_to_held()
        return gone

    def _seek_to_held(self) -> None:
        self._reader.positions = {each: self._reader.positions.get(each, 0) for each in self.held}

    def release_all(self) -> None:
        """Give up all partitions."""
        self.release(list(self.held))

    def unexplained(self, what: str, error_code: ErrorCode) -> None:
        """Record an error that no fault explains as a violation."""
        self.history.found(ViolationKind.BROKEN, f"{self.name}: {what} gave {error_code.name}")

    @property
    @abstractmethod
    def instance_id(self) -> str | None:
        """Of a static member."""

    @abstractmethod
    async def join(self) -> None:
        """Join the group. Raises NoResponse, MemberStopped."""

    @abstractmethod
    async def heartbeat(self) -> None:
        """Send a heartbeat, and act on its response. Raises NoResponse, MembershipLost, MemberStopped."""

    @abstractmethod
    async def leave(self) -> None:
        """Leave the group. Raises NoResponse."""

    @abstractmethod
    def commit_refused(self, error_code: ErrorCode) -> None:
        """Take the error of a commit. Raises MembershipLost, MemberStopped."""
