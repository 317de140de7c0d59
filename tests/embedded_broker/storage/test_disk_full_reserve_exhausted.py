"""The disk is full, and the reserve is used up: whoever writes what to which log, nothing is half done and the broker
keeps running. The disk fills up at every append of a run through all APIs that write, and the run ends once disk space
has been freed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.config.thresholds import DEFAULTS
from embedded_broker.coordinators import background, deadlines, group_registry
from embedded_broker.security.acls import Operation, Resource
from embedded_broker.storage import disk_space
from embedded_broker.storage.log.memory_fs import MemoryFileSystem, _Inode
from kafka_records.batch import TRANSACTIONAL
from tests.embedded_broker.security.denials import creation
from tests.embedded_broker.served import Client, Served, batch, fetch, produce, serving

NONE, STORAGE, COORDINATOR = ErrorCode.none, ErrorCode.kafka_storage_error, ErrorCode.not_coordinator
REFUSED = frozenset({STORAGE, COORDINATOR, ErrorCode.unknown_topic_or_partition})
LATER = frozenset({ErrorCode.concurrent_transactions})
EVERYONE = {"authorizer": True, "super_users": frozenset({"User:ANONYMOUS"}), "auto_create_topics": True}
ALL_ACLS = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
OFFSET = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}]}]
MEMBER = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
CONSUMER = {"group_id": "c", "member_id": "m", "rebalance_timeout": 60_000, "subscribed_topic_names": ["t"],
            "topic_partitions": []}  # fmt: skip
SCRAM = {"name": "u", "mechanism": 1}


@pytest.fixture(autouse=True)
def _try_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_space, "RETRY_MS", 2)
    for module in (background, deadlines, group_registry):
        monkeypatch.setattr(module, "NO_SPACE_RETRY_MS", 2)


class FillingFileSystem(MemoryFileSystem):
    """Has no disk space any more, not even for the reserve, after `appends_left` appends."""

    appends_left = -1

    def write(self, kind: str, inode: _Inode, at: int, data: bytes) -> None:
        super().write(kind, inode, at, data)
        if kind == "append":
            self.appends_left -= 1
            if self.appends_left == 0:
                self.size_bytes_max = self.size_bytes - DEFAULTS.reserve_bytes


def _config(kind: int, name: str, key: str, value: str) -> dict[str, Any]:
    config = {"name": key, "config_operation": 0, "value": value}
    return {"resources": [{"resource_type": kind, "resource_name": name, "configs": [config]}]}


def _code(answer: Any) -> ErrorCode:
    return ErrorCode(answer.error_code)


def _left(answer: Any) -> ErrorCode:
    """Who was refused has left nevertheless; it's only not on disk yet."""
    return NONE if answer.error_code is ErrorCode.unknown_member_id else ErrorCode(answer.error_code)


def _offset_code(answer: Any) -> ErrorCode:
    return ErrorCode(answer.topics[0].partitions[0].error_code)


