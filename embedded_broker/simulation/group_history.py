"""The history of one group: which member owned which partition when, and which commits the broker accepted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from embedded_broker.simulation.checker import Log
from embedded_broker.simulation.history import History, TopicPartition, ViolationKind


@dataclass(eq=False, slots=True)
class Ownership:
    """One member's ownership of one partition, as far as the member knows."""

    member_id: str
    partition: TopicPartition
    began: int = 0
    """When its member got it."""
    ended: int | None = None
    """When a client first got a response that implies its end."""
    crashes: int | None = None
    """How many there had been when the request was sent, if an error in response to it has said that it is over. An
    error tells at once what memory says, as in Kafka; a crash may take that back, even while it is under way."""
    given_on: int | None = None
    """When another member got the partition, in response to a request that was sent after this had begun."""
    is_abandoned: bool = False
    """Whether its member has given it up, while the partition may still be the member's for the broker: until it is
    another member's, commits of it are right (KIP-1251)."""

    @property
    def may_be_late(self) -> bool:
        """Whether a commit of it would be a delayed one."""
        return self.ended is not None or self.is_abandoned


@dataclass(eq=False, slots=True)
class AskedCommit:
    """An offset that a member has asked to be committed. `epoch` may be a classic group's generation."""

    ownership: Ownership
    epoch: int
    offset: int
    sent: int
    acked: int | None = None
    refused: bool = False

    @property
    def is_open(self) -> bool:
        """Whether nobody knows what has become of it."""
        return self.acked is None and not self.refused


