"""The group workload: consumers share a topic, in a classic group and in one of the consumer protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.simulation.classic_member import ClassicMember
from embedded_broker.simulation.group_history import GroupHistory
from embedded_broker.simulation.history import RunTopic, ViolationKind
from embedded_broker.simulation.member import REBALANCE_MS, SESSION_MS, SimulatedMember
from embedded_broker.simulation.modern_member import ModernMember
from embedded_broker.simulation.producers import IdempotentProducer
from embedded_broker.simulation.readers import ask_offsets
from embedded_broker.simulation.world import Logs, World

SHARED, KEPT = RunTopic("shared", 4), RunTopic("kept", 1)
MEMBERS = 3
FAULTS_S = 8.0
PAUSE_S_MAX = 2.0
CLOCK_BACK_MS = -1_500_000
STABLE_WITHIN_S = 40.0
"""After the last fault: time for delayed responses, and for sessions and rebalances to time out."""


class GroupWorkload:
    """The workload of members of two groups."""

    topics = (SHARED, KEPT)
    transactional_ids: Sequence[str] = ()
    settings: Mapping[str, Any] = {
        "group_session_timeout_ms_min": 100,
        "group_consumer_session_timeout_ms": SESSION_MS,
        "group_consumer_heartbeat_interval_ms": 500,
    }

    def __init__(self, world: World) -> None:
        self._world = world
        self._group_histories = [GroupHistory(world.history, group, SHARED.all) for group in ("classic", "modern")]
        self._groups: list[list[SimulatedMember]] = [[], []]
        self._lives: dict[SimulatedMember, asyncio.Task[None]] = {}
        timeout_s = REBALANCE_MS / 1000 + world.schedule.client_timeout_s
        for number in range(MEMBERS):
            classic, modern = (world.client(f"{each.group} {number}", timeout_s) for each in self._group_histories)
            instance_id = "static" if number == 0 else None
            self._groups[0].append(
                ClassicMember(classic, world.history, self._group_histories[0], f"classic {number}", instance_id)
            )
            self._groups[1].append(ModernMember(modern, world.history, self._group_histories[1], f"modern {number}"))

    async def work(self) -> None:
        """See Workload."""
        world = self._world
        for group_history in self._group_histories:
            await self._keep(group_history.group)
        self._lives = {member: world.spawn(member.run()) for members in self._groups for member in members}
        producers = []
        for _, index in SHARED.all:
            name = f"s{index}"
            partition, count = (SHARED.name, index), world.schedule.batches
            producer = IdempotentProducer(world.client(name), world.history, name, partition, count, PAUSE_S_MAX)
            producers.append(world.spawn(producer.run()))
        await asyncio.gather(*producers, asyncio.sleep(FAULTS_S))

    async def _keep(self, group: str) -> None:
        """Commit an offset that nobody else does: without any an empty group is forgotten, with its generation."""
        client = self._world.client(f"keeper of {group}")
        partition = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
        topics = [{"name": KEPT.name, "partitions": [partition]}]
        fields = {"group_id": group, "generation_id_or_member_epoch": -1, "topics": topics}
        while (await client.ask("offset_commit", 8, **fields)).topics[0].partitions[0].error_code is not ErrorCode.none:
            await client.pause()  # while the disk is full

    async def settle(self) -> None:
        """See Workload. One member of each group never comes back, and only the broker's log has a record of it."""
        random = self._world.random("who doesn't come back")
        for members in self._groups:
            for member in members:
                member.fault_free = True
            gone = members.pop(random.randrange(MEMBERS))
            self._lives[gone].cancel()
            gone.client.disconnect()
        self._world.machine.cut_power(0)
        if self._world.schedule.clock_steps:
            await self._world.machine.ready.wait()
            await asyncio.sleep(SESSION_MS / 2000)  # the broker has begun to wait for the member that doesn't come back
            self._world.machine.set_clock(CLOCK_BACK_MS)
        for group_history, members in zip(self._group_histories, self._groups, strict=True):
            began_s = self._world.loop.now_s
            while not _is_stable(members):
                if self._world.loop.now_s > began_s + STABLE_WITHIN_S:
                    holds = {member.name: sorted(index for _, index in member.held) for member in members}
                    self._world.history.found(ViolationKind.UNSTABLE_GROUP, f"{group_history.group}: {holds}")
                    break
                await asyncio.sleep(0.25)

    async def audit(self, committed: Logs, everything: Logs) -> None:
        """See Workload."""
        client = self._world.client("audit of shares")
        for group_history in self._group_histories:
            offsets = await ask_offsets(client, group_history.group, SHARED.all)
            group_history.audit(offsets, everything)


def _is_stable(members: Sequence[SimulatedMember]) -> bool:
    """Return whether every partition is held by exactly one member, and all its records are processed."""
    held = [partition for member in members for partition in member.held]
    return sorted(held) == SHARED.all and all(member.is_at_rest for member in members)