class Run:
    """A client that makes one request after another, each until it succeeds; a refusal frees disk space."""

    def __init__(self, served: Served, client: Client, fs: FillingFileSystem) -> None:
        self.served, self.client, self.fs = served, client, fs
        self.refused: list[str] = []
        self.ids: dict[str, int] = {}

    async def do(self, name: str, version: int, code: Callable[[Any], ErrorCode], **fields: Any) -> Any:
        """Raises AssertionError for any other error than a full disk's."""
        async with asyncio.timeout(5):
            while True:
                answer = await self.client.call(name, version, **fields)
                assert not self.served.broker.failed.done(), name
                if code(answer) is NONE:
                    return answer
                if code(answer) not in LATER:
                    assert code(answer) in REFUSED, (name, code(answer))
                    assert self.fs.size_bytes_max is not None, name
                    self.refused.append(name)
                    await self.free()
                await asyncio.sleep(0.002)

    async def free(self) -> None:
        self.fs.size_bytes_max = None
        while not self.served.broker.has_disk_space:  # noqa: ASYNC110 - the broker tells nobody
            await asyncio.sleep(0.001)

    async def metadata(self) -> None:
        topic = {"name": "t", "num_partitions": 1, "replication_factor": 1}
        await self.do("create_topics", 5, lambda a: a.topics[0].error_code, topics=[topic], timeout=1000)
        grown = [{"name": "t", "count": 2, "assignments": None}]
        await self.do("create_partitions", 2, lambda a: a.results[0].error_code, topics=grown, timeout=1000)
        by_name = [{"name": "auto"}]
        await self.do("metadata", 9, lambda a: a.topics[0].error_code, topics=by_name, allow_auto_topic_creation=True)
        for config in (_config(2, "t", "retention.ms", "5"), _config(32, "c", "consumer.session.timeout.ms", "46000")):
            await self.do("incremental_alter_configs", 1, lambda a: a.responses[0].error_code, **config)
        acl = creation(Resource.TOPIC, "t", Operation.READ)
        await self.do("create_acls", 3, lambda a: a.results[0].error_code, creations=[acl])
        made = {**SCRAM, "iterations": 4096, "salt": bytes(12), "salted_password": b"p"}
        scram = "alter_user_scram_credentials"
        await self.do(scram, 0, lambda a: a.results[0].error_code, upsertions=[made], deletions=[])

    async def transaction(self) -> None:
        identity = await self.do("init_producer_id", 3, _code, transactional_id="tx", transaction_timeout=60_000,
                                 producer_id=-1, producer_epoch=-1)  # fmt: skip
        self.ids = {"producer_id": identity.producer_id, "producer_epoch": identity.producer_epoch}
        v3 = {f"v3_and_below_{name}": value for name, value in self.ids.items()}
        topics = [{"name": "t", "partitions": [0, 1]}]
        await self.do("add_partitions_to_txn", 3,
                      lambda a: a.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
                      **v3, v3_and_below_transactional_id="tx", v3_and_below_topics=topics)  # fmt: skip
        data = batch(b"in tx", attributes=TRANSACTIONAL, base_sequence=0, **self.ids)
        await self.do("produce", 9, lambda a: max(each.error_code for each in a.responses[0].partition_responses),
                      **produce("t", data, data, transactional_id="tx"))  # fmt: skip
        with_id = {"transactional_id": "tx", **self.ids}
        await self.do("add_offsets_to_txn", 3, _code, group_id="g", **with_id)
        await self.do("txn_offset_commit", 2, _offset_code, group_id="g", topics=OFFSET, **with_id)
        await self.do("end_txn", 3, _code, committed=True, **with_id)
        await self.do("init_producer_id", 3, _code, transactional_id="tx", transaction_timeout=60_000,
                      producer_id=-1, producer_epoch=-1)  # fmt: skip

    async def groups(self) -> None:
        await self.do("offset_commit", 5, _offset_code, **{**MEMBER, "group_id": "h"}, topics=OFFSET)
        await self.do("consumer_group_heartbeat", 1, _code, **CONSUMER, member_epoch=0)
        await self.do("consumer_group_heartbeat", 1, _left, **CONSUMER, member_epoch=-1)
        forgotten = [{"name": "t", "partitions": [{"partition_index": 0}]}]
        await self.do("offset_delete", 0, _code, group_id="h", topics=forgotten)
        for group_id in ("c", "h"):
            await self.do("delete_groups", 2, lambda a: a.results[0].error_code, groups_names=[group_id])

    async def removals(self) -> None:
        await self.do("delete_acls", 3, lambda a: a.filter_results[0].error_code, filters=[ALL_ACLS])
        await self.do("alter_user_scram_credentials", 0, lambda a: a.results[0].error_code, upsertions=[],
                      deletions=[SCRAM])  # fmt: skip
        await self.do("delete_topics", 5, lambda a: a.responses[0].error_code, topic_names=["auto"], timeout=1000)


async def _state(served: Served) -> dict[str, Any]:
    """What clients can see of all that was written."""
    client = await served.client()
    topics = (await client.call("metadata", 9, topics=None)).topics
    fetched = (await client.call("fetch", 9, **fetch("t", 0, 0, committed=True))).responses[0].partitions
    committed = await client.call("offset_fetch", 7, group_id="g", topics=None, require_stable=True)
    listed = (await client.call("list_groups", 4, states_filter=[])).groups
    scram = await client.call("describe_user_scram_credentials", 0, users=None)
    acls = await client.call("describe_acls", 3, resource_type_filter=1, pattern_type_filter=1, operation=1,
                             permission_type=1)  # fmt: skip
    topic = served.broker.topics.get("t")
    assert topic is not None
    return {
        "topics": [(topic.name, len(topic.partitions)) for topic in topics],
        "records": [(each.error_code, bytes(each.records or b""), each.last_stable_offset) for each in fetched],
        "configs": dict(topic.configs),
        "group config": served.broker.metadata.get("group:c"),
        "offsets": [each.partitions[0].committed_offset for each in committed.topics],
        "groups": sorted(each.group_id for each in listed),
        "scram": [each.user for each in scram.results],
        "acls": [each.resource_name for each in acls.resources],
        "directories": len(served.broker.fs.names(served.broker.config.data_dir / "partitions")),
    }


async def _all(run: Run) -> None:
    for part in (run.metadata, run.transaction, run.groups, run.removals):
        await part()


