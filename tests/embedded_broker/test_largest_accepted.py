"""The largest requests that are done and not refused cost others little: time and memory.

`largest` makes a request of every array of every API; where most of what it names isn't there, or isn't allowed, only
a refusal is measured. Here are those that change or answer as much as a request can.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.embedded_broker import served
from tests.embedded_broker.largest import GROUP, TOPIC
from tests.embedded_broker.leaving_behind import connect, done, join
from tests.embedded_broker.populated import Population, populate
from tests.embedded_broker.served import Client
from tests.embedded_broker.watched import WatchedBroker

STALL_S_MAX, MIB_MAX = 0.2, 64
ANSWER_S = 300.0
MUCH = Population(squeezed=20, fat_batches=0)
CREATED = 4_900
"""With a partition each nearly the 10,000 changes of one request."""
GROWN = 2_000
MANY = 9_000
ANY = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None,
       "host_filter": None, "operation": 1, "permission_type": 1}  # fmt: skip
TXN = "accepted"


class Step(NamedTuple):
    """A request of which at least so much must be done."""

    name: str
    version: int
    least: int
    fields: dict[str, Any]
    count: Callable[[Any], int] = done


def _topics(count: int) -> list[dict[str, Any]]:
    return [{"name": f"new-{n}", "num_partitions": 1, "replication_factor": 1} for n in range(count)]


def _offsets(count: int) -> list[dict[str, Any]]:
    each = {"committed_offset": 1, "committed_metadata": "m" * 4_000}
    return [{"name": TOPIC, "partitions": [{"partition_index": n, **each} for n in range(count)]}]


def _acl(number: int) -> dict[str, Any]:
    who = {"principal": f"User:u{number}", "host": "*", "operation": 3, "permission_type": 3}
    return {"resource_type": 2, "resource_name": f"r{number}", "resource_pattern_type": 3, **who}


def _filter(number: int) -> dict[str, Any]:
    acl = _acl(number)
    named = {"resource_type_filter": 2, "resource_name_filter": acl["resource_name"], "pattern_type_filter": 3}
    return ANY | named


def _quota(number: int) -> dict[str, Any]:
    ops = [{"key": key, "value": 1e9, "remove": False} for key in ("producer_byte_rate", "consumer_byte_rate")]
    return {"entity": [{"entity_type": "user", "entity_name": f"u{number}"}], "ops": ops}


def _user(number: int) -> dict[str, Any]:
    secret = {"iterations": 4_096, "salt": b"s" * 16, "salted_password": b"p" * 32}
    return {"name": f"u{number}", "mechanism": 1, **secret}


def _config(topic: str) -> dict[str, Any]:
    values = {"retention.ms": "-1", "segment.bytes": "2000000", "max.message.bytes": "900000", "segment.ms": "100000",
              "cleanup.policy": "delete", "retention.bytes": "-1", "flush.ms": "1000",
              "message.timestamp.type": "CreateTime"}  # fmt: skip
    configs = [{"name": name, "config_operation": 0, "value": value} for name, value in values.items()]
    return {"resource_type": 2, "resource_name": topic, "configs": configs}


def _names(count: int) -> list[str]:
    return [f"{n:0249}" for n in range(count)]


def _simple() -> list[Step]:
    partitions, group = [*range(MUCH.partitions)], {"group_id": GROUP, "generation_id_or_member_epoch": -1}
    small, width = [f"w{n}" for n in range(MUCH.topics)], MUCH.partitions
    users = {"components": [{"entity_type": "user", "match_type": 2, "match": None}], "strict": False}
    ends = [{"name": TOPIC, "partitions": [{"partition_index": n, "offset": -1} for n in partitions]}]
    deleted = [{"name": TOPIC, "partitions": [{"partition_index": n} for n in partitions]}]
    found = [{"partition_index": 1 + n, "timestamp": 1} for n in range(MUCH.squeezed)]
    subscribed = {"group_id": "modern", "member_id": "m", "member_epoch": 0, "rebalance_timeout": 60_000}
    return [
        Step("offset_commit", 8, width, {**group, "topics": _offsets(width)}),
        Step("offset_fetch", 8, width, {"groups": [{"group_id": GROUP, "topics": None}], "require_stable": True}),
        Step("offset_delete", 0, width, {"group_id": GROUP, "topics": deleted}),
        Step("list_offsets", 5, MUCH.squeezed, {"topics": [{"name": TOPIC, "partitions": found}]}),
        Step("describe_producers", 0, width, {"topics": [{"name": TOPIC, "partition_indexes": partitions}]}),
        Step("create_topics", 7, CREATED, {"topics": _topics(CREATED), "timeout": 60_000}),
        Step("metadata", 12, CREATED, {"topics": None}),
        Step("delete_topics", 5, CREATED, {"topic_names": [f"new-{n}" for n in range(CREATED)], "timeout": 60_000}),
        Step("create_partitions", 3, 1, {"topics": [{"name": "w0", "count": GROWN, "assignments": None}],
                                         "timeout": 60_000, "validate_only": False}),
        Step("create_partitions", 3, 300, {"topics": [{"name": name, "count": 2, "assignments": None}
                                                      for name in small[1:301]],
                                           "timeout": 60_000, "validate_only": False}),
        Step("create_acls", 3, MANY, {"creations": [_acl(n) for n in range(MANY)]}),
        Step("describe_acls", 3, MANY, ANY, lambda answer: len(answer.resources)),
        Step("delete_acls", 3, 100, {"filters": [_filter(n) for n in range(MANY)]}),
        Step("delete_acls", 3, 1, {"filters": [ANY]}),
        Step("alter_client_quotas", 1, MANY // 2, {"entries": [_quota(n) for n in range(MANY // 2)],
                                                   "validate_only": False}),
        Step("describe_client_quotas", 1, MANY // 2, users, lambda answer: len(answer.entries)),
        Step("alter_user_scram_credentials", 0, MANY, {"deletions": [], "upsertions": [_user(n) for n in range(MANY)]}),
        Step("describe_user_scram_credentials", 0, MANY, {"users": None}),
        Step("incremental_alter_configs", 1, len(small), {"resources": [_config(name) for name in small],
                                                          "validate_only": False}),
        Step("alter_configs", 2, len(small), {"resources": [_config(name) for name in small], "validate_only": False}),
        Step("describe_configs", 4, len(small), {"resources": [
            {"resource_type": 2, "resource_name": name, "configuration_keys": None} for name in small]}),
        Step("consumer_group_heartbeat", 1, 1, {**subscribed, "topic_partitions": [],
                                                "subscribed_topic_names": [TOPIC, *_names(2_500)]}),
        Step("consumer_group_describe", 1, 1, {"group_ids": ["modern"]}),
        Step("delete_records", 2, width, {"topics": ends, "timeout": 60_000}),
    ]  # fmt: skip


async def _in_transaction(client: Client) -> AsyncIterator[Step]:
    timeout = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
    owner = await client.call("init_producer_id", 4, transactional_id=TXN, **timeout)
    whose = {"producer_id": owner.producer_id, "producer_epoch": owner.producer_epoch}
    yield Step("add_partitions_to_txn", 3, MUCH.partitions, {
        "v3_and_below_transactional_id": TXN, **{f"v3_and_below_{name}": value for name, value in whose.items()},
        "v3_and_below_topics": [{"name": TOPIC, "partitions": [*range(MUCH.partitions)]}]})  # fmt: skip
    group = {"transactional_id": TXN, "group_id": "in transactions", **whose}
    yield Step("add_offsets_to_txn", 3, 1, group)
    yield Step("txn_offset_commit", 3, MUCH.partitions, {**group, "topics": _offsets(MUCH.partitions)})
    yield Step("end_txn", 3, 1, {"transactional_id": TXN, **whose, "committed": True})


async def _in_groups(client: Client) -> AsyncIterator[Step]:
    protocols = [{"name": f"p{n}", "metadata": b"m" * 100} for n in range(3_000)]
    yield Step("join_group", 3, 1, {**join("classic"), "protocols": protocols})
    joined = await client.call("join_group", 3, **join("other"))
    member = {"group_id": "other", "member_id": joined.member_id, "generation_id": joined.generation_id}
    assignments = [{"member_id": joined.member_id, "assignment": b"a" * 500_000}]
    assignments += [{"member_id": f"m{n}", "assignment": b"a"} for n in range(20_000)]
    yield Step("sync_group", 3, 1, {**member, "assignments": assignments})
    leaving = [{"member_id": joined.member_id}, *({"member_id": f"m{n}"} for n in range(20_000))]
    yield Step("leave_group", 4, 2, {"group_id": "other", "members": leaving})
    groups = [f"g{n}" for n in range(1_000)]
    for each in groups:
        await client.call("offset_commit", 8, group_id=each, generation_id_or_member_epoch=-1, topics=_offsets(1))
    yield Step("describe_groups", 5, 1_000, {"groups": groups, "include_authorized_operations": False})
    yield Step("list_groups", 4, 1_000, {"states_filter": []}, lambda answer: len(answer.groups))
    yield Step("delete_groups", 2, 1_000, {"groups_names": groups})


async def _all(client: Client) -> AsyncIterator[Step]:
    async for step in _in_transaction(client):
        yield step
    async for step in _in_groups(client):
        yield step
    for step in _simple():
        yield step


@pytest.mark.tier("long")
def test_the_largest_requests_that_are_done_hold_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is the CPU time of one iteration of the event loop, so it means the same on a busy machine."""
    monkeypatch.setattr(served, "TIMEOUT_S", ANSWER_S)

    async def main() -> None:
        allowed = {"authorizer": True, "super_users": ["User:ANONYMOUS"]}
        broker = await asyncio.to_thread(WatchedBroker, tmp_path, subprocess.DEVNULL, **allowed)
        try:
            await populate(broker.port, MUCH)
            client, costly, refused = await connect(broker.port), list[str](), list[str]()
            async for step in _all(client):
                broker.read()
                before = broker.read()
                answer = await client.call(step.name, step.version, **step.fields)
                seen = broker.read()
                more_mib = seen.peak_mib - before.now_mib
                said = f"{step.name}: {step.count(answer)} done, {seen.stall_s:.3f} s, {more_mib:.0f} MiB: {seen.what}"
                if step.count(answer) < step.least:
                    refused.append(said)
                if seen.stall_s > STALL_S_MAX or more_mib > MIB_MAX:
                    costly.append(said)
            assert refused == []
            assert costly == []
        finally:
            await asyncio.to_thread(broker.stop)

    asyncio.run(main())
