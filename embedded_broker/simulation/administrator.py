"""An admin client: creates, changes and deletes topics, configs, ACLs, users and quotas, and often leaves before the
answer is there. Used by `admin_workload`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.simulation.history import History, ViolationKind
from embedded_broker.simulation.wire import NoResponse, SimulatedClient

Name = tuple[str, str]
"""What kind of thing, and which of them."""
State = Mapping[Name, Any]
"""What holds; things that don't exist are not there."""
NONE = ErrorCode.none
LEAVES_CHANCE = 0.4
LEAVES_WITHIN_S = 0.2
PAUSE_S_MAX = 0.3
CHANGES = 40
NOTHING_DONE = frozenset(
    {
        ErrorCode.topic_already_exists,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.invalid_partitions,
        ErrorCode.resource_not_found,
    }
)
"""Answers to a change that an earlier one, whose outcome was unknown, has made impossible."""
CONFIGURED = "configured"
TOPIC_CONFIGS = ("retention.bytes", "max.message.bytes", "delete.retention.ms")
QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
SHARED_USER = "shared"
TOPICS = 3
SET, DELETE = 0, 1
OF_TOPIC, OF_BROKER, OF_GROUP = 2, 4, 32


@dataclass(slots=True)
class Register:
    """One thing that one client changes, never twice at a time. `acked` is None while it doesn't exist."""

    acked: Any = None
    unknown: list[Any] = field(default_factory=list)
    """Tried without an answer: one may come into force behind those that were acknowledged since."""

    def allows(self, value: Any) -> bool:
        """Return whether a value may be so."""
        return value == self.acked or value in self.unknown


class Administrator:
    """One client with things of its own; of the topic `configured` and the user `shared` it changes one property."""

    def __init__(self, client: SimulatedClient, history: History, number: int) -> None:
        """`number`: below that of TOPIC_CONFIGS and QUOTAS, and of no other administrator."""
        self._client, self._history, self._number = client, history, number
        self.registers: dict[Name, Register] = {}

    async def run(self) -> None:
        """Make CHANGES changes, one after the other."""
        changes = (self._topic, self._topic, self._quota, self._quota, self._config, self._group, self._acl, self._user)
        for count in range(CHANGES):
            await self._client.random.choice(changes)(count)
            await asyncio.sleep(self._client.random.uniform(0, PAUSE_S_MAX))

    async def _change(self, name: Name, value: Any, api: str, version: int, **fields: Any) -> None:
        """Make a change, or try to, and note what is known of it."""
        register = self.registers.setdefault(name, Register())
        register.unknown.append(value)
        error_code = await self._ask(api, version, fields)
        if error_code is None:
            return
        register.unknown.pop()
        if error_code is NONE:
            register.acked = value
        elif error_code is ErrorCode.kafka_storage_error:
            self._history.refused(self._client.now_s, f"administrator {self._number}: {name}")
        elif error_code not in NOTHING_DONE:
            self._history.found(
                ViolationKind.BROKEN, f"administrator {self._number}: {api} of {name} gave {error_code.name}"
            )

    async def _ask(self, api: str, version: int, fields: Mapping[str, Any]) -> ErrorCode | None:
        """Ask, and return what was answered; None if nothing was."""
        random = self._client.random
        try:
            asked = await self._client.send(api, version, **fields)
            if random.random() < LEAVES_CHANCE:
                await asyncio.sleep(random.uniform(0, LEAVES_WITHIN_S))
                self._client.disconnect()
            answer = await self._client.answer(asked)
        except NoResponse:
            return None
        listed = ("topics", "responses", "results", "entries", "filter_results")
        (result,) = next(getattr(answer, each) for each in listed if hasattr(answer, each))
        return ErrorCode(result.error_code)

    async def _topic(self, count: int) -> None:
        """Create one, give it partitions, or delete it."""
        random = self._client.random
        text = f"admin-{self._number}-{random.randrange(TOPICS)}"
        name = ("topic", text)
        has = self.registers.get(name, Register()).acked
        if has is None:
            made = {"name": text, "num_partitions": random.randint(1, 2), "replication_factor": 1}
            await self._change(name, made["num_partitions"], "create_topics", 7, topics=[made], timeout=10_000)
        elif random.random() < 0.4:
            grown = {"name": text, "count": has + 1, "assignments": None}
            await self._change(name, has + 1, "create_partitions", 3, topics=[grown], timeout=10_000)
        else:
            await self._change(name, None, "delete_topics", 6, topics=[{"name": text}], timeout=10_000)

    async def _quota(self, count: int) -> None:
        key, removes = QUOTAS[self._number], self._client.random.random() < 0.3
        entry = {
            "entity": [{"entity_type": "user", "entity_name": SHARED_USER}],
            "ops": [{"key": key, "value": 1.0 + count, "remove": removes}],
        }
        value = None if removes else 1.0 + count
        await self._change(("quota", key), value, "alter_client_quotas", 1, entries=[entry])

    async def _config(self, count: int) -> None:
        """Change a config of the topic that all change, or of all brokers."""
        if self._number == 0 and self._client.random.random() < 0.5:
            await self._configure(OF_BROKER, "", "message.max.bytes", 2_000_000 + count)
        else:
            await self._configure(OF_TOPIC, CONFIGURED, TOPIC_CONFIGS[self._number], 1_000_000 + count)

    async def _group(self, count: int) -> None:
        await self._configure(OF_GROUP, f"admin-{self._number}", "consumer.session.timeout.ms", 50_000 + count)

    async def _configure(self, resource_type: int, resource: str, key: str, number: int) -> None:
        removes = self._client.random.random() < 0.3
        change = {
            "name": key,
            "config_operation": DELETE if removes else SET,
            "value": None if removes else str(number),
        }
        wanted = {"resource_type": resource_type, "resource_name": resource, "configs": [change]}
        name, value = ("config", f"{resource_type} {resource} {key}"), None if removes else str(number)
        await self._change(name, value, "incremental_alter_configs", 1, resources=[wanted])

    async def _acl(self, count: int) -> None:
        text = f"admin-{self._number}"
        acl = {"principal": f"User:{text}", "host": "*", "operation": 3, "permission_type": 3}
        name = ("acl", text)
        if self.registers.get(name, Register()).acked is None:
            created = {"resource_type": 2, "resource_name": text, "resource_pattern_type": 3, **acl}
            await self._change(name, True, "create_acls", 3, creations=[created])
        else:
            meant = {"resource_type_filter": 2, "resource_name_filter": text, "pattern_type_filter": 3}
            meant |= {"principal_filter": acl["principal"], "host_filter": None, "operation": 1, "permission_type": 1}
            await self._change(name, None, "delete_acls", 3, filters=[meant])

    async def _user(self, count: int) -> None:
        text = f"admin-{self._number}"
        name = ("user", text)
        if self.registers.get(name, Register()).acked is None or self._client.random.random() < 0.4:
            iterations = 4_096 + count
            made = {"name": text, "mechanism": 1, "iterations": iterations, "salt": b"s", "salted_password": b"p" * 32}
            await self._change(name, iterations, "alter_user_scram_credentials", 0, deletions=[], upsertions=[made])
        else:
            gone = {"name": text, "mechanism": 1}
            await self._change(name, None, "alter_user_scram_credentials", 0, deletions=[gone], upsertions=[])
