"""TxnOffsetCommit (28).

Behaviour: offsets that a group gets if the transaction commits. If the group has members, and the request names a
member or generation, they must be current. If it has members of the new consumer protocol, the request must name one
(UNKNOWN_MEMBER_ID) and its epoch (ILLEGAL_GENERATION). Partitions that don't exist are refused individually.
Version notes: v3 names member and generation (KIP-447); v4 adds TRANSACTION_ABORTABLE; v5 (transaction version 2) adds
the offsets to the transaction implicitly.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.commit_requests import CommittedTopic, answered, prepared
from embedded_broker.api.owner import owner_of
from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.coordinators.offsets import Committer, PartitionCommit, Results
from embedded_broker.metadata.topic_names import OFFSETS_PARTITION
from embedded_broker.produce.transaction_verification import verification_error
from embedded_broker.wire.responses import Answer

ABORTABLE_SINCE = 4
IMPLICIT_SINCE = 5


@api(28, "txn_offset_commit", range(6))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle TxnOffsetCommit: see the behaviour and version notes above."""
    share, who = conn.share(), Committer(request.group_id, owner=owner_of(conn))
    if version >= 3:
        who = replace(
            who,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id,
        )
    asked = [CommittedTopic(topic.name, broker.topics.get(topic.name), topic.partitions) for topic in request.topics]
    results, commits = await prepared(broker, share, who, asked, has_epochs=version >= 2)
    results |= await _commit(broker, who, request, version, commits)
    topics = [
        {"name": each.name, "partitions": await answered(share, each.name, each.partitions, results)} for each in asked
    ]
    return {"topics": topics}


async def _commit(broker: Parts, who: Committer, request: Any, version: int, commits: list[PartitionCommit]) -> Results:
    if not commits:
        return {}
    offsets = broker.topics.partition(*OFFSETS_PARTITION)
    assert offsets is not None
    if not offsets.producers.has_open(request.producer_id, request.producer_epoch):
        claim = request.transactional_id, request.producer_id, request.producer_epoch
        if version >= IMPLICIT_SINCE:
            found = await broker.transactions.add_partitions(*claim, [OFFSETS_PARTITION], 2, who.owner)
            found = found or broker.transactions.verify(*claim, OFFSETS_PARTITION)  # it may have ended meanwhile
        else:
            found = broker.transactions.verify(*claim, OFFSETS_PARTITION)
        error_code = verification_error(found, abortable=version >= ABORTABLE_SINCE)
        if error_code is not ErrorCode.none:
            return {commit.partition: error_code for commit in commits}
    group = broker.groups.get(request.group_id)
    return await broker.groups.offsets.commit_in_transaction(
        who, group, request.producer_id, request.producer_epoch, commits
    )
