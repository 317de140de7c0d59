"""Changes of metadata run to their end, whoever leaves meanwhile, and none is lost: what holds before a restart is what
holds after it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.broker import Broker
from embedded_broker.metadata.changes import REQUESTS_AT_ONCE_MAX, Changes
from embedded_broker.runtime.workers import NoThread
from embedded_broker.security.acls import Operation, Resource
from embedded_broker.storage import flush_scheduler
from embedded_broker.storage.disk_space import NoSpace
from embedded_broker.storage.partition import Partition
from tests.embedded_broker.security.denials import creation
from tests.embedded_broker.security.guarded import allow, guarded, login
from tests.embedded_broker.served import TIMEOUT_S, Client, Served

pytestmark = pytest.mark.tier("default")  # starts two brokers for each change

OK = ErrorCode.none
MANY = 30
SALTED = {"iterations": 4096, "salt": b"salt", "salted_password": b"p" * 32}


def holding(broker: Broker) -> dict[str, Any]:
    """All that clients can change, as it holds now."""
    assert broker.security.authorizer is not None
    return {
        "topics": [(topic.name, topic.topic_id, topic.configs, len(topic.partitions)) for topic in broker.topics.all()],
        "retention": [partition.config.retention_ms for partition in broker.topics.partitions()],
        "acls": sorted(broker.security.authorizer._acls),
        "users": broker.security.credentials.stored(),
        "quotas": sorted((str(entity), quotas) for entity, quotas in broker.client_quotas.all()),
        "groups": {name: broker.groups._registry.new_consumer(name).config for name in ("g", "h")},
        "brokers": broker.dynamic_configs.of_topics(),
    }


def _config(resource_type: int, name: str, config: str, value: str) -> dict[str, Any]:
    return {"resource_type": resource_type, "resource_name": name, "configs": [{"name": config, "value": value}]}


def _quota(user: str, key: str) -> dict[str, Any]:
    entity = [{"entity_type": "user", "entity_name": user}]
    return {"entity": entity, "ops": [{"key": key, "value": 1.0, "remove": False}]}


def _acl_filter(name: str) -> dict[str, Any]:
    found = {"resource_type_filter": int(Resource.TOPIC), "resource_name_filter": name, "pattern_type_filter": 1}
    return {**found, "operation": 1, "permission_type": 1}


CHANGES: dict[str, tuple[str, int, dict[str, Any], Callable[[dict[str, Any]], bool]]] = {
    "delete topics": (
        "delete_topics", 6, {"topics": [{"name": name} for name in ("t", "u")]},
        lambda left: not [topic for topic in left["topics"] if topic[0] in ("t", "u")],
    ),
    "create topics": (
        "create_topics", 7,
        {"topics": [{"name": name, "num_partitions": 6, "replication_factor": 1} for name in ("v", "w")]},
        lambda left: [topic[3] for topic in left["topics"] if topic[0] in ("v", "w")] == [6, 6],
    ),
    "create by asking": (
        "metadata", 12, {"topics": [{"name": "v"}], "allow_auto_topic_creation": True},
        lambda left: "v" in [topic[0] for topic in left["topics"]],
    ),
    "create partitions": (
        "create_partitions", 3, {"topics": [{"name": "t", "count": 6}, {"name": "u", "count": 6}]},
        lambda left: [topic[3] for topic in left["topics"] if topic[0] in ("t", "u")] == [6, 6],
    ),
    "configs of topics": (
        "incremental_alter_configs", 1, {"resources": [_config(2, name, "retention.ms", "7") for name in ("t", "u")]},
        lambda left: left["retention"].count(7) == 2,
    ),
    "all configs of topics": (
        "alter_configs", 2, {"resources": [_config(2, name, "retention.ms", "7") for name in ("t", "u")]},
        lambda left: left["retention"].count(7) == 2,
    ),
    "configs of groups": (
        "incremental_alter_configs", 1,
        {"resources": [_config(32, name, "consumer.session.timeout.ms", "50000") for name in ("g", "h")]},
        lambda left: [config.session_timeout_ms for config in left["groups"].values()] == [50_000] * 2,
    ),
    "configs of brokers": (
        "incremental_alter_configs", 1, {"resources": [_config(4, "", "log.segment.bytes", "2000000")]},
        lambda left: "segment.bytes" in left["brokers"],
    ),
    "create ACLs": (
        "create_acls", 3, {"creations": [creation(Resource.GROUP, f"g{each}", Operation.READ) for each in range(3)]},
        lambda left: len([acl for acl in left["acls"] if acl.resource is Resource.GROUP]) == 3,
    ),
    "delete ACLs": (
        "delete_acls", 3, {"filters": [_acl_filter(f"t{each}") for each in range(MANY)]},
        lambda left: not left["acls"],
    ),
    "delete users": (
        "alter_user_scram_credentials", 0, {"deletions": [{"name": f"u{each}", "mechanism": 1} for each in range(10)]},
        lambda left: not left["users"],
    ),
    "create users": (
        "alter_user_scram_credentials", 0,
        {"upsertions": [{"name": f"n{each}", "mechanism": 1, **SALTED} for each in range(3)]},
        lambda left: len(left["users"]) == 13,
    ),
    "quotas": (
        "alter_client_quotas", 1, {"entries": [_quota(user, "producer_byte_rate") for user in ("a", "b")]},
        lambda left: len(left["quotas"]) == 2,
    ),
}  # fmt: skip


async def _prepare(served: Served) -> Client:
    """Topics t and u, ACLs, ten SCRAM users; who may change it all."""
    await served.topic("t")
    await served.topic("u")
    admin = await login(served, "admin")
    await allow(admin, *(creation(Resource.TOPIC, f"t{each}", Operation.READ) for each in range(MANY)))
    users = [{"name": f"u{each}", "mechanism": 1, **SALTED} for each in range(10)]
    answer = await admin.call("alter_user_scram_credentials", 0, upsertions=users)
    assert {each.error_code for each in answer.results} == {OK}
    return admin


async def _until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not reached():  # noqa: ASYNC110 - the broker tells nobody
            await asyncio.sleep(0)


async def _send_and_leave(served: Served, client: Client, name: str, version: int, fields: dict[str, Any]) -> None:
    """Leave while the first change is on its way to the disk, which takes until the end of this."""
    async with served.broker.flush_scheduler.exclusive():
        end = served.broker.metadata.log_end
        client.send(name, version, **fields)
        await _until(lambda: served.broker.metadata.log_end > end)
        client.writer.transport.abort()
        await _until(lambda: not served.server._connections)


def _after_a_restart(directory: Path) -> dict[str, Any]:
    async def main() -> dict[str, Any]:
        async with guarded(directory) as served:
            return holding(served.broker)

    return asyncio.run(main())


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_has_begun_runs_to_its_end_although_its_client_leaves(tmp_path: Path, change: str) -> None:
    name, version, fields, is_done = CHANGES[change]

    async def main() -> dict[str, Any]:
        async with guarded(tmp_path, auto_create_topics=True) as served:
            admin = await _prepare(served)
            await _send_and_leave(served, admin, name, version, fields)
            await _until(lambda: is_done(holding(served.broker)))
        return holding(served.broker)

    left = asyncio.run(main())
    assert _after_a_restart(tmp_path) == left


def test_a_stop_waits_for_the_change_that_has_begun_and_begins_no_other(tmp_path: Path) -> None:
    async def main() -> dict[str, Any]:
        async with guarded(tmp_path) as served:
            admin, other = await _prepare(served), await login(served, "admin")
            broker = served.broker
            async with broker.flush_scheduler.exclusive():
                end = broker.metadata.log_end
                admin.send("delete_topics", 6, topics=[{"name": "t"}, {"name": "u"}])
                await _until(lambda: broker.metadata.log_end > end)
                other.send("create_topics", 7, topics=[{"name": "v", "num_partitions": 1, "replication_factor": 1}])
                await _until(lambda: len(broker.changes._tasks) == 2)
                await served.server.stop()
                stopping = asyncio.create_task(broker.stop())
                await _until(lambda: broker.changes._stopping)
            await stopping
            return holding(broker)

    with pytest.MonkeyPatch.context() as patch:
        stop = Broker.stop
        stopped = list[Broker]()

        async def once(self: Broker) -> None:
            if self not in stopped:
                stopped.append(self)
                await stop(self)

        patch.setattr(Broker, "stop", once)
        left = asyncio.run(main())
    assert [topic[0] for topic in left["topics"] if not topic[0].startswith("__")] == ["u"]
    assert _after_a_restart(tmp_path) == left


def test_of_changes_at_the_same_time_none_is_lost(tmp_path: Path) -> None:
    """Each reads what there is, and writes all of it again."""
    keys = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
    configs = ("retention.ms", "retention.bytes", "segment.bytes", "max.message.bytes")

    async def main() -> dict[str, Any]:
        async with guarded(tmp_path) as served:
            await _prepare(served)
            admins = [await login(served, "admin") for _ in range(12)]
            broker = served.broker
            async with broker.flush_scheduler.exclusive():
                for admin, key in zip(admins, keys, strict=False):
                    admin.send("alter_client_quotas", 1, entries=[_quota(f"u{each}", key) for each in range(10)])
                for admin, config in zip(admins[3:], configs, strict=False):
                    resources = [_config(2, "t", config, "2000000"), _config(4, "", f"log.{configs[2]}", "3000000")]
                    admin.send("incremental_alter_configs", 1, resources=resources)
                for admin in admins[7:9]:
                    admin.send("alter_user_scram_credentials", 0, deletions=[{"name": "u0", "mechanism": 1}])
                for admin in admins[9:11]:
                    admin.send("create_partitions", 3, topics=[{"name": "u", "count": 3}])
                acl = creation(Resource.GROUP, "g", Operation.READ)
                admins[11].send("create_acls", 3, creations=[acl])
                await _until(lambda: not any(each._frames for each in served.server._connections))
            results = [await admin.receive() for admin in admins]
            assert {entry.error_code for answer in results[:3] for entry in answer.entries} == {OK}
            assert {each.error_code for answer in results[3:7] for each in answer.responses} == {OK}
            deleted = [answer.results[0].error_code for answer in results[7:9]]
            assert set(deleted) == {OK, ErrorCode.resource_not_found}
            grown = [answer.results[0].error_code for answer in results[9:11]]
            assert set(grown) == {OK, ErrorCode.invalid_partitions}
            assert {each.error_code for each in results[11].results} == {OK}
            left = holding(broker)
        return left

    left = asyncio.run(main())
    assert [sorted(quotas) for _, quotas in left["quotas"]] == [sorted(keys)] * 10
    (found,) = [own for name, _, own, _ in left["topics"] if name == "t"]
    assert {found[config] for config in configs} == {"2000000"}
    assert _after_a_restart(tmp_path) == left


def _count(served: Served, resource: Resource) -> int:
    return len([acl for acl in holding(served.broker)["acls"] if acl.resource is resource])


def test_a_request_on_a_disk_that_fills_up_makes_each_change_wholly_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No reserve is left either. What is answered as made holds, and nothing else, before and after a restart."""
    append = Partition.append_checked
    left = 3

    def limited(self: Partition, *args: Any, **options: Any) -> int:
        nonlocal left
        if self.topic == "__cluster_metadata":
            if left == 0:
                raise NoSpace(errno.ENOSPC, "full")
            left -= 1
        return append(self, *args, **options)

    async def main() -> dict[str, Any]:
        nonlocal left
        async with guarded(tmp_path) as served:
            admin = await _prepare(served)
            with monkeypatch.context() as patch:
                patch.setattr(Partition, "append_checked", limited)
                made = await admin.call("create_acls", 3, creations=[
                    creation(Resource.GROUP, f"g{each}", Operation.READ) for each in range(5)
                ])  # fmt: skip
                storage = ErrorCode.kafka_storage_error
                assert [each.error_code for each in made.results] == [OK] * 3 + [storage] * 2
                # A filter that means many: none of these is gone.
                gone = await admin.call("delete_acls", 3, filters=[{**_acl_filter("t0"), "resource_name_filter": None}])
                assert [each.error_code for each in gone.filter_results] == [storage]
                deleted = await admin.call("delete_topics", 6, topics=[{"name": "t"}, {"name": "u"}])
                assert [each.error_code for each in deleted.responses] == [storage] * 2
                removed = [{"name": f"u{each}", "mechanism": 1} for each in range(10)]
                users = await admin.call("alter_user_scram_credentials", 0, deletions=removed)
                assert {each.error_code for each in users.results} == {storage}
                assert _count(served, Resource.GROUP) == 3
                assert _count(served, Resource.TOPIC) == MANY
                left = 1
                groups = {"resource_type_filter": int(Resource.GROUP), "resource_name_filter": None}
                gone = await admin.call("delete_acls", 3, filters=[{**_acl_filter("g"), **groups}])
                assert [each.error_code for each in gone.filter_results] == [OK]
                assert _count(served, Resource.GROUP) == 0
        return holding(served.broker)

    assert asyncio.run(main()) == _after_a_restart(tmp_path)


