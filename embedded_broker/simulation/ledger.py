"""What a group's members know together: who held which partition when, and which commits the broker took from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from embedded_broker.simulation.checker import Log
from embedded_broker.simulation.history import History, Kind, TopicPartition


@dataclass(eq=False, slots=True)
class Tenure:
    """One member's time with one partition, as far as the member knows."""

    member_id: str
    partition: TopicPartition
    over: int | None = None
    """When the broker had let somebody know that it has ended."""


@dataclass(eq=False, slots=True)
class Commit:
    """An offset that a member has asked to be committed. `epoch` may be a classic group's generation."""

    tenure: Tenure
    epoch: int
    offset: int
    sent: int
    acked: int | None = None
    refused: bool = False

    @property
    def is_open(self) -> bool:
        """Whether nobody knows what has become of it."""
        return self.acked is None and not self.refused


class Ledger:
    """Of one group. Times are numbers of events: whatever has the lower one came before.

    Invariant: in each partition members start at the committed offset, commit only what they have processed, and so
    every commit of a later tenure is at or above all of an earlier one.
    """

    def __init__(self, history: History, group: str, partitions: Iterable[TopicPartition]) -> None:
        self._history, self.group = history, group
        self.partitions = list(partitions)
        self.processed: dict[TopicPartition, dict[int, bytes]] = {partition: {} for partition in self.partitions}
        """Offset → value of all that some member has worked on, whether or not it got round to its commit."""
        self._commits: dict[TopicPartition, list[Commit]] = {partition: [] for partition in self.partitions}
        self._fetched: dict[TopicPartition, list[tuple[int, int]]] = {partition: [] for partition in self.partitions}
        self._tenures: dict[int, dict[TopicPartition, tuple[str, Tenure]]] = {}  # by generation, with their owners
        self._now = 0

    def tick(self) -> int:
        """Now, which is later than all before."""
        self._now += 1
        return self._now

    def share(self, generation: int, owner: str, member_id: str, partitions: Iterable[TopicPartition]) -> list[Tenure]:
        """SyncGroup gave a member of a classic group its partitions: former generations are over.

        Args:
            generation: of the group.
            owner: the member's instance id if it has one, else its member id.
            member_id: its id.
            partitions: what it got.
        """
        now = self.tick()
        for former, tenures in self._tenures.items():
            for _, tenure in tenures.values() if former < generation else ():
                tenure.over = tenure.over or now
        shared, got = self._tenures.setdefault(generation, {}), []
        for partition in partitions:
            tenure = Tenure(member_id, partition)
            if partition in shared:
                other, before = shared[partition]
                if other != owner:
                    detail = f"{self.group}, generation {generation}: {partition} is given to {other} and {owner}"
                    self._history.found(Kind.TWO_OWNERS, detail)
                if before.member_id == member_id:
                    tenure = before  # it has joined again, and nothing has changed
                else:
                    before.over = before.over or now
            shared[partition] = owner, tenure
            got.append(tenure)
        return got

    def end(self, tenure: Tenure) -> None:
        """The broker has confirmed that it is over."""
        tenure.over = tenure.over or self.tick()

    def sent(self, tenure: Tenure, epoch: int, offset: int) -> Commit:
        """A commit is about to be sent."""
        commit = Commit(tenure, epoch, offset, self.tick())
        self._commits[tenure.partition].append(commit)
        return commit

    def accepted(self, commit: Commit) -> None:
        """The broker has taken a commit."""
        commit.acked = self.tick()
        over = commit.tenure.over
        if over is not None and over < commit.sent:
            detail = f"{self.group}, {commit.tenure.partition}: {commit.offset} taken from {commit.tenure.member_id}"
            self._history.found(Kind.STALE_COMMIT, f"{detail} with epoch {commit.epoch}, which was over")

    def check_fetched(self, partition: TopicPartition, offset: int, sent: int) -> None:
        """A member was told the committed offset; it asked at `sent`."""
        commits = self._commits[partition]
        reached = [(each.offset, each.tenure) for each in commits if each.acked is not None and each.acked < sent]
        read = {found for at, found in self._fetched[partition] if at < sent}
        reached += [(each.offset, each.tenure) for each in commits if each.offset in read and not each.refused]
        lowest = max((reached_offset for reached_offset, _ in reached), default=-1)
        holders = {tenure for reached_offset, tenure in reached if reached_offset == lowest}
        # A commit without an answer may come late, while its member still holds the partition.
        late = {each.offset for each in commits if each.is_open and each.tenure in holders}
        if offset < lowest and offset not in late:
            detail = f"{self.group}, {partition}: the offset went from {lowest} to {offset}"
            self._history.found(Kind.NON_MONOTONIC, detail)
        elif offset != -1 and offset not in {each.offset for each in commits if not each.refused}:
            self._history.found(Kind.WRONG_GROUP_OFFSET, f"{self.group}, {partition}: nobody has committed {offset}")
        self._fetched[partition].append((self.tick(), offset))

    def audit(self, offsets: Mapping[TopicPartition, int], logs: Mapping[TopicPartition, Log]) -> None:
        """At the end.

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
                self._history.found(Kind.SKIPPED_RECORD, detail)

    def _check_owners(self, partition: TopicPartition) -> None:
        """Of two tenures all accepted commits of one must come before all of the other."""
        spans: dict[Tenure, tuple[int, int]] = {}  # end of the first accepted commit, beginning of the last
        accepted = [(each, each.acked) for each in self._commits[partition] if each.acked is not None]
        for commit, acked in accepted:
            first, last = spans.get(commit.tenure, (acked, commit.sent))
            spans[commit.tenure] = min(first, acked), max(last, commit.sent)
        for commit, acked in accepted:
            for tenure, (first, last) in spans.items():
                if tenure is not commit.tenure and first < commit.sent and acked < last:
                    detail = f"{self.group}, {partition}: commits taken from {tenure.member_id}, then from"
                    self._history.found(
                        Kind.TWO_OWNERS, f"{detail} {commit.tenure.member_id}, then from {tenure.member_id} again"
                    )
                    return
