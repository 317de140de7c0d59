"""The admin workload: several administrators at once, who often leave before they are answered.

What holds is described when all is quiet, and again after a power cut: memory and metadata log must say the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.simulation.administrator import (
    CONFIGURED,
    OF_BROKER,
    OF_GROUP,
    OF_TOPIC,
    QUOTAS,
    SHARED_USER,
    TOPIC_CONFIGS,
    Administrator,
    Name,
    State,
)
from embedded_broker.simulation.history import RunTopic, ViolationKind
from embedded_broker.simulation.wire import SimulatedClient
from embedded_broker.simulation.world import Logs, World

ADMINISTRATORS = len(QUOTAS)
ARRIVES_WITHIN_S = 10.0
"""Requests of clients that have left may be on their way for so long."""
SET_HERE: Mapping[int, int] = {OF_TOPIC: 1, OF_BROKER: 3, OF_GROUP: 8}
"""Type of resource → the source, in DescribeConfigs, of what is set for one; for all brokers, if it is those."""


class AdminWorkload:
    """The workload of administrators."""

    topics = (RunTopic(CONFIGURED, 1),)
    transactional_ids = ()
    settings: Mapping[str, Any] = {"authorizer": True, "super_users": frozenset({"User:ANONYMOUS"})}

    def __init__(self, world: World) -> None:
        self._world = world
        self._administrators = [
            Administrator(world.client(f"administrator {number}"), world.history, number)
            for number in range(ADMINISTRATORS)
        ]
        self._settled: State = {}

    async def work(self) -> None:
        """See Workload."""
        await asyncio.gather(*(self._world.spawn(each.run()) for each in self._administrators))

    async def settle(self) -> None:
        """Describe everything, once no change is on its way any more."""
        await asyncio.sleep(ARRIVES_WITHIN_S)
        self._settled = await describe(self._world.client("describes"))
        self._check(self._settled)

    async def audit(self, committed: Logs, everything: Logs) -> None:
        """Describe it again after the restart."""
        left = await describe(self._world.client("audit of metadata"))
        for name in sorted({*self._settled, *left}):
            if left.get(name) != self._settled.get(name):
                detail = f"{name} was {self._settled.get(name)} before the last restart, and is {left.get(name)}"
                self._world.history.found(ViolationKind.LOST_CHANGE, detail)

    def _check(self, state: State) -> None:
        for administrator in self._administrators:
            for name, register in administrator.registers.items():
                if not register.allows(state.get(name)):
                    detail = f"{name} is {state.get(name)}, acknowledged was {register.acked}"
                    self._world.history.found(ViolationKind.LOST_CHANGE, f"{detail}, and tried {register.unknown}")


async def describe(client: SimulatedClient) -> State:
    """Read all that administrators can change, as the broker describes it."""
    found: dict[Name, Any] = {}
    for topic in (await client.ask("metadata", 12, topics=None)).topics:
        if topic.name.startswith("admin-"):
            found["topic", topic.name] = len(topic.partitions)
    entity = {"entity_type": "user", "match_type": 0, "match": SHARED_USER}
    for entry in (await client.ask("describe_client_quotas", 1, components=[entity], strict=True)).entries or ():
        found |= {("quota", each.key): each.value for each in entry.values}
    found |= await _configs(client)
    acls: dict[str, Any] = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    for resource in (await client.ask("describe_acls", 3, **acls)).resources:
        found["acl", resource.resource_name] = True
    for user in (await client.ask("describe_user_scram_credentials", 0, users=None)).results:
        (credential,) = user.credential_infos
        found["user", user.user] = credential.iterations
    return found


async def _configs(client: SimulatedClient) -> State:
    groups = [(OF_GROUP, f"admin-{number}", ("consumer.session.timeout.ms",)) for number in range(ADMINISTRATORS)]
    asked = [(OF_TOPIC, CONFIGURED, TOPIC_CONFIGS), (OF_BROKER, "", ("message.max.bytes",)), *groups]
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": list(keys)} for kind, name, keys in asked
    ]
    found: dict[Name, Any] = {}
    for result in (await client.ask("describe_configs", 4, resources=resources)).results:
        assert result.error_code is ErrorCode.none, result
        for config in result.configs:
            if config.config_source == SET_HERE[result.resource_type]:
                found["config", f"{result.resource_type} {result.resource_name} {config.name}"] = config.value
    return found
