"""Metadata creates missing topics, and whose right that needs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.security.acls import Operation, Resource
from tests.embedded_broker.security.denials import OK, TOPIC, creation
from tests.embedded_broker.security.guarded import allow, guarded, login


@pytest.mark.parametrize("version", range(14))
def test_metadata_creates_only_what_its_client_may_create(version: int, tmp_path: Path) -> None:
    """Before version 4 a request can't say that nothing shall be created."""

    async def main() -> None:
        async with guarded(tmp_path, auto_create_topics=True) as served:
            alice, admin = await login(served, "alice"), await login(served, "admin")
            await served.topic("there")
            names = ("there", "mine", "new")
            rights = [creation(Resource.TOPIC, name, Operation.READ) for name in names]
            await allow(admin, *rights, creation(Resource.TOPIC, "mine", Operation.CREATE))
            creates = {"allow_auto_topic_creation": True} if version >= 4 else {}

            async def ask(*names: str) -> dict[str, ErrorCode]:
                topics = [{"name": name} for name in names]
                found = (await alice.call("metadata", version, topics=topics, **creates)).topics
                return {topic.name: topic.error_code for topic in found}

            assert await ask("new") == {"new": TOPIC}, "reading doesn't let create"
            assert await ask(*names) == {"there": OK, "mine": OK, "new": TOPIC}
            assert served.broker.topics.get("mine") is not None
            assert served.broker.topics.get("new") is None
            if version >= 4:
                creates["allow_auto_topic_creation"] = False
                assert await ask("new") == {"new": ErrorCode.unknown_topic_or_partition}
                creates["allow_auto_topic_creation"] = True
            await allow(admin, creation(Resource.TOPIC, "new", Operation.CREATE))
            assert await ask("new") == {"new": OK}
            assert served.broker.topics.get("new") is not None

    asyncio.run(main())


def test_metadata_of_a_missing_topic_needs_no_right_to_create_where_none_is_created(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded(tmp_path, auto_create_topics=False) as served:
            alice, admin = await login(served, "alice"), await login(served, "admin")
            await allow(admin, creation(Resource.TOPIC, "new", Operation.READ))
            for version in (3, 13):
                found = (await alice.call("metadata", version, topics=[{"name": "new"}])).topics
                assert [topic.error_code for topic in found] == [ErrorCode.unknown_topic_or_partition]

    asyncio.run(main())