async def _cut(directory: Path, appends: int) -> tuple[list[str], int]:
    """A run in which the disk space ends after so many appends: what was refused, and how many appends there were."""
    fs = FillingFileSystem()
    async with serving(directory, fs, **EVERYONE) as served:
        run = Run(served, await served.client(), fs)
        fs.appends_left = appends
        if appends == 0:
            fs.size_bytes_max = fs.size_bytes - DEFAULTS.reserve_bytes
        await _all(run)
        made = appends - fs.appends_left
        await run.free()
        partition = served.broker.topics.partition("t", 1)
        assert partition is not None
        async with asyncio.timeout(5):
            while partition.last_stable < 2:  # noqa: ASYNC110 - the marker comes by itself
                await asyncio.sleep(0.001)
        before = await _state(served)
        assert before["topics"][-1] == ("t", 2)
        assert before["offsets"] == [7]
        assert (before["scram"], before["acls"]) == ([], [])
        assert not served.broker.failed.done()
    async with serving(directory, fs, **EVERYONE) as served:
        after = await _state(served)
    assert all(records for _, records, _ in before["records"])
    assert after == before
    return run.refused, made


@pytest.mark.tier("extended")
def test_the_disk_fills_up_at_every_append(tmp_path: Path) -> None:
    async def main() -> None:
        refused, count = await _cut(tmp_path / "whole", 1_000)
        assert not refused
        names = set()
        for appends in range(count + 1):
            refused, _ = await _cut(tmp_path / str(appends), appends)
            names.update(refused)
        # All that is written by request, except what another request of the run frees disk space for.
        assert names >= {
            "create_topics", "create_partitions", "incremental_alter_configs", "create_acls", "end_txn",
            "alter_user_scram_credentials", "init_producer_id", "add_partitions_to_txn", "produce", "delete_acls",
            "offset_commit", "consumer_group_heartbeat", "offset_delete", "delete_groups", "delete_topics",
            "txn_offset_commit", "add_offsets_to_txn", "metadata",
        }  # fmt: skip

    asyncio.run(main())


def test_a_transaction_past_its_time_is_aborted_once_there_is_disk_space(tmp_path: Path) -> None:
    async def main() -> None:
        fs = FillingFileSystem()
        async with serving(tmp_path, fs) as served:
            await served.topic("t")
            client = await served.client()
            init = {"transactional_id": "tx", "transaction_timeout": 500, "producer_id": -1, "producer_epoch": -1}
            identity = await client.call("init_producer_id", 3, **init)
            claim = identity.producer_id, identity.producer_epoch
            assert await served.broker.transactions.add_partitions("tx", *claim, [("t", 0)]) is NONE
            ids = {"producer_id": claim[0], "producer_epoch": claim[1]}
            data = batch(b"in tx", attributes=TRANSACTIONAL, base_sequence=0, **ids)
            await client.call("produce", 9, **produce("t", data, transactional_id="tx"))
            fs.size_bytes_max = fs.size_bytes - DEFAULTS.reserve_bytes
            async with asyncio.timeout(5):
                while served.broker.has_disk_space:  # noqa: ASYNC110 - until the deadline has passed, and a try failed
                    await asyncio.sleep(0.001)
            partition = served.broker.topics.partition("t", 0)
            assert partition is not None
            assert partition.last_stable == 0
            fs.size_bytes_max = None
            async with asyncio.timeout(5):
                while partition.last_stable < 2:  # noqa: ASYNC110 - the marker comes by itself
                    await asyncio.sleep(0.001)
            assert partition.producers.aborted_in(0, 2) == [(claim[0], 0)]
            assert not served.broker.failed.done()

    asyncio.run(main())


def test_a_classic_group_waits_for_disk_space(tmp_path: Path) -> None:
    async def main() -> None:
        fs = FillingFileSystem()
        async with serving(tmp_path, fs) as served:
            client = await served.client()
            join = {"group_id": "g", "session_timeout": 6_000, "member_id": "", "protocol_type": "consumer",
                    "rebalance_timeout": 6_000, "protocols": [{"name": "range", "metadata": b"x"}]}  # fmt: skip
            joined = await client.call("join_group", 3, **join)
            assert joined.error_code is NONE
            fs.size_bytes_max = fs.size_bytes - DEFAULTS.reserve_bytes
            mine = {"group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id}
            given = [{"member_id": joined.member_id, "assignment": b"all"}]
            client.send("sync_group", 2, **mine, assignments=given)
            await asyncio.sleep(0.02)
            assert not served.broker.has_disk_space
            fs.size_bytes_max = None
            assert (await client.receive()).assignment == b"all"
            assert served.broker.internal_log("__consumer_offsets").log_end == 1
        async with serving(tmp_path, fs) as served:
            again = await served.client()
            assert (await again.call("heartbeat", 2, **mine)).error_code is NONE, "the restart finds it in its group"

    asyncio.run(main())
