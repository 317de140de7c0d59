"""Who has no right learns no name: of no topic, group, transaction, user or client, in any byte of any answer."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.api.registry import load_all
from embedded_broker.security.acls import Operation, Resource
from tests.embedded_broker import generated
from tests.embedded_broker.generated import Filling
from tests.embedded_broker.security.denials import OK, creation
from tests.embedded_broker.security.guarded import allow, guarded, login
from tests.embedded_broker.served import Client, Served

pytestmark = pytest.mark.tier("full")  # thousands of requests

FOREIGN = "zz-foreign"
"""In all names of others. No request has it."""
EVERY = [(api.name, version) for _, api in sorted(load_all().items()) for version in api.versions]
LOGIN = ("sasl_handshake", "sasl_authenticate")
ANSWER_S_MAX = 0.5
"""Some requests have no answer: produces with acks=0."""


async def _populate(served: Served) -> UUID:
    """One of everything that has a name; the id of a topic."""
    for number in range(3):
        await served.topic(f"{FOREIGN}-t{number}", partitions=2)
    admin = await login(served, "admin")
    await allow(admin, creation(Resource.TOPIC, f"{FOREIGN}-t0", Operation.READ, principal=f"User:{FOREIGN}"),
                creation(Resource.TOPIC, "seen", Operation.DESCRIBE),
                creation(Resource.GROUP, "mine", Operation.READ))  # fmt: skip
    user = {"name": FOREIGN, "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"p" * 32}
    await admin.call("alter_user_scram_credentials", 0, upsertions=[user])
    entity = [{"entity_type": "user", "entity_name": FOREIGN}]
    quota = {"entity": entity, "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}]}
    await admin.call("alter_client_quotas", 1, entries=[quota])
    config = {"name": "consumer.session.timeout.ms", "value": "50000"}
    resource = {"resource_type": 32, "resource_name": f"{FOREIGN}-configured", "configs": [config]}
    answer = await admin.call("incremental_alter_configs", 1, resources=[resource])
    assert answer.responses[0].error_code is OK
    await _join(admin)
    partition = {"partition_index": 0, "committed_offset": 0, "committed_metadata": FOREIGN}
    topics = [{"name": f"{FOREIGN}-t0", "partitions": [partition]}]
    member: dict[str, Any] = {"generation_id_or_member_epoch": -1, "member_id": "", "group_id": f"{FOREIGN}-offsets"}
    assert (await admin.call("offset_commit", 8, **member, topics=topics)).topics[0].partitions[0].error_code is OK
    begun = {"transactional_id": FOREIGN, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
    identity = await admin.call("init_producer_id", 3, **begun)
    await admin.call("add_partitions_to_txn", 3, **{
        "v3_and_below_transactional_id": FOREIGN, "v3_and_below_producer_id": identity.producer_id,
        "v3_and_below_producer_epoch": identity.producer_epoch,
        "v3_and_below_topics": [{"name": f"{FOREIGN}-t0", "partitions": [0]}],
    })  # fmt: skip
    topic = served.broker.topics.get(f"{FOREIGN}-t1")
    assert topic is not None
    return topic.topic_id


async def _join(admin: Client) -> None:
    """A group of each protocol has a member."""
    group: dict[str, Any] = {"group_id": f"{FOREIGN}-classic", "session_timeout": 60_000, "rebalance_timeout": 50}
    await admin.call("join_group", 3, **group, member_id="", group_instance_id=None, protocol_type=FOREIGN,
                     protocols=[{"name": FOREIGN, "metadata": FOREIGN.encode()}])  # fmt: skip
    beat = {
        "group_id": f"{FOREIGN}-modern",
        "member_id": f"{FOREIGN}-member",
        "member_epoch": 0,
        "instance_id": FOREIGN,
    }
    answer = await admin.call("consumer_group_heartbeat", 1, **beat, rebalance_timeout=60_000, topic_partitions=[],
                              subscribed_topic_names=[f"{FOREIGN}-t0"])  # fmt: skip
    assert answer.error_code is OK, answer


async def _ask(client: Client, frame: bytes) -> bytes | None:
    """The answer; None if there is none, and the connection is of no use any more."""
    client.send_bytes(frame)
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            size = int.from_bytes(await client.reader.readexactly(4), "big")
            return await client.reader.readexactly(size)
    except (TimeoutError, asyncio.IncompleteReadError, ConnectionResetError):
        client.writer.close()
        return None


@pytest.mark.parametrize(
    "who", ["bob, who may do nothing", pytest.param("alice, who may do little", marks=pytest.mark.tier("long"))]
)
def test_no_answer_has_a_foreign_name(tmp_path: Path, who: str) -> None:
    name = who.partition(",")[0]

    async def main() -> tuple[dict[str, int], dict[str, bytes]]:
        answered: dict[str, int] = {}
        leaks: dict[str, bytes] = {}
        async with guarded(tmp_path, group_initial_rebalance_delay_ms=0) as served:
            await served.topic("seen", partitions=3)
            topic_id = await _populate(served)
            client = await login(served, name)
            fillings = [
                Filling(text, number, at, items)
                for text, number, at, items in itertools.product(
                    ("x", None), (-1, 0, 1, 2), (UUID(int=0), topic_id), (1, 0, None)
                )
            ]
            for api, version in EVERY:
                if api in LOGIN:
                    continue
                frames = dict.fromkeys(
                    generated.frame(generated.request(api, version, filling=filling)) for filling in fillings
                )
                for frame in frames:
                    answer = await _ask(client, frame)
                    assert served.broker.errors == 0, f"{api} v{version}: {frame!r}"
                    if answer is None:
                        client = await login(served, name)
                        continue
                    answered[api] = answered.get(api, 0) + 1
                    if FOREIGN.encode() in answer:
                        leaks.setdefault(f"{api} v{version}", answer)
            await _still_there(served)
        return answered, leaks

    answered, leaks = asyncio.run(main())
    assert leaks == {}
    assert set(answered) == {api for api, _ in EVERY if api not in LOGIN}, "each has been answered at least once"


async def _still_there(served: Served) -> None:
    """The names could have been told at any time."""
    admin = await login(served, "admin")
    groups = {each.group_id for each in (await admin.call("list_groups", 4)).groups}
    assert {f"{FOREIGN}-{kind}" for kind in ("classic", "modern", "offsets")} <= groups
    answer = await admin.call("describe_topic_partitions", 0, topics=[], response_partition_limit=2, cursor=None)
    assert FOREIGN not in answer.topics[0].name, "those of the cursor come later"
    assert {f"{FOREIGN}-t{number}" for number in range(3)} <= set(served.broker.topics.names())
    assert (await admin.call("list_transactions", 0)).error_code is ErrorCode.none