def test_a_change_is_made_although_the_system_has_no_thread_for_its_fsync_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record is in the log, and will be durable: memory follows."""
    monkeypatch.setattr(flush_scheduler, "RETRY_S", 0.01)

    async def main() -> dict[str, Any]:
        async with guarded(tmp_path) as served:
            admin = await _prepare(served)
            flushers, refused = served.broker.flush_scheduler._flushers, list[int]()
            run = flushers.all

            def refuse_twice(work: Any) -> Any:
                if len(refused) < 2:
                    refused.append(len(work))
                    raise NoThread("can't start new thread")
                return run(work)

            monkeypatch.setattr(flushers, "all", refuse_twice)
            answer = await admin.call("alter_client_quotas", 1, entries=[_quota("a", "producer_byte_rate")])
            assert answer.entries[0].error_code is OK
            assert len(refused) == 2
            assert served.broker.errors == 1  # it is told once
        return holding(served.broker)

    left = asyncio.run(main())
    assert len(left["quotas"]) == 1
    assert _after_a_restart(tmp_path) == left


def test_what_fails_when_the_client_has_left_is_told_and_the_next_change_is_made() -> None:
    async def main() -> None:
        told, go = list[BaseException](), asyncio.Event()
        changes = Changes(told.append)
        error = ValueError("bug")

        async def fail() -> None:
            async with changes.one():
                await go.wait()
                raise error

        async def succeed() -> str:
            async with changes.one():
                return "made"

        left = asyncio.create_task(changes.finish("left", fail))
        following = asyncio.create_task(changes.finish("following", succeed))
        await _until(lambda: changes._lock.locked())
        left.cancel()
        await asyncio.wait([left])
        assert not following.done()
        go.set()
        assert await following == "made"
        assert told == [error]
        with pytest.raises(ValueError, match="bug"):
            await changes.finish("stays", fail)
        assert told == [error], "the caller has it"

    asyncio.run(main())


def test_requests_that_wait_for_their_turn_are_bounded_and_can_be_given_up() -> None:
    async def main() -> None:
        changes, go, begun = Changes(lambda error: None), asyncio.Event(), list[int]()

        async def work(number: int) -> None:
            begun.append(number)
            await go.wait()

        waiting = [
            asyncio.create_task(changes.finish("many", partial(work, number)))
            for number in range(2 * REQUESTS_AT_ONCE_MAX)
        ]
        await _until(lambda: len(begun) == REQUESTS_AT_ONCE_MAX)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        go.set()
        await changes.stop()
        assert begun == list(range(REQUESTS_AT_ONCE_MAX))

    asyncio.run(main())


def test_metadata_can_be_changed_in_no_other_way(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded(tmp_path) as served:
            metadata = served.broker.metadata
            with pytest.raises(RuntimeError, match=r"within `Changes.one`"):
                await metadata.put("quota:x", {})
            with pytest.raises(RuntimeError, match=r"by `Changes.finish`"):
                async with metadata.changes.one():
                    pass

    asyncio.run(main())