class GroupHistory:
    """Of one group. Times are numbers of events: whatever has the lower one came before.

    Invariant: in each partition members start at the committed offset, commit only what they have processed, and so
    every commit of a later ownership is at or above all of an earlier one.
    """

    def __init__(self, history: History, group: str, partitions: Iterable[TopicPartition]) -> None:
        self._history, self.group = history, group
        self.partitions = list(partitions)
        self.processed: dict[TopicPartition, dict[int, bytes]] = {partition: {} for partition in self.partitions}
        """Offset → value of all that some member has worked on, whether or not it got round to its commit."""
        self._commits: dict[TopicPartition, list[AskedCommit]] = {partition: [] for partition in self.partitions}
        self._fetched: dict[TopicPartition, list[tuple[int, int]]] = {partition: [] for partition in self.partitions}
        self._ownerships: dict[
            int, dict[TopicPartition, tuple[str, Ownership]]
        ] = {}  # by generation, with their owners
        self._given: dict[TopicPartition, list[Ownership]] = {partition: [] for partition in self.partitions}
        self._now = 0

    def tick(self) -> int:
        """Return the time now, which is later than all before."""
        self._now += 1
        return self._now

    def assigned(
        self, generation: int, owner: str, member_id: str, partitions: Iterable[TopicPartition]
    ) -> list[Ownership]:
        """Note that SyncGroup gave a member of a classic group its partitions: former generations are over.

        Args:
            generation: of the group.
            owner: the member's instance id if it has one, else its member id.
            member_id: its id.
            partitions: what it got.
        """
        now = self.tick()
        for former, ownerships in self._ownerships.items():
            for _, ownership in ownerships.values() if former < generation else ():
                ownership.ended = ownership.ended or now
        shared, got = self._ownerships.setdefault(generation, {}), []
        for partition in partitions:
            ownership = Ownership(member_id, partition)
            if partition in shared:
                other, before = shared[partition]
                if other != owner:
                    detail = f"{self.group}, generation {generation}: {partition} is given to {other} and {owner}"
                    self._history.found(ViolationKind.TWO_OWNERS, detail)
                if before.member_id == member_id:
                    ownership = before  # it has joined again, and nothing has changed
                else:
                    before.ended = before.ended or now
            shared[partition] = owner, ownership
            got.append(ownership)
        return got

    def given(self, member_id: str, partitions: Iterable[TopicPartition], sent: int) -> list[Ownership]:
        """Note that a heartbeat gave a member of a consumer group more partitions.

        A member that has joined again under its id goes on with those that it had abandoned: for the broker they may
        have been its own all the time.

        Args:
            member_id: its id.
            partitions: what it got.
            sent: when it sent the heartbeat.
        """
        now, got = self.tick(), []
        for partition in partitions:
            for former in self._given[partition]:
                if former.began < sent and former.member_id != member_id:
                    former.given_on = former.given_on or now
            ownership = self._open_one(member_id, partition)
            ownership.began, ownership.is_abandoned = now, False
            got.append(ownership)
        return got

    def _open_one(self, member_id: str, partition: TopicPartition) -> Ownership:
        """Return the member's ownership of a partition of which no end is known, or a new one."""
        for former in self._given[partition]:
            if former.member_id == member_id and former.ended is former.given_on is None:
                return former
        ownership = Ownership(member_id, partition)
        self._given[partition].append(ownership)
        return ownership

    def end(self, ownership: Ownership, error_after: int | None = None) -> None:
        """Note that the broker has confirmed that it is over.

        Args:
            ownership: which.
            error_after: if an error says so, how many crashes there had been when its request was sent.
        """
        if ownership.ended is None:
            ownership.ended = self.tick()
            ownership.crashes = error_after

    def sent(self, ownership: Ownership, epoch: int, offset: int) -> AskedCommit:
        """Note that a commit is about to be sent."""
        commit = AskedCommit(ownership, epoch, offset, self.tick())
        self._commits[ownership.partition].append(commit)
        return commit

    def accepted(self, commit: AskedCommit) -> None:
        """Note that the broker has taken a commit."""
        commit.acked = self.tick()
        ownership = commit.ownership
        is_known = ownership.crashes in (None, self._history.crashes)
        over, given_on = ownership.ended if is_known else None, ownership.given_on
        detail = f"{self.group}, {commit.ownership.partition}: {commit.offset} taken from {commit.ownership.member_id}"
        if over is not None and over < commit.sent:
            self._history.found(ViolationKind.STALE_COMMIT, f"{detail} with epoch {commit.epoch}, which was over")
        elif given_on is not None and given_on < commit.sent:
            self._history.found(
                ViolationKind.TWO_OWNERS, f"{detail} with epoch {commit.epoch}, and another member had it"
            )

    def check_fetched(self, partition: TopicPartition, offset: int, sent: int) -> None:
        """Check the committed offset that a member got in response to a request from `sent`."""
        commits = self._commits[partition]
        reached = [(each.offset, each.ownership) for each in commits if each.acked is not None and each.acked < sent]
        read = {found for at, found in self._fetched[partition] if at < sent}
        reached += [(each.offset, each.ownership) for each in commits if each.offset in read and not each.refused]
        lowest = max((reached_offset for reached_offset, _ in reached), default=-1)
        holders = {ownership for reached_offset, ownership in reached if reached_offset == lowest}
        # A commit without an answer may come late, while its member still holds the partition.
        late = {each.offset for each in commits if each.is_open and each.ownership in holders}
        if offset < lowest and offset not in late:
            detail = f"{self.group}, {partition}: the offset went from {lowest} to {offset}"
            self._history.found(ViolationKind.NON_MONOTONIC, detail)
        elif offset != -1 and offset not in {each.offset for each in commits if not each.refused}:
            self._history.found(
                ViolationKind.WRONG_GROUP_OFFSET, f"{self.group}, {partition}: nobody has committed {offset}"
            )
        self._fetched[partition].append((self.tick(), offset))

    def audit(self, offsets: Mapping[TopicPartition, int], logs: Mapping[TopicPartition, Log]) -> None:
        """Check the group at the end.

        Args:
            offsets: where the group stands.
            logs: what its members could read.
        """
        for partition, offset in offsets.items():
            self.check_fetched(partition, offset, self.tick())
            self._check_owners(partition)
            done = self.processed[partition]
            if missing := [at for at in logs[partition] if at < offset and at not in done]:
                detail = f"{self.group}, {partition}: nobody has processed {missing[0]}, the offset is {offset}"
                self._history.found(ViolationKind.SKIPPED_RECORD, detail)

    def _check_owners(self, partition: TopicPartition) -> None:
        """Check that of two ownerships all accepted commits of one come before all of the other."""
        spans: dict[Ownership, tuple[int, int]] = {}  # end of the first accepted commit, beginning of the last
        accepted = [(each, each.acked) for each in self._commits[partition] if each.acked is not None]
        for commit, acked in accepted:
            first, last = spans.get(commit.ownership, (acked, commit.sent))
            spans[commit.ownership] = min(first, acked), max(last, commit.sent)
        for commit, acked in accepted:
            for ownership, (first, last) in spans.items():
                if ownership is not commit.ownership and first < commit.sent and acked < last:
                    detail = f"{self.group}, {partition}: commits taken from {ownership.member_id}, then from"
                    self._history.found(
                        ViolationKind.TWO_OWNERS,
                        f"{detail} {commit.ownership.member_id}, then from {ownership.member_id} again",
                    )
                    return
