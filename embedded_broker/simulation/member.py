"""A consumer in a group, of either protocol: it processes what it holds, commits, crashes, falls silent, comes back."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable

from kio.schema.errors import ErrorCode

from embedded_broker.simulation.history import History, Kind, TopicPartition
from embedded_broker.simulation.ledger import Ledger, Tenure
from embedded_broker.simulation.reading import Reader, fetch_offsets
from embedded_broker.simulation.wire import Client, Gone

NONE = ErrorCode.none
SESSION_MS = 1_000
REBALANCE_MS = 2_000
TROUBLE_CHANCE = 0.06
LATE_CHANCE = 0.5
FORMER_MAX = 4
ASK_AGAIN = frozenset(
    {ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available, ErrorCode.rebalance_in_progress}
)
FULL = ErrorCode.not_coordinator


class Dead(Exception):
    """This incarnation is over: it has crashed, or left, or was replaced."""


class Lost(Exception):
    """The member has no place in its group any more, and joins anew."""


class Member(ABC):
    """One consumer, incarnation after incarnation."""

    def __init__(self, client: Client, history: History, ledger: Ledger, name: str) -> None:
        self.client, self.history, self.ledger, self.name = client, history, ledger, name
        self.random = client.random
        self.calm = False
        """No more troubles of its own making."""
        self.held: dict[TopicPartition, Tenure] = {}
        self.member_id, self.epoch = "", -1
        self._reader: Reader
        self._committed: dict[TopicPartition, int] = {}
        self._former: list[tuple[Tenure, int, int]] = []  # tenures that are over, with epoch and offset

    @property
    def topic(self) -> str:
        """What it is subscribed to."""
        return self.ledger.partitions[0][0]

    @property
    def is_at_rest(self) -> bool:
        """Whether it has processed and committed all that it knows of."""
        return all(
            self._committed.get(each) == self._reader.positions.get(each) == self._reader.seen[each].high_watermark
            for each in self.held
        )

    async def run(self) -> None:
        """For ever."""
        while True:
            self._reader = Reader(self.client, self.history, self.name, self.ledger.partitions, False)
            for seen in self._reader.seen.values():
                seen.whole = False
            try:
                await self._live()
            except Dead:
                self.forget()
                self.client.disconnect()
                await asyncio.sleep(0 if self.calm else self.random.uniform(0, 3))

    async def _live(self) -> None:
        while True:
            try:
                await self.join()
                while True:
                    await self._cycle()
            except Lost:
                self.forget()
            except Gone:
                await self.client.pause()

    async def _cycle(self) -> None:
        await self.attend()
        if self.random.random() < LATE_CHANCE:
            await self._commit_late()
        if self.held:
            await self._process()
            if self.calm or self.random.random() < 0.6:
                await self.commit(list(self.held))
        await asyncio.sleep(self.random.uniform(0.02, 0.2))
        if not self.calm and self.random.random() < TROUBLE_CHANCE:
            await self._have_trouble()

    async def _have_trouble(self) -> None:
        what = self.random.choice(("crash", "silence", "silence", "leave"))
        if what == "silence":
            await asyncio.sleep(self.random.uniform(0.3, 4))
            if self.held:  # as far as it knows
                await self._process()
                await self.commit(list(self.held))
            return
        if what == "leave":
            with contextlib.suppress(Gone):  # whoever leaves doesn't wait for the answer for ever
                await self.leave()
        raise Dead

    async def _process(self) -> None:
        for partition, records in (await self._reader.poll(max_wait_ms=100)).items():
            self.ledger.processed[partition].update(records)

    async def commit(self, partitions: Iterable[TopicPartition]) -> None:
        """Say how far it is. Raises Gone, Lost."""
        for partition in partitions:
            offset = self._reader.positions[partition]
            if offset != self._committed.get(partition):
                error_code = await self._commit(self.held[partition], self.member_id, self.epoch, offset)
                if error_code is NONE:
                    self._committed[partition] = offset
                elif error_code is FULL:
                    self.history.refused(self.client.now_s, f"{self.name}: {error_code.name}")
                else:
                    self.commit_refused(error_code)

    async def _commit(self, tenure: Tenure, member_id: str, epoch: int, offset: int) -> ErrorCode:
        commit = self.ledger.sent(tenure, epoch, offset)
        partition = {"partition_index": tenure.partition[1], "committed_offset": offset, "committed_metadata": ""}
        answer = await self.client.call(
            "offset_commit",
            9,
            group_id=self.ledger.group,
            member_id=member_id,
            generation_id_or_member_epoch=epoch,
            group_instance_id=self.instance_id,
            topics=[{"name": tenure.partition[0], "partitions": [partition]}],
        )
        error_code: ErrorCode = answer.topics[0].partitions[0].error_code
        if error_code is NONE:
            self.ledger.accepted(commit)
        else:
            commit.refused = True
        return error_code

    async def _commit_late(self) -> None:
        """As a request that was long on its way: what once was its to commit."""
        late = [each for each in self._former if each[0].over is not None]
        if late:
            tenure, epoch, offset = late[-1]
            self._former.remove(late[-1])
            await self._commit(tenure, tenure.member_id, epoch, offset)

    async def take(self, tenures: Iterable[Tenure]) -> None:
        """Begin where the group stands. Raises Gone; then the partitions are not held."""
        found = {tenure.partition: tenure for tenure in tenures}
        if not found:
            return
        sent = self.ledger.tick()
        offsets = await fetch_offsets(self.client, self.ledger.group, list(found))
        for partition, offset in offsets.items():
            self.ledger.check_fetched(partition, offset, sent)
            self._reader.positions[partition] = max(offset, 0)
            self._committed[partition] = max(offset, 0)
        self.held.update(found)
        self._hold_only()

    def let_go(self, partitions: Iterable[TopicPartition]) -> list[Tenure]:
        """Hold them no more."""
        gone = [self.held.pop(partition) for partition in partitions]
        for tenure in gone:
            self._former.append((tenure, self.epoch, self._reader.positions.get(tenure.partition, 0)))
            self._committed.pop(tenure.partition, None)
        del self._former[:-FORMER_MAX]
        self._hold_only()
        return gone

    def _hold_only(self) -> None:
        self._reader.positions = {each: self._reader.positions.get(each, 0) for each in self.held}

    def forget(self) -> None:
        """Nothing is held any more."""
        self.let_go(list(self.held))

    def puzzled(self, what: str, error_code: ErrorCode) -> None:
        """The broker has given an answer that nothing explains."""
        self.history.found(Kind.BROKEN, f"{self.name}: {what} gave {error_code.name}")

    @property
    @abstractmethod
    def instance_id(self) -> str | None:
        """Of a static member."""

    @abstractmethod
    async def join(self) -> None:
        """Get a place in the group. Raises Gone, Dead."""

    @abstractmethod
    async def attend(self) -> None:
        """One heartbeat and what it leads to. Raises Gone, Lost, Dead."""

    @abstractmethod
    async def leave(self) -> None:
        """Raises Gone."""

    @abstractmethod
    def commit_refused(self, error_code: ErrorCode) -> None:
        """Raises Lost, Dead."""
