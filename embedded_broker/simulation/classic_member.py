"""A member of a classic group in the group workload: joins, syncs, heartbeats, leaves, assigns as leader."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.simulation.group_history import GroupHistory
from embedded_broker.simulation.history import History
from embedded_broker.simulation.member import (
    DISK_FULL,
    NONE,
    REBALANCE_MS,
    RETRIABLE,
    SESSION_MS,
    MembershipLost,
    MemberStopped,
    SimulatedMember,
)
from embedded_broker.simulation.wire import SimulatedClient
from embedded_broker.state.codec import put_string

NOBODY = frozenset({ErrorCode.unknown_member_id})
REJOINS = frozenset({ErrorCode.illegal_generation, ErrorCode.rebalance_in_progress})
PROTOCOL = {"protocol_type": "consumer", "protocol_name": "shares"}


class ClassicMember(SimulatedMember):
    """A member of a classic group. Eager rebalancing: it revokes all partitions before it joins again."""

    def __init__(
        self,
        client: SimulatedClient,
        history: History,
        group_history: GroupHistory,
        name: str,
        instance_id: str | None = None,
    ) -> None:
        super().__init__(client, history, group_history, name)
        self._instance_id = instance_id
        topics = b"\x00\x00\x00\x01" + put_string(self.topic)
        self._subscription = b"\x00\x00" + topics + b"\xff\xff\xff\xff"

    @property
    def instance_id(self) -> str | None:
        """See Member."""
        return self._instance_id

    async def join(self) -> None:
        """See Member."""
        self.release_all()
        while True:
            joined = await self._join()
            if joined is None:
                continue
            self.epoch = joined.generation_id
            answer = await self.client.call(
                "sync_group",
                5,
                group_id=self.group_history.group,
                member_id=self.member_id,
                group_instance_id=self._instance_id,
                generation_id=self.epoch,
                assignments=self._assign(joined),
                **PROTOCOL,
            )
            if answer.error_code is NONE:
                numbers = answer.assignment.decode().split(",") if answer.assignment else []
                partitions = [(self.topic, int(number)) for number in numbers]
                owner = self._instance_id or self.member_id
                await self.take(self.group_history.assigned(self.epoch, owner, self.member_id, partitions))
                return
            self._take_error("sync", answer.error_code)

    async def _join(self) -> Any:
        """Join, and return the answer; None: ask again. Raises NoResponse, MemberStopped."""
        answer = await self.client.call(
            "join_group",
            7,
            group_id=self.group_history.group,
            session_timeout=SESSION_MS,
            rebalance_timeout=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self._instance_id,
            protocol_type=PROTOCOL["protocol_type"],
            protocols=[{"name": PROTOCOL["protocol_name"], "metadata": self._subscription}],
        )
        if answer.error_code is NONE:
            self.member_id = answer.member_id
            return answer
        if answer.error_code is ErrorCode.member_id_required:
            self.member_id = answer.member_id
        else:
            self._take_error("join", answer.error_code)
            await self.client.pause()
        return None

    def _take_error(self, what: str, error_code: ErrorCode) -> None:
        """Handle an error of JoinGroup, SyncGroup or Heartbeat. Raises MemberStopped."""
        if error_code in NOBODY:
            self.member_id = ""
        elif error_code is ErrorCode.fenced_instance_id:
            self.member_id = ""
            raise MemberStopped
        elif error_code is DISK_FULL:
            self.history.refused(self.client.now_s, f"{self.name}: {what} gave {error_code.name}")
        elif error_code not in RETRIABLE | REJOINS:
            self.unexplained(what, error_code)
            raise MemberStopped

    def _assign(self, joined: Any) -> list[dict[str, Any]]:
        """Return the leader's assignment, round robin; empty for other members."""
        if joined.leader != self.member_id:
            return []
        members = sorted(each.member_id for each in joined.members)
        shares: dict[str, list[str]] = {member_id: [] for member_id in members}
        for number, (_, index) in enumerate(self.group_history.partitions):
            shares[members[(number + self.epoch) % len(members)]].append(str(index))
        return [{"member_id": each, "assignment": ",".join(share).encode()} for each, share in shares.items()]

    async def heartbeat(self) -> None:
        """See Member."""
        answer = await self.client.call(
            "heartbeat",
            4,
            group_id=self.group_history.group,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self._instance_id,
        )
        if answer.error_code is ErrorCode.rebalance_in_progress:
            await self.commit(list(self.held))
            raise MembershipLost
        if answer.error_code is not NONE:
            self._take_error("heartbeat", answer.error_code)
            raise MembershipLost

    async def leave(self) -> None:
        """See Member."""
        ownerships = self.release(list(self.held))
        members = [{"member_id": self.member_id, "group_instance_id": self._instance_id}]
        self.member_id = ""
        answer = await self.client.call("leave_group", 4, group_id=self.group_history.group, members=members)
        if answer.error_code is NONE and answer.members[0].error_code is NONE:
            for ownership in ownerships:
                self.group_history.end(ownership)

    def commit_refused(self, error_code: ErrorCode) -> None:
        """See Member."""
        self._take_error("a commit", error_code)
        raise MembershipLost
